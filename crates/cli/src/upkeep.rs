//! `rejoin backup` and `rejoin verify`: a copy of a data directory that a server may be using, and whether one is whole.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use clap::{Arg, ArgMatches, Command, value_parser};
use rejoin::store::embedded::{self, OpenError, Verification};

use crate::keys;
use crate::settings::{Config, Flags, StoreChoice};

/// Settings that say what is copied; the others are taken, so that a server's settings serve here as well.
const RELEVANT: [&str; 2] = ["data_dir", "key_file"];

/// Where a server may have its data directory; the second is that of packaging/systemd/rejoin.service.
const HINT: &str =
    "; name the server's with --data-dir (a service of systemd: --data-dir /var/lib/rejoin)";

/// `backup` and `verify`.
pub(crate) fn commands() -> [Command; 2] {
    let directory = || Arg::new("dir").value_name("DIR").value_parser(value_parser!(PathBuf));
    let to = directory().required(true).help("The directory to make; it must not hold anything");
    let at = directory().help("The directory to look at [default: data_dir]");
    let backup = Command::new("backup")
        .about("Copy the data directory, also while a server uses it, and verify the copy")
        .arg(to);
    let verify = Command::new("verify")
        .about("Look through a data directory or a backup: is everything there, and whole?")
        .arg(at);
    [backup, verify].map(|command| Flags::add_showing(command, &RELEVANT))
}

/// Runs the one called `name`. Gives what to say, and whether all is well.
pub(crate) fn run(name: &str, matches: &ArgMatches, config: &Config) -> Result<(String, bool)> {
    let directory = matches.get_one::<PathBuf>("dir");
    match (name, directory) {
        ("backup", Some(to)) => backup(config, to),
        ("backup", None) => bail!("no directory was named"),
        (_, directory) => {
            let directory = directory.unwrap_or(&config.settings.data_dir);
            let found = embedded::verify(directory).map_err(|error| explained(&error))?;
            Ok(describe(&directory.display().to_string(), directory, &found))
        }
    }
}

/// Makes the copy beside its place and moves it there when it is complete, so that what has the name of a backup is one.
fn backup(config: &Config, to: &Path) -> Result<(String, bool)> {
    let settings = &config.settings;
    ensure!(settings.store == StoreChoice::Embedded, "only the embedded store has files to copy");
    ensure!(is_free(to)?, "{} is not empty; name a new directory", to.display());
    let unfinished = with_ending(to, ".part")?;
    ensure!(
        !unfinished.exists(),
        "{} is there, of a backup that was cut short or is being made; remove it, if none is",
        unfinished.display()
    );
    let made = copy(&settings.data_dir, &unfinished, to);
    if made.is_err() {
        let _ = fs::remove_dir_all(&unfinished); // it was not there before
    }
    let title = format!("{} is a backup of {}", to.display(), settings.data_dir.display());
    let (mut text, whole) = describe(&title, to, &made?);
    if let Some(place) = keys::kept_elsewhere(config) {
        let _ = writeln!(text, "signing keys are not in it: they are in {place}");
    }
    Ok((text, whole))
}

fn copy(from: &Path, unfinished: &Path, to: &Path) -> Result<Verification> {
    embedded::backup(from, unfinished).map_err(|error| explained(&error))?;
    let found = embedded::verify(unfinished).map_err(|error| explained(&error))?;
    let renamed = fs::rename(unfinished, to).and_then(|()| sync_parent(to));
    renamed.with_context(|| format!("{} can't be made", to.display()))?;
    Ok(found)
}

/// The sentence, and which directory may have been meant: under systemd the server is told where its own is, and the
/// person who asks for a backup is not.
fn explained(error: &OpenError) -> anyhow::Error {
    let hint = match error {
        OpenError::Nothing { .. } => HINT,
        OpenError::Directory { .. }
        | OpenError::Locked { .. }
        | OpenError::Newer { .. }
        | OpenError::Foreign { .. }
        | OpenError::Unusable { .. }
        | OpenError::DataLoss { .. }
        | OpenError::Full { .. } => "",
    };
    anyhow!("{error}{hint}")
}

fn is_free(directory: &Path) -> Result<bool> {
    match fs::read_dir(directory) {
        Ok(mut files) => Ok(files.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error).with_context(|| directory.display().to_string()),
    }
}

fn with_ending(path: &Path, ending: &str) -> Result<PathBuf> {
    let name = path.file_name().with_context(|| format!("{} has no name", path.display()))?;
    let mut name = name.to_owned();
    name.push(ending);
    Ok(path.with_file_name(name))
}

fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// What was found in `directory`, and whether all is well.
fn describe(title: &str, directory: &Path, found: &Verification) -> (String, bool) {
    let Verification { sessions, active, events, newest_commit, is_copy, damage } = found;
    let mut wrong: Vec<String> = damage.iter().map(ToString::to_string).collect();
    let mut text = format!(
        "{title}: {sessions} sessions ({active} active), {events} events, commit {newest_commit}\n"
    );
    match keys::count_in(directory) {
        Ok(Some(count)) => drop(writeln!(text, "signing keys in it: {count}")),
        Ok(None) => {}
        Err(error) => wrong.push(format!("{error:#}")),
    }
    if *is_copy {
        text += "it is a copy: a server that opens it begins new epochs, and clients are told of a gap\n";
    }
    for sentence in &wrong {
        let _ = writeln!(text, "damaged: {sentence}");
    }
    if wrong.is_empty() {
        text += "everything in it is whole\n";
    }
    (text, wrong.is_empty())
}
