//! Ages of objects, and durations of flags.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use config::Timestamp;

/// The time since an RFC 3339 timestamp: `5s`, `3m20s`, `7d`; `<unknown>` if it is invalid.
pub(crate) fn since(time: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    match Timestamp::parse(time) {
        Some(then) => short(i64::try_from(now.as_secs()).unwrap_or(i64::MAX) - then.unix_seconds()),
        None => "<unknown>".to_owned(),
    }
}

/// A number of seconds in at most two units, as `kubectl` prints ages.
pub(crate) fn short(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let two = |big: i64, unit: &str, small: i64, small_unit: &str| match (seconds % big) / small {
        0 => format!("{}{unit}", seconds / big),
        rest => format!("{}{unit}{rest}{small_unit}", seconds / big),
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        // Tolerates a small clock skew.
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(MINUTE, "m", 1, "s"),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two(HOUR, "h", MINUTE, "m"),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two(DAY, "d", HOUR, "h"),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        63_072_000..252_288_000 => two(YEAR, "y", DAY, "d"),
        _ => format!("{}y", seconds / YEAR),
    }
}

/// An invalid duration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not a duration: expected for example `30s`, `5m` or `1m30s`")]
pub(crate) struct InvalidDuration(String);

/// Parses a duration such as `30s`, `1m30s`, `500ms` or `2h`; a number without a unit is seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, InvalidDuration> {
    let wrong = || InvalidDuration(text.to_owned());
    if let Ok(seconds) = text.parse::<u32>() {
        return Ok(Duration::from_secs(u64::from(seconds)));
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let (number, after) = rest.split_at(digits);
        let unit_end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let seconds = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(wrong()),
        };
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = after;
    }
    match text.is_empty() {
        true => Err(wrong()),
        false => Ok(total),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        let cases = [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (200, "3m20s"),
            (3600, "60m"),
            (10_800, "3h"),
            (11_000, "3h3m"),
            (100_000, "27h"),
            (180_000, "2d2h"),
            (800_000, "9d"),
            (70_000_000, "2y80d"),
            (300_000_000, "9y"),
            (-1, "0s"),
            (-9, "<invalid>"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(short(seconds), expected);
        }
        assert_eq!(since("yesterday"), "<unknown>");
    }

    #[test]
    fn durations_are_parsed() {
        assert_eq!(parse("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse("1.5h"), Ok(Duration::from_secs(5400)));
        for wrong in ["", "s", "5x", "1m30x", "-5s", "9999999999999999999999d", "1..5s"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
