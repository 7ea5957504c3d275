//! `rejoin -h`, on one screen, and completions for shells.

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

/// What `rejoin -h` says. `--help` and `rejoin COMMAND -h` are made from the command line's definition.
pub(crate) const SCREEN: &str = "\
Connections drop, sessions should not.

Usage: rejoin [SETTINGS]           run the server; `rejoin serve` is the same
       rejoin COMMAND [OPTIONS]    see `rejoin COMMAND -h`

  demo          watch a session outlive a broken network and a killed server
  new           make a session and print its id
  sessions      list the sessions: who is attached, how far each is
  show, tail    one session: all that is known of it, or its events as they come
  send          send a message to its agent
  disconnect    cut its connection and keep it
  end           end it for good
  audit         who tried to come back to which session, and what came of it
  backup        copy the data directory while a server uses it
  verify        is everything there, and whole, in a data directory or a backup?
  keys          list, rotate and retire signing keys
  check-config  print the settings in force, and where each came from
  completions   for bash, zsh and fish

  --listen ADDRESS [127.0.0.1:8181]   --agent COMMAND|URL  what answers messages
  --data-dir DIR   sessions and keys  --mcp COMMAND|URL    the MCP server behind
  --config FILE    settings in TOML   --help               all settings
";

/// `completions`.
pub(crate) fn completions() -> Command {
    let shell = Arg::new("shell")
        .required(true)
        .value_name("SHELL")
        .value_parser(value_parser!(Shell))
        .help("The shell to write them for");
    Command::new("completions")
        .about("Print completions for a shell, such as `source <(rejoin completions bash)`")
        .arg(shell)
}

/// What the shell in `matches` is to load.
pub(crate) fn completions_of(command: &mut Command, matches: &ArgMatches) -> String {
    let mut script = Vec::new();
    if let Some(shell) = matches.get_one::<Shell>("shell") {
        clap_complete::generate(*shell, command, "rejoin", &mut script);
    }
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_help_fits_a_screen_and_names_every_command() {
        assert!(SCREEN.lines().count() < 24, "the prompt needs a line, too");
        assert!(SCREEN.lines().all(|line| line.chars().count() <= 80));
        let words: Vec<&str> = SCREEN.split(|c: char| !c.is_alphanumeric() && c != '-').collect();
        for command in crate::command().get_subcommands() {
            assert!(words.contains(&command.get_name()), "{} is missing", command.get_name());
        }
        for flag in words.iter().filter_map(|word| word.strip_prefix("--")) {
            let mut flags = crate::command()
                .get_arguments()
                .filter_map(|arg| arg.get_long().map(str::to_owned))
                .collect::<Vec<_>>();
            flags.push("help".to_owned());
            assert!(flags.iter().any(|known| known == flag), "there is no --{flag}");
        }
    }
}
