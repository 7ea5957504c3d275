//! `rejoin backup` of a server at work, put in the place of its data: clients go on from it, or are told of what is
//! missing.

use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use serde_json::{Value, json};

use crate::common::rejoin;
use crate::restoring_own::copy_files;
use crate::support::client::seqs;
use crate::support::{Client, Server, text};

fn run(arguments: &[&str], directories: &[&Path]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } =
        rejoin().args(arguments).args(directories).output().unwrap();
    let said = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (status.code(), said)
}

/// Publishes to a session until it is told to stop.
async fn load(server: Arc<Server>, id: String, stop: Arc<AtomicBool>) -> u64 {
    let mut published = 0;
    while !stop.load(Relaxed) {
        let event = json!({ "event": "agent.note", "content": "x".repeat(2_000) });
        let answer = server.post(&format!("/api/sessions/{id}/events"), &event).await;
        assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
        published += 1;
    }
    published
}

async fn back(server: &Server, id: &str, content: Value) -> (Client, Value) {
    let mut client = server.connect().await;
    let back = client.reconnect(id, content).await;
    (client, back)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_server_at_work_is_restored_and_nothing_is_lost_in_silence() {
    let server = Arc::new(Server::start(&["--auto-export-interval=1h"]).await);
    let mut client = server.connect().await;
    let created = client.created().await;
    let (id, epoch) = (text(&created["session_id"]), created["metadata"]["epoch"].clone());
    let token = created["metadata"]["reconnect_token"].clone();
    client.thoughts(&id, 3).await;
    let mut other = server.connect().await;
    let other_created = other.created().await;
    let other_id = text(&other_created["session_id"]);
    drop(other);

    let stop = Arc::new(AtomicBool::new(false));
    let busy = server.connect().await.create().await;
    let loading = tokio::spawn(load(Arc::clone(&server), busy.clone(), Arc::clone(&stop)));
    let home = tempfile::tempdir().unwrap();
    let (backup, data) = (home.path().join("backup"), server.data());
    let data_dir = format!("--data-dir={}", data.display());
    let (code, said) = run(&["backup", &data_dir], &[&backup]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("3 sessions (3 active)") && said.contains("signing keys in it: 1"),
        "{said}"
    );
    for (directory, copy) in [(&backup, true), (&data, false)] {
        let (code, said) = run(&["verify"], &[directory]);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("everything in it is whole"), "{said}");
        assert_eq!(said.contains("it is a copy"), copy, "{said}");
    }
    stop.store(true, Relaxed);
    assert!(loading.await.unwrap() > 0, "it was at work");

    // What comes now is not in the backup: three more events, and a token that takes the place of another.
    client.thoughts(&id, 3).await;
    let (later, confirmed) = back(
        &server,
        &other_id,
        json!({ "reconnect_token": other_created["metadata"]["reconnect_token"] }),
    )
    .await;
    let later_token = confirmed["metadata"]["reconnect_token"].clone();
    drop((client, later));
    let mut server = Arc::into_inner(server).expect("nobody else has it");
    server.kill_nine().await;
    copy_files(&backup, &data);
    server.restart().await;

    let content = json!({ "last_seq": 6, "epoch": epoch, "reconnect_token": token });
    let (mut client, confirmed) = back(&server, &id, content).await;
    assert_eq!(confirmed["metadata"]["gap"], json!({ "from": null, "to": null }), "{confirmed}");
    assert_ne!(confirmed["metadata"]["epoch"], epoch);
    assert_eq!(client.notice("gap").await["metadata"]["reason"], "position_unknown");
    assert_eq!(seqs(&client.replay().await), [1, 2, 3], "all that the backup has");
    client.thoughts(&id, 1).await;

    let mut client = server.connect().await;
    client.ask_back(&other_id, json!({ "reconnect_token": later_token })).await;
    client.error("TOKEN_INVALID").await;
    assert!(!server.log().contains("the store was damaged"), "a restored backup is no damage");
}

#[tokio::test]
async fn a_backup_that_is_cut_short_or_has_no_place_is_refused() {
    let server = Server::start(&[]).await;
    let home = tempfile::tempdir().unwrap();
    let data_dir = format!("--data-dir={}", server.data().display());
    let (code, said) = run(&["backup", &data_dir], &[home.path().parent().unwrap()]);
    assert_eq!((code, said.contains("is not empty")), (Some(1), true), "{said}");
    let to = home.path().join("backup");
    std::fs::create_dir(home.path().join("backup.part")).unwrap();
    let (code, said) = run(&["backup", &data_dir], &[&to]);
    assert_eq!((code, said.contains("cut short")), (Some(1), true), "{said}");
    assert!(!to.exists());
    let (code, said) = run(&["verify"], &[home.path()]);
    assert_eq!(
        (
            code,
            said.contains("there is no store in") && said.contains("--data-dir /var/lib/rejoin")
        ),
        (Some(1), true),
        "{said}"
    );
}

#[tokio::test]
async fn a_damaged_store_is_not_started_on_unless_the_loss_is_accepted() {
    let mut server = Server::start(&[]).await;
    let mut client = server.connect().await;
    let id = client.create().await;
    client.thoughts(&id, 3).await;
    drop(client);
    server.kill_nine().await;
    std::fs::remove_file(server.data().join("commits.mark")).unwrap();
    let (code, said) = run(&["verify"], &[&server.data()]);
    assert_eq!(
        (code, said.contains("damaged: commits.mark is missing")),
        (Some(1), true),
        "{said}"
    );
    let serve = |flags: &[&str]| {
        let data_dir = format!("--data-dir={}", server.data().display());
        run(&[&["serve", "--listen=127.0.0.1:0", &data_dir], flags].concat(), &[])
    };
    let (code, said) = serve(&[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("1 sessions with 3 events") && said.contains("--accept-data-loss"),
        "{said}"
    );
    // The same once more: nothing was changed by being refused.
    assert_eq!(serve(&[]).0, Some(1));
    server.restart_with(&["--accept-data-loss"]).await;
    let mut client = server.connect().await;
    client.reconnect(&id, json!({ "last_seq": 3 })).await;
    client.notice("gap").await;
    assert_eq!(seqs(&client.replay().await), [1, 2, 3]);
}
