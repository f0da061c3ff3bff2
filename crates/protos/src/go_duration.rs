//! Durations as text, in the format of Go's time package, such as `1.5s`.

use std::time::Duration;

/// Units and their lengths in nanoseconds, longer names first.
const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Maximum duration that protobuf can represent in seconds: 10,000 years.
const MAX_SECONDS: u128 = 315_576_000_000;

/// Parses numbers with units, such as `1.5s`, `1h30m` or `100ms`. `0` needs no unit. Negative durations are rejected.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() || rest.len() > 100 {
        return None;
    }
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let (unit, after) = UNITS.iter().find_map(|(name, unit)| Some((*unit, after.strip_prefix(name)?)))?;
        let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        nanos = nanos.checked_add(whole.checked_mul(unit)?)?.checked_add(fraction_nanos(fraction, unit))?;
        rest = after;
    }
    let seconds = u64::try_from(nanos / 1_000_000_000).ok().filter(|s| u128::from(*s) <= MAX_SECONDS)?;
    Some(Duration::new(seconds, u32::try_from(nanos % 1_000_000_000).ok()?))
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Nanoseconds of a decimal fraction of a unit, rounded down.
fn fraction_nanos(fraction: &str, unit: u128) -> u128 {
    let (mut scale, mut out) = (unit * 1_000_000, 0);
    for digit in fraction.bytes() {
        scale /= 10;
        out += u128::from(digit - b'0') * scale;
    }
    out / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_format_of_go() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("10s", 10_000_000_000),
            ("1.5s", 1_500_000_000),
            (".5s", 500_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5h", 5_400_000_000_000),
            ("100ms", 100_000_000),
            ("1us", 1_000),
            ("1\u{b5}s", 1_000),
            ("7ns", 7),
            ("1m0.5s", 60_500_000_000),
            ("+1s", 1_000_000_000),
            ("0.000000001s", 1),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_nanos(nanos)), "{text}");
        }
        for bad in ["", "1", "s", "-1s", "1 s", "1s ", "1d", ".s", "1..5s", "1e3s", "99999999999999h", "--1s", "1s2"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }
}
