//! The settings: where they come from, what they may be, and how people are told about them.
//!
//! There is one list of them, in `table.rs`. Values come from defaults, then the TOML file, then the
//! environment, then flags; the later wins. All of them are read and checked before anything starts,
//! and everything that is wrong is told at once.
//!
//! ```text
//! let command = Flags::add_to(Command::new("rejoin"));
//! let flags = Flags::from_matches(&command.get_matches());
//! let config = Config::load(&flags, &Environment::of_process())?;
//! ```

mod access;
mod check_config;
mod checks;
mod choices;
mod define;
#[cfg(test)]
mod docs;
mod file;
mod flags;
mod headers;
mod kind;
mod problem;
mod remote;
mod scalars;
mod secret;
mod shares;
mod size;
mod sources;
mod table;
#[cfg(test)]
mod tests;
mod time;

use std::collections::BTreeMap;
use std::path::PathBuf;

use access::short_keys;
pub(crate) use access::{Access, ApiKey, Jwt, JwtKey, is_principal};
pub(crate) use check_config::check_config;
pub(crate) use choices::{
    LogFormat, MetricsAccess, ModernUpstream, OnDisconnect, StaleStatus, Takeover,
};
pub(crate) use flags::Flags;
pub(crate) use problem::{Origin, Problems};
pub(crate) use remote::{HttpUrl, Program, StoreChoice};
pub(crate) use secret::{Secret, SessionSecrets};
pub(crate) use sources::Environment;
pub(crate) use table::Settings;

use file::File;
use sources::{CONFIG_VARIABLE, Reader};

/// Everything the server is told, checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    /// The value of every setting.
    pub(crate) settings: Settings,
    /// How callers prove who they are: what came of `auth`, `[[api_keys]]` and `[jwt]`.
    pub(crate) access: Access,
    /// The secrets that only the environment can hold.
    pub(crate) secrets: SessionSecrets,
    /// Variables that children must not see, as far as settings name them.
    pub(crate) hidden_variables: Vec<String>,
    /// Names of API keys that are short.
    pub(crate) short_keys: Vec<String>,
    /// The file that was read.
    pub(crate) file: Option<PathBuf>,
    origins: BTreeMap<&'static str, Origin>,
}

impl Config {
    /// Reads and checks everything, or says all that is wrong.
    pub(crate) fn load(flags: &Flags, environment: &Environment) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let mut file = read_file(flags, environment, &mut problems);
        let mut given = Vec::from_iter(environment.state_directory());
        given.append(&mut file.given);
        given.extend(environment.given(&mut problems));
        given.extend(flags.given.iter().cloned());

        let mut reader = Reader::new(environment, &given, &mut problems);
        let settings = Settings::read(&mut reader);
        let (origins, mut broken) = (reader.origins, reader.broken);
        let count = problems.count();
        let access =
            Access::read(settings.auth, &origins["auth"], &file, environment, &mut problems);
        if problems.count() > count {
            broken.insert("auth");
        }
        let secrets = SessionSecrets::read(environment, &mut problems);
        let mut hidden_variables = file.variables();
        hidden_variables.extend(settings.child_env_hide.iter().cloned());
        let short_keys = short_keys(&file, environment);
        let file = file_named(flags, environment).map(|(path, _)| PathBuf::from(path));
        let config =
            Self { settings, access, secrets, hidden_variables, short_keys, file, origins };
        checks::check(&config, |key| broken.contains(key), &mut problems);
        problems.or(config)
    }

    /// Where a setting's value came from.
    pub(crate) fn origin(&self, key: &str) -> &Origin {
        self.origins.get(key).unwrap_or(&Origin::Default)
    }

    /// Whether callers have to prove who they are.
    pub(crate) fn is_protected(&self) -> bool {
        self.access != Access::Open
    }
}

/// The path that `--config` or `REJOIN_CONFIG` gives, and which of the two.
fn file_named<'a>(flags: &'a Flags, environment: &'a Environment) -> Option<(&'a str, Origin)> {
    let from_flag = flags.config.as_deref().map(|path| (path, Origin::Flag("config".into())));
    let from_variable =
        || Some((environment.text(CONFIG_VARIABLE)?, Origin::Variable(CONFIG_VARIABLE.into())));
    from_flag.or_else(from_variable)
}

/// Where the settings came from, to read them again while the server runs. The environment is the one of
/// the start: what this process was given then it does not have any more.
#[derive(Debug)]
pub(crate) struct Sources {
    flags: Flags,
    environment: Environment,
}

impl Sources {
    pub(crate) fn new(flags: Flags, environment: Environment) -> Self {
        Self { flags, environment }
    }

    /// The environment of the start.
    pub(crate) fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Reads and checks everything.
    pub(crate) fn load(&self) -> Result<Config, Problems> {
        Config::load(&self.flags, &self.environment)
    }
}

/// What the file says that `--config` or `REJOIN_CONFIG` names; nothing if none is named.
fn read_file(flags: &Flags, environment: &Environment, problems: &mut Problems) -> File {
    let Some((path, origin)) = file_named(flags, environment) else { return File::default() };
    match std::fs::read_to_string(path) {
        Ok(text) => File::parse(path, &text, problems),
        Err(error) => {
            problems.add(origin, format!("cannot read {path:?}: {error}"));
            File::default()
        }
    }
}
