//! `rejoin keys list | rotate | retire`: looks after the key file of a server that may be running,
//! which notices by itself. Prints ids and times, never a secret.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Result, bail};
use clap::{Arg, ArgMatches, Command, value_parser};
use rejoin_core::keys::SecretKey;

use super::file::{KeyFile, StoredKey};
use super::{Source, disk, new_key, older};
use crate::settings::{Config, Flags};

/// `keys` and what can be done with them.
pub(crate) fn command() -> Command {
    let list = Command::new("list").about("Show the keys by id: which signs, and since when");
    let rotate = Command::new("rotate")
        .about("Make a new key that signs from now on; older ones still verify")
        .arg(
            Arg::new("keep")
                .long("keep")
                .value_name("N")
                .value_parser(value_parser!(usize))
                .help("Keep the newest N of the older keys and retire the others [default: all]"),
        );
    let retire =
        Command::new("retire").about("Take a key out: what it signed is refused from now on").arg(
            Arg::new("id")
                .required(true)
                .value_name("ID")
                .allow_hyphen_values(true) // base64url may begin with one
                .help("As `rejoin keys list` shows it"),
        );
    Command::new("keys")
        .about("Look after the keys that sign reconnect tokens and seal states")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([list, rotate, retire].map(Flags::add_to))
}

/// Does what `matches`, of a subcommand called `name`, asks for, and gives what to print.
pub(crate) fn run(name: &str, matches: &ArgMatches, config: &Config) -> Result<String> {
    match name {
        "rotate" => rotate(config, matches.get_one("keep").copied()),
        "retire" => retire(config, matches.get_one::<String>("id").map_or("", String::as_str)),
        _ => list(config),
    }
}

fn list(config: &Config) -> Result<String> {
    let mut rows: Vec<(String, String)> = Vec::new();
    let source = Source::of(config);
    match &source {
        Source::Secret(secret) => {
            let id = SecretKey::new(secret.expose())?.id().to_owned();
            rows.push((id, "MCP_SESSION_SECRET".into()));
        }
        Source::Process => {}
        Source::Made(path) => rows.extend(disk::read(path)?.iter().flat_map(|(file, _)| of(file))),
        Source::File(path) => rows.extend(of(&disk::read_existing(path)?.0)),
    }
    let signs = !rows.is_empty();
    for key in older(&config.secrets.previous)? {
        if rows.iter().all(|(id, _)| id != key.id()) {
            rows.push((key.id().to_owned(), "MCP_SESSION_SECRET_PREVIOUS".into()));
        }
    }
    let mut text = String::new();
    for (index, (id, since)) in rows.iter().enumerate() {
        let does = if signs && index == 0 { "signs" } else { "verifies" };
        writeln!(text, "{id}  {does:8}  {since}")?;
    }
    match source {
        Source::Process => writeln!(text, "{MEMORY}")?,
        Source::Made(_) if !signs => writeln!(text, "no key yet; the first start makes one")?,
        Source::Made(_) | Source::File(_) | Source::Secret(_) => {}
    }
    Ok(text)
}

const MEMORY: &str = "with store = \"memory\" the key that signs is made at start and ends with the \
                      process; set key_file to keep one";

fn of(file: &KeyFile) -> Vec<(String, String)> {
    file.keys().map(|key| (key.id().to_owned(), key.created().to_owned())).collect()
}

fn rotate(config: &Config, keep: Option<usize>) -> Result<String> {
    let source = Source::of(config);
    let path = file_of(&source)?;
    if let (Source::Made(_), Some(directory)) = (&source, path.parent()) {
        disk::make_directory(directory)?;
    }
    let new = new_key()?;
    let mut text = format!("{} signs from now on\n", new.id());
    let retired = disk::change(path, |found| match found {
        None => Ok((Some(KeyFile::with(new)), Vec::new())),
        Some(mut file) => {
            let retired = file.rotate(new, keep);
            Ok((Some(file), retired))
        }
    })?;
    for key in retired.iter().map(StoredKey::id) {
        writeln!(text, "{key} is retired")?;
    }
    text.push_str(NOTICED);
    Ok(text)
}

fn retire(config: &Config, id: &str) -> Result<String> {
    let source = Source::of(config);
    let path = file_of(&source)?;
    disk::change(path, |found| match found {
        None => bail!("there are no keys yet in {}", path.display()),
        Some(mut file) => {
            file.retire(id)?;
            Ok((Some(file), ()))
        }
    })?;
    Ok(format!("{id} is retired\n{NOTICED}"))
}

const NOTICED: &str = "a running server notices within seconds, or at once on SIGHUP\n";

/// The file to change, or what to do instead.
fn file_of(source: &Source) -> Result<&Path> {
    match source {
        Source::File(path) | Source::Made(path) => Ok(path),
        Source::Secret(_) => bail!(
            "the key that signs comes from MCP_SESSION_SECRET: set a new one there, and move the old \
             one to MCP_SESSION_SECRET_PREVIOUS"
        ),
        Source::Process => bail!("{MEMORY}"),
    }
}
