//! The command line: one flag for each setting, made from the table. Flags are taken as they stand and
//! read together with everything else, so that all problems are told at once.

use clap::builder::{OsStr, Str};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::define::Setting;
use super::kind::{Form, Raw};
use super::problem::Origin;
use super::sources::{CONFIG_VARIABLE, Given};
use super::table::TABLE;

const CONFIG: &str = "config";

/// The settings that `-h` shows; `--help` shows all.
const COMMON: [&str; 7] = ["listen", "data_dir", "agent", "mcp", "auth", "tls_cert", "log_level"];

/// What was given on the command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    /// The file to read, if one was named.
    pub(super) config: Option<String>,
    pub(super) given: Vec<Given>,
}

impl Flags {
    /// `command` with `--config` and a flag for every setting.
    pub(crate) fn add_to(command: Command) -> Command {
        let config = Arg::new(CONFIG)
            .long(CONFIG)
            .value_name("FILE")
            .help(format!("TOML file with settings [env: {CONFIG_VARIABLE}]"));
        let is_common = |setting: &Setting| COMMON.contains(&setting.key);
        let args = TABLE.iter().map(|setting| arg(setting).hide_short_help(!is_common(setting)));
        command.arg(config).args(args)
    }

    /// The same for a command that needs few of the settings: the help shows only these.
    pub(crate) fn add_showing(command: Command, shown: &[&str]) -> Command {
        let mut command = Self::add_to(command);
        for setting in TABLE {
            let is_shown = shown.contains(&setting.key);
            command =
                command.mut_arg(setting.key, |arg| arg.hide(!is_shown).hide_short_help(false));
        }
        command
    }

    /// The flags in `matches`, of a command that [`add_to`](Self::add_to) made.
    pub(crate) fn from_matches(matches: &ArgMatches) -> Self {
        let is_given = |id| matches.value_source(id) == Some(ValueSource::CommandLine);
        let given = TABLE.iter().filter(|setting| is_given(setting.key)).map(|setting| {
            let mut values: Vec<String> =
                matches.get_many(setting.key).unwrap_or_default().cloned().collect();
            let raw = match values.len() {
                1 => Raw::One(values.swap_remove(0)),
                _ => Raw::Many(values),
            };
            Given { key: setting.key, raw, origin: Origin::Flag(setting.flag()) }
        });
        Self { config: matches.get_one(CONFIG).cloned(), given: given.collect() }
    }
}

fn arg(setting: &Setting) -> Arg {
    let about = setting.documentation();
    let mut notes = vec![format!("[default: {}]", setting.default_in_words())];
    notes.extend(setting.least.map(|least| format!("[at least: {least}]")));
    notes.push(format!("[env: {}]", setting.variable()));
    let arg = Arg::new(setting.key)
        .long(Str::from(setting.flag()))
        .value_name(setting.placeholder)
        .help_heading(setting.section)
        .help(setting.first_sentence())
        .long_help(format!("{about}\n\n{}", notes.join("\n")));
    match setting.form {
        Form::One => arg,
        Form::Switch => {
            arg.num_args(0..=1).require_equals(true).default_missing_value(OsStr::from("true"))
        }
        Form::List => arg.action(ArgAction::Append),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw_of(line: &[&str], key: &str) -> Option<Raw> {
        let matches = Flags::add_to(Command::new("rejoin")).try_get_matches_from(line).unwrap();
        let flags = Flags::from_matches(&matches);
        flags.given.into_iter().find(|given| given.key == key).map(|given| given.raw)
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Flags::add_to(Command::new("rejoin")).debug_assert();
    }

    #[test]
    fn switches_need_no_value_and_lists_take_several() {
        let one = |text: &str| Some(Raw::One(text.into()));
        assert_eq!(raw_of(&["rejoin", "--client-session-ids"], "client_session_ids"), one("true"));
        assert_eq!(
            raw_of(&["rejoin", "--trust-annotations=false"], "trust_annotations"),
            one("false")
        );
        assert_eq!(raw_of(&["rejoin"], "trust_annotations"), None);
        let hosts =
            raw_of(&["rejoin", "--allowed-hosts", "a", "--allowed-hosts", "b"], "allowed_hosts");
        assert_eq!(hosts, Some(Raw::Many(vec!["a".into(), "b".into()])));
    }
}
