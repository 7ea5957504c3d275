//! What `rejoin check-config` prints: every setting in force, as a TOML file that could be used as it
//! stands, with where each value came from. Secrets are only said to be there.

use std::fmt::Write as _;

use super::Config;
use super::access::{Access, JwtKey};
use super::kind::Shown;
use super::secret::{SESSION_SECRET, SESSION_SECRET_PREVIOUS};
use super::table::TABLE;

/// The text of `rejoin check-config`. The same settings give the same text.
pub(crate) fn check_config(config: &Config) -> String {
    let mut lines = Vec::new();
    let mut section = "";
    for (setting, shown) in TABLE.iter().zip(config.settings.shown()) {
        if setting.section != section {
            section = setting.section;
            lines.push(RemarkedLine::heading(section));
        }
        let key = setting.key;
        let left = match shown {
            Shown::Toml(text) => format!("{key} = {text}"),
            Shown::Hidden(words) => format!("# {key} = {words}"),
            Shown::Absent => format!("# {key}: {}", setting.default_in_words()),
        };
        lines.push(RemarkedLine { left, right: config.origin(key).to_string() });
    }
    lines.push(RemarkedLine::heading("Only in the file"));
    lines.extend(access(&config.access));
    lines.push(RemarkedLine::heading("Only in the environment"));
    let secrets = &config.secrets;
    lines.push(RemarkedLine::bare(match secrets.current {
        Some(_) => format!("# {SESSION_SECRET}: (set)"),
        None => format!("# {SESSION_SECRET}: not set"),
    }));
    lines.push(RemarkedLine::bare(match secrets.previous.len() {
        0 => format!("# {SESSION_SECRET_PREVIOUS}: not set"),
        count => format!("# {SESSION_SECRET_PREVIOUS}: (set), {count} in all"),
    }));
    aligned(&lines)
}

/// A line with a remark to its right, if any.
struct RemarkedLine {
    left: String,
    right: String,
}

impl RemarkedLine {
    fn heading(text: &str) -> Self {
        Self::bare(format!("\n# {text}"))
    }

    fn bare(left: String) -> Self {
        Self { left, right: String::new() }
    }
}

fn access(access: &Access) -> Vec<RemarkedLine> {
    match access {
        Access::Open => vec![RemarkedLine::bare("# nobody has to prove who they are".into())],
        Access::ApiKeys(keys) => keys
            .iter()
            .map(|key| {
                let mut line = format!("# API key {:?} of principal {:?}", key.name, key.principal);
                line.push_str(if key.admin { ", admin" } else { "" });
                line.push_str(if key.publish { ", may publish" } else { "" });
                RemarkedLine::bare(line)
            })
            .collect(),
        Access::Jwt(jwt) => {
            let key = match &jwt.key {
                JwtKey::JwksFile(path) => format!("keys in {:?}", path.display().to_string()),
                JwtKey::Secret(_) => "a shared secret".into(),
            };
            let (issuer, audience) = (&jwt.issuer, &jwt.audience);
            vec![RemarkedLine::bare(format!(
                "# tokens of {issuer:?} for {audience:?}, verified with {key}"
            ))]
        }
    }
}

/// The lines with their remarks in one column.
fn aligned(lines: &[RemarkedLine]) -> String {
    let wide = |line: &&RemarkedLine| !line.right.is_empty();
    let width = lines.iter().filter(wide).map(|line| line.left.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for RemarkedLine { left, right } in lines {
        match right.is_empty() {
            true => writeln!(text, "{left}"),
            false => writeln!(text, "{left:width$}  # {right}"),
        }
        .expect("writing to a String can't fail");
    }
    text.trim_start().to_owned()
}
