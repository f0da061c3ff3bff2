//! Timestamps in objects. Nothing here reads a clock.

use std::fmt;

use chrono::DateTime;

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
        let time = DateTime::parse_from_rfc3339(text).ok()?;
        // A leap second has more than a billion nanoseconds.
        let nanos = time.timestamp_subsec_nanos();
        Some(Timestamp { seconds: time.timestamp() + i64::from(nanos / 1_000_000_000), nanos: nanos % 1_000_000_000 })
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

impl fmt::Display for Timestamp {
    /// Formats as `2026-08-02T10:00:00Z`, without fractions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = DateTime::from_timestamp(self.seconds, 0).unwrap_or_default();
        write!(f, "{}", time.format("%Y-%m-%dT%H:%M:%SZ"))
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
        assert_eq!(Timestamp::parse("2026-08-02T12:00:00+02:00"), Timestamp::parse("2026-08-02T10:00:00Z"));
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
