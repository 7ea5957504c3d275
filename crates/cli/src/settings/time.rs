//! Durations: `30s`, `15m`, `24h`, `500ms`, `1h 30m`.

use std::time::Duration;

use super::kind::{Form, Kind, Raw, Shown};

/// Units in milliseconds, largest first.
const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The duration in `text`, if it is one: numbers with a unit each, the units in any order.
fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut millis: u64 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (number, after) = split_while(rest, |c| c.is_ascii_digit());
        let (unit, after) = split_while(after.trim_start(), |c| c.is_ascii_alphabetic());
        let (_, unit_millis) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let part = number.parse::<u64>().ok()?.checked_mul(*unit_millis)?;
        millis = millis.checked_add(part)?;
        rest = after.trim_start();
    }
    Some(Duration::from_millis(millis))
}

fn split_while(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

/// The duration as a person would write it: `24h`, `1h 30m`, `0s`. Hours are not gathered to days.
pub(crate) fn show_duration(duration: Duration) -> String {
    let mut left = duration.as_millis();
    let mut parts = Vec::new();
    for (name, unit_millis) in &UNITS[1..] {
        let count = left / u128::from(*unit_millis);
        left %= u128::from(*unit_millis);
        if count > 0 {
            parts.push(format!("{count}{name}"));
        }
    }
    if parts.is_empty() { "0s".into() } else { parts.join(" ") }
}

/// A duration.
pub(crate) struct Time;

impl Kind for Time {
    type Value = Duration;
    const PLACEHOLDER: &'static str = "DURATION";

    fn parse(text: &str) -> Result<Duration, String> {
        parse_duration(text)
            .ok_or_else(|| format!("{text:?} is not a duration; write 30s, 15m or 24h"))
    }

    fn show(value: &Duration) -> Shown {
        Shown::quoted(show_duration(*value))
    }

    fn is_below(value: &Duration, least: &Duration) -> bool {
        value < least
    }
}

/// A duration, or `off`.
pub(crate) struct TimeOrOff;

impl Kind for TimeOrOff {
    type Value = Option<Duration>;
    const PLACEHOLDER: &'static str = "DURATION|off";

    fn parse(text: &str) -> Result<Self::Value, String> {
        if text == "off" {
            return Ok(None);
        }
        let duration = parse_duration(text)
            .ok_or_else(|| format!("{text:?} is not a duration; write 30s, 15m, 24h or off"))?;
        Ok(Some(duration))
    }

    fn show(value: &Self::Value) -> Shown {
        value.map_or_else(|| Shown::quoted("off"), |duration| Time::show(&duration))
    }

    fn is_below(value: &Self::Value, least: &Self::Value) -> bool {
        value.is_some() && value < least
    }
}

/// Waits, one after the other. A bare number counts seconds.
pub(crate) struct Waits;

impl Waits {
    fn parse_wait(text: &str) -> Result<Duration, String> {
        let text = text.trim();
        let seconds = text.parse().ok().map(Duration::from_secs);
        seconds.or_else(|| parse_duration(text)).ok_or_else(|| {
            format!("{text:?} is not a wait; write seconds (8) or a duration (500ms)")
        })
    }

    fn collect<'a>(items: impl Iterator<Item = &'a str>) -> Result<Vec<Duration>, String> {
        let waits = items.map(Self::parse_wait).collect::<Result<Vec<_>, _>>()?;
        if waits.is_empty() { Err("needs at least one wait".into()) } else { Ok(waits) }
    }
}

impl Kind for Waits {
    type Value = Vec<Duration>;
    const FORM: Form = Form::List;
    const PLACEHOLDER: &'static str = "SECONDS";

    fn parse(text: &str) -> Result<Self::Value, String> {
        Self::collect(text.split(','))
    }

    fn read(raw: &Raw) -> Result<Self::Value, String> {
        match raw {
            Raw::One(text) => Self::parse(text),
            Raw::Many(items) => Self::collect(items.iter().map(String::as_str)),
        }
    }

    fn show(value: &Self::Value) -> Shown {
        let show = |wait: &Duration| match wait.subsec_nanos() {
            0 => wait.as_secs().to_string(),
            _ => format!("{:?}", show_duration(*wait)),
        };
        Shown::Toml(format!("[{}]", value.iter().map(show).collect::<Vec<_>>().join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_every_unit_and_shown_the_short_way() {
        let cases = [
            ("30s", 30_000, "30s"),
            ("15m", 900_000, "15m"),
            ("24h", 86_400_000, "24h"),
            ("2d", 172_800_000, "48h"),
            ("500ms", 500, "500ms"),
            ("0s", 0, "0s"),
            ("1h 30m", 5_400_000, "1h 30m"),
            ("1h30m", 5_400_000, "1h 30m"),
            (" 90 s ", 90_000, "1m 30s"),
        ];
        for (text, millis, shown) in cases {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(millis)), "{text}");
            assert_eq!(show_duration(Duration::from_millis(millis)), shown);
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        let overflow = format!("{}h", u64::MAX);
        for text in ["", " ", "30", "s", "24 hourz", "1.5h", "-1s", "30s,", "1h and 2m", &overflow]
        {
            assert_eq!(parse_duration(text), None, "{text:?}");
        }
    }

    #[test]
    fn waits_are_seconds_or_durations() {
        let waits = Waits::parse("1, 2s,500ms").unwrap();
        assert_eq!(waits, [1000, 2000, 500].map(Duration::from_millis));
        assert_eq!(Waits::show(&waits), Shown::Toml(r#"[1, 2, "500ms"]"#.into()));
        assert!(Waits::read(&Raw::Many(vec![])).is_err());
        assert!(Waits::parse("").is_err());
    }
}
