//! Times and durations as the server writes them and as people read them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rejoin_core::Timestamp;

/// Now, by the clock of this machine.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The moment in `text`, if it is written as the server writes them: `2026-11-15T12:00:00.000Z`.
pub(crate) fn moment(text: &str) -> Option<Timestamp> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let [year, month, day] = numbers(date, '-')?;
    let (time, millis) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = numbers(time, ':')?;
    let in_range = (1970..=9999).contains(&year) && (1..=12).contains(&month);
    if !in_range || day > 31 || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    Some(Timestamp::from_millis(seconds * 1000 + millis.parse::<u64>().ok()?.min(999)))
}

fn numbers(text: &str, between: char) -> Option<[u64; 3]> {
    let mut parts = text.split(between).map(|part| part.parse::<u64>().ok());
    let found = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(found)
}

/// Days from 1970-01-01 to a date. Years are counted from 1 March, so that the leap day is the last.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leaps = year / 4 - year / 100 + year / 400;
    (365 * year + leaps + (153 * month + 2) / 5 + day).saturating_sub(719_469)
}

/// The time of day in a moment as the server writes it, by its clock (UTC).
pub(crate) fn time_of_day(text: &str) -> &str {
    text.split_once('T').and_then(|(_, time)| time.get(..8)).unwrap_or(text)
}

/// A duration in its two largest units.
pub(crate) fn in_words(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, _, _) => format!("{hours}h {}m", minutes % 60),
        (_, _, _) => format!("{days}d {}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_read_as_the_server_writes_it() {
        for millis in [0, 951_782_400_000, 1_794_744_000_123, 4_107_542_400_000] {
            let moment_there = Timestamp::from_millis(millis);
            assert_eq!(moment(&moment_there.to_string()), Some(moment_there));
        }
        for text in ["", "2026-11-15", "2026-11-15T12:00Z", "2026-13-15T12:00:00.000Z", "T:Z"] {
            assert_eq!(moment(text), None, "{text}");
        }
    }

    #[test]
    fn a_duration_has_its_two_largest_units() {
        let words = |seconds| in_words(Duration::from_secs(seconds));
        assert_eq!([words(0), words(59), words(60)], ["0s", "59s", "1m 0s"]);
        assert_eq!([words(3_660), words(86_399), words(90_000)], ["1h 1m", "23h 59m", "1d 1h"]);
    }
}
