//! Where values come from, gathered per setting in order of precedence: file, environment, flags.
//! What they mean is read afterwards, by [`Reader`], so that nothing wrong hides behind a later value.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};

use super::define::{DefaultValue, Setting};
use super::kind::{Kind, Raw};
use super::problem::{Origin, Problems, did_you_mean};
use super::table::TABLE;
use crate::commands;

/// The variable that names the file, as `--config` does.
pub(crate) const CONFIG_VARIABLE: &str = "REJOIN_CONFIG";
/// The reconnect tokens' life in minutes, under the name that earlier servers had for it.
pub(crate) const TOKEN_EXPIRY_VARIABLE: &str = "MCP_RECONNECT_TOKEN_EXPIRY";

/// The directories that systemd made for the service (`StateDirectory=`), separated by colons.
const STATE_DIRECTORY_VARIABLE: &str = "STATE_DIRECTORY";

/// A value that somebody gave.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) key: &'static str,
    pub(super) raw: Raw,
    pub(super) origin: Origin,
}

/// Environment variables, taken once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment(BTreeMap<String, OsString>);

impl Environment {
    /// The variables of this process. Those whose name is no text are none of ours.
    pub(crate) fn of_process() -> Self {
        Self(std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v))).collect())
    }

    /// The variable's bytes, if it is set.
    pub(super) fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(name).map(OsString::as_os_str)
    }

    /// The variable's text, if it is set and not empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(OsStr::to_str).filter(|text| !text.is_empty())
    }

    /// Every setting that is given here. Names that begin like ours but are none are problems: a
    /// misspelled limit that is silently ignored would be found the day it is needed.
    pub(super) fn given(&self, problems: &mut Problems) -> Vec<Given> {
        let mut given = Vec::new();
        given.extend(self.token_expiry(problems)); // before REJOIN_TOKEN_TTL, which wins
        for (name, value) in self.0.iter().filter(|(name, _)| name.starts_with("REJOIN_")) {
            let origin = Origin::Variable(name.clone());
            let setting = TABLE.iter().find(|setting| setting.variable() == *name);
            match (setting, value.to_str()) {
                (Some(setting), Some(text)) => {
                    given.push(Given { key: setting.key, raw: Raw::One(text.into()), origin });
                }
                (Some(_), None) => problems.add(origin, "is not valid UTF-8"),
                (None, _) if is_known_otherwise(name) || is_service_link(name) => {}
                (None, _) => {
                    let known: Vec<_> = TABLE.iter().map(Setting::variable).collect();
                    let known = known.iter().map(String::as_str).chain([CONFIG_VARIABLE]);
                    problems.add(origin, format!("unknown setting{}", did_you_mean(name, known)));
                }
            }
        }
        given
    }

    /// The data directory that systemd has made for us. Whatever a person says goes before it.
    pub(super) fn state_directory(&self) -> Option<Given> {
        let first = self.text(STATE_DIRECTORY_VARIABLE)?.split(':').next()?;
        let origin = Origin::Variable(STATE_DIRECTORY_VARIABLE.into());
        let raw = Raw::One(first.into());
        first.starts_with('/').then_some(Given { key: "data_dir", raw, origin })
    }

    fn token_expiry(&self, problems: &mut Problems) -> Option<Given> {
        let value = self.get(TOKEN_EXPIRY_VARIABLE)?.to_string_lossy();
        let origin = Origin::Variable(TOKEN_EXPIRY_VARIABLE.into());
        if value.parse::<u32>().is_err() {
            problems.add(origin, format!("{value:?} is not a whole number of minutes"));
            return None;
        }
        Some(Given { key: "token_ttl", raw: Raw::One(format!("{value}m")), origin })
    }
}

impl<K: Into<String>, V: Into<OsString>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// Whether this variable is ours and no setting: it names the file, or is for the commands that ask a
/// server, in whose environment a person may well start one.
fn is_known_otherwise(name: &str) -> bool {
    name == CONFIG_VARIABLE || commands::VARIABLES.contains(&name)
}

/// Whether Kubernetes or Docker made this variable for a service called `rejoin` or `rejoin-…`:
/// `REJOIN_SERVICE_HOST`, `REJOIN_PORT`, `REJOIN_PORT_8181_TCP_ADDR`. Nobody in the pod asked for it.
fn is_service_link(name: &str) -> bool {
    let numbered = name
        .split_once("_PORT_")
        .is_some_and(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit()));
    let ends = ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT"].iter().any(|end| name.ends_with(end));
    ends || numbered || name.contains("_SERVICE_PORT_")
}

/// Reads the values of one setting after the other and notes what is wrong with them.
pub(super) struct Reader<'a> {
    environment: &'a Environment,
    /// Lowest precedence first.
    given: &'a [Given],
    problems: &'a mut Problems,
    /// Where each setting's value came from in the end.
    pub(super) origins: BTreeMap<&'static str, Origin>,
    /// Settings of which a value was wrong: what is said about them beyond that would be noise.
    pub(super) broken: BTreeSet<&'static str>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        environment: &'a Environment,
        given: &'a [Given],
        problems: &'a mut Problems,
    ) -> Self {
        Self { environment, given, problems, origins: BTreeMap::new(), broken: BTreeSet::new() }
    }

    /// The value with the highest precedence. Every other one is checked as well.
    pub(super) fn read<K: Kind>(&mut self, setting: &'static Setting) -> K::Value {
        let mut value = self.default_of::<K>(setting);
        let mut origin = Origin::Default;
        for given in self.given.iter().filter(|given| given.key == setting.key) {
            match read_bounded::<K>(setting, &given.raw) {
                Ok(good) => (value, origin) = (good, given.origin.clone()),
                Err(text) => self.refuse(setting, given, text),
            }
        }
        self.origins.insert(setting.key, origin);
        value
    }

    fn refuse(&mut self, setting: &'static Setting, given: &Given, text: String) {
        let in_file = matches!(given.origin, Origin::File { .. }); // a line alone doesn't name the setting
        let text = if in_file { format!("{}: {text}", setting.key) } else { text };
        self.problems.add(given.origin.clone(), text);
        self.broken.insert(setting.key);
    }

    fn default_of<K: Kind>(&self, setting: &Setting) -> K::Value {
        let value = match setting.default {
            DefaultValue::Text(text) => K::parse(text),
            DefaultValue::Computed(compute, _) => K::parse(&compute(self.environment)),
            DefaultValue::Absent(_) => K::absent().ok_or_else(|| "can't be absent".into()),
        };
        // The table is ours: a default that can't be read is a mistake in it, which a test finds.
        value.unwrap_or_else(|text| panic!("default of {}: {text}", setting.key))
    }
}

fn read_bounded<K: Kind>(setting: &Setting, raw: &Raw) -> Result<K::Value, String> {
    let value = K::read(raw)?;
    if let Some(least) = setting.least
        && K::is_below(&value, &K::parse(least)?)
    {
        return Err(format!("must be at least {least}"));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words that look like variables of ours.
    fn variables_in(text: &str) -> BTreeSet<&str> {
        let words = text.split(|c: char| !(c.is_ascii_uppercase() || c == '_'));
        words.filter(|word| word.len() > 7 && word.starts_with("REJOIN_")).collect()
    }

    #[test]
    fn every_variable_that_a_command_tells_of_is_known_to_the_server() {
        let mut told = String::new();
        let mut all = vec![crate::command()];
        while let Some(mut command) = all.pop() {
            told += &command.render_long_help().to_string();
            all.extend(command.get_subcommands().cloned());
        }
        let told = variables_in(&told);
        assert!(told.is_superset(&commands::VARIABLES.into()), "{told:?}");
        for name in told {
            let mut problems = Problems::default();
            Environment::from_iter([(name, "")]).given(&mut problems);
            assert!(!problems.to_string().contains("unknown setting"), "{name}: {problems}");
        }
    }

    #[test]
    fn variables_that_kubernetes_makes_for_a_service_called_rejoin_are_not_ours() {
        for name in [
            "REJOIN_SERVICE_HOST",
            "REJOIN_SERVICE_PORT",
            "REJOIN_SERVICE_PORT_HTTP",
            "REJOIN_PORT",
            "REJOIN_PORT_8181_TCP",
            "REJOIN_PORT_8181_TCP_ADDR",
            "REJOIN_STAGING_SERVICE_HOST",
        ] {
            assert!(is_service_link(name), "{name}");
        }
        assert!(!is_service_link("REJOIN_LISTEN"));
        assert!(!is_service_link("REJOIN_PORTS"));
        assert!(TABLE.iter().all(|setting| !is_service_link(&setting.variable())));
    }
}
