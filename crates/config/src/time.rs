//! Timestamps in objects. Nothing here reads a clock.

use std::fmt;

/// Timestamp, parsed from RFC 3339 text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp {
    seconds: i64,
    nanos: u32,
}

impl Timestamp {
    /// Creates a timestamp from the number of seconds since 1970-01-01T00:00:00Z, which can be negative.
    pub const fn from_unix(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanos: 0 }
    }

    /// Seconds since 1970-01-01T00:00:00Z, rounded down.
    pub const fn unix_seconds(self) -> i64 {
        self.seconds
    }

    /// Parses RFC 3339, such as `2026-08-02T10:00:00Z` or `2026-08-02T12:00:00.5+02:00`.
    pub fn parse(text: &str) -> Option<Timestamp> {
        let (date, rest) = text.split_at_checked(10)?;
        let rest = rest.strip_prefix(['T', 't', ' '])?;
        let (clock, rest) = rest.split_at_checked(8)?;
        let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
        let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
        let valid = (1..=12).contains(&month) && (1..=days_of_month(year, month)).contains(&day);
        if !valid || hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let (nanos, zone) = fraction(rest)?;
        let seconds = days_from_epoch(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset(zone)?;
        Some(Timestamp { seconds, nanos })
    }

    /// The time until `now`, in seconds since 1970, as `kubectl` prints ages: `90s`, `5m30s`, `3h`, `2d1h`, `400d`.
    pub fn age(self, now: i64) -> String {
        let seconds = now - self.seconds;
        let (minutes, hours) = (seconds / 60, seconds / 3600);
        let two = |large: i64, unit: char, small: i64, rest: char| match small {
            0 => format!("{large}{unit}"),
            small => format!("{large}{unit}{small}{rest}"),
        };
        match () {
            () if seconds < -1 => "<invalid>".into(),
            // Tolerates a small clock skew.
            () if seconds < 0 => "0s".into(),
            () if seconds < 120 => format!("{seconds}s"),
            () if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
            () if minutes < 180 => format!("{minutes}m"),
            () if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
            () if hours < 48 => format!("{hours}h"),
            () if hours < 24 * 8 => two(hours / 24, 'd', hours % 24, 'h'),
            () if hours < 24 * 365 * 2 => format!("{}d", hours / 24),
            () if hours < 24 * 365 * 8 => two(hours / 24 / 365, 'y', hours / 24 % 365, 'd'),
            () => format!("{}y", hours / 24 / 365),
        }
    }
}

/// Parses numbers of fixed widths, separated by `separator`.
fn numbers<const N: usize>(text: &str, separator: char, widths: [usize; N]) -> Option<[i64; N]> {
    let mut parts = text.split(separator);
    let mut out = [0; N];
    for (slot, width) in out.iter_mut().zip(widths) {
        let part = parts.next()?;
        if part.len() != width || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *slot = part.parse().ok()?;
    }
    parts.next().is_none().then_some(out)
}

/// Parses a leading fraction such as `.123`. Returns nanoseconds and the remaining text. Digits after the ninth are
/// ignored.
fn fraction(text: &str) -> Option<(u32, &str)> {
    let Some(digits) = text.strip_prefix('.') else {
        return Some((0, text));
    };
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let (digits, rest) = digits.split_at(end);
    if digits.is_empty() {
        return None;
    }
    let nanos = digits
        .bytes()
        .chain(std::iter::repeat(b'0'))
        .take(9)
        .fold(0, |n, d| n * 10 + u32::from(d - b'0'));
    Some((nanos, rest))
}

/// Offset of a time zone such as `Z` or `+02:00` from UTC, in seconds.
fn offset(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, rest) = match zone.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, zone.strip_prefix('+')?),
    };
    let [hours, minutes] = numbers(rest, ':', [2, 2])?;
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

fn days_of_month(year: i64, month: i64) -> i64 {
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the Gregorian calendar, computed in eras of 400 years that start in March.
fn days_from_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

impl fmt::Display for Timestamp {
    /// Formats as `2026-08-02T10:00:00Z`, without fractions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, rest) = (self.seconds.div_euclid(86_400), self.seconds.rem_euclid(86_400));
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * march_month + 2) / 5 + 1;
        let month = if march_month < 10 {
            march_month + 3
        } else {
            march_month - 9
        };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
            rest / 3600,
            rest / 60 % 60,
            rest % 60
        )
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
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
            assert_eq!(Timestamp::from_unix(0).age(seconds), expected);
        }
    }

    #[test]
    fn parses_and_formats() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2026-08-02T10:00:00Z", 1_785_664_800),
            ("1969-12-31T23:59:59Z", -1),
        ] {
            let time = Timestamp::parse(text).unwrap();
            assert_eq!((time.unix_seconds(), time.to_string().as_str()), (seconds, text));
        }
        assert_eq!(
            Timestamp::parse("2026-08-02T12:00:00+02:00"),
            Timestamp::parse("2026-08-02T10:00:00Z")
        );
        assert!(Timestamp::parse("2026-08-02T10:00:00.25Z") > Timestamp::parse("2026-08-02T10:00:00.2Z"));
    }

    #[test]
    fn rejects_invalid_text() {
        for bad in [
            "",
            "2026",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00+2:00",
            "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}T00:00:00Z",
            "+026-01-01T00:00:00Z",
        ] {
            assert_eq!(Timestamp::parse(bad), None, "{bad}");
        }
    }
}
