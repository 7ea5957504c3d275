//! Sizes in bytes: `4MiB`, `512KiB`, `16MB`, or a bare number.

use super::kind::{Kind, Shown};

/// Units in bytes. The binary ones come first, largest first: sizes are shown in these.
const UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, unit) =
        text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let unit = unit.trim_start();
    let (_, bytes) = UNITS
        .iter()
        .find(|(name, _)| unit.is_empty() && *name == "B" || name.eq_ignore_ascii_case(unit))?;
    number.parse::<u64>().ok()?.checked_mul(*bytes)
}

/// The size in the largest binary unit that holds it without a fraction, else in bytes.
pub(crate) fn show_size(bytes: u64) -> String {
    let fits = |unit: &u64| bytes > 0 && bytes.is_multiple_of(*unit);
    match UNITS[..3].iter().find(|(_, unit)| fits(unit)) {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => format!("{bytes}B"),
    }
}

/// A size in bytes.
pub(crate) struct Size;

impl Kind for Size {
    type Value = u64;
    const PLACEHOLDER: &'static str = "SIZE";

    fn parse(text: &str) -> Result<u64, String> {
        parse_size(text).ok_or_else(|| {
            format!("{text:?} is not a size; write 512KiB, 4MiB or a number of bytes")
        })
    }

    fn show(value: &u64) -> Shown {
        Shown::quoted(show_size(*value))
    }

    fn is_below(value: &u64, least: &u64) -> bool {
        value < least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_every_unit_and_shown_in_binary_ones() {
        let cases = [
            ("4MiB", 4 << 20, "4MiB"),
            ("512KiB", 512 << 10, "512KiB"),
            ("1024 kib", 1 << 20, "1MiB"),
            ("16MB", 16_000_000, "15625KiB"),
            ("1000", 1000, "1000B"),
            ("0", 0, "0B"),
            ("7B", 7, "7B"),
        ];
        for (text, bytes, shown) in cases {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
            assert_eq!(show_size(bytes), shown);
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        let overflow = format!("{}KiB", u64::MAX);
        for text in ["", "MiB", "4M", "1.5MiB", "-1", "4 MiB 2", &overflow] {
            assert_eq!(parse_size(text), None, "{text:?}");
        }
    }
}
