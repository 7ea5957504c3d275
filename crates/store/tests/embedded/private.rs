//! Nobody but its owner may look into a store.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rejoin_store::Store;
use rejoin_store::embedded::EmbeddedStore;

use crate::support::{append, body, creation, open_whole, options, session_id};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// The names of the files in a directory, all of which are the owner's alone.
fn private_files(directory: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for file in fs::read_dir(directory).unwrap() {
        let file = file.unwrap();
        let name = file.file_name().into_string().unwrap();
        assert_eq!(mode(&file.path()), 0o600, "{name}");
        names.push(name);
    }
    names.sort();
    names
}

const FILES: [&str; 6] =
    ["commits.mark", "lock", "rejoin.db", "rejoin.db-shm", "rejoin.db-wal", "runs.mark"];

#[tokio::test]
async fn a_new_store_is_its_owners_alone() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("data");
    let store = open_whole(&directory);
    store.create(creation(0)).await.unwrap();
    append(&store, &session_id(0), &[body("secret")]).await;
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(private_files(&directory), FILES);
    store.close().await.unwrap();
    private_files(&directory);
}

#[tokio::test]
async fn files_that_others_could_read_are_shut_when_the_store_opens() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("data");
    let store = open_whole(&directory);
    store.create(creation(0)).await.unwrap();
    drop(store);
    for file in fs::read_dir(&directory).unwrap() {
        fs::set_permissions(file.unwrap().path(), Permissions::from_mode(0o644)).unwrap();
    }
    let _store = open_whole(&directory);
    assert_eq!(private_files(&directory), FILES);
}

#[tokio::test]
async fn what_is_salvaged_and_what_is_kept_are_the_owners_alone() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("data");
    let store = open_whole(&directory);
    store.create(creation(0)).await.unwrap();
    drop(store);
    fs::remove_file(directory.join("commits.mark")).unwrap();
    let mut options = options(&directory);
    options.accept_data_loss = true;
    let (_store, report) = EmbeddedStore::open(options).unwrap();
    assert!(report.kept.is_some());
    assert!(private_files(&directory).contains(&"rejoin.db.damaged-1".into()));
}
