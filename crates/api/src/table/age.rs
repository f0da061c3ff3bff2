//! Ages in tables.

use config::Timestamp;
use serde_json::Value;

/// The time since a timestamp; `now` is in seconds since 1970.
pub(super) fn since(time: &Value, now: i64) -> String {
    match time.as_str().and_then(Timestamp::parse) {
        Some(time) => human(now - time.unix_seconds()),
        None => "<unknown>".into(),
    }
}

/// A duration in one or two units, as kubectl prints it: `90s`, `5m30s`, `3h`, `2d1h`, `400d`.
pub(super) fn human(seconds: i64) -> String {
    let two = |large: i64, unit: char, small: i64, rest: char| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{rest}"),
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match () {
        () if seconds < -1 => "<invalid>".into(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_kubectl_prints_them() {
        const DAY: i64 = 86_400;
        for (seconds, text) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (330, "5m30s"),
            (600, "10m"),
            (10_799, "179m"),
            (3 * 3600 + 120, "3h2m"),
            (9 * 3600, "9h"),
            (2 * DAY, "2d"),
            (2 * DAY + 3600, "2d1h"),
            (8 * DAY + 3600, "8d"),
            (3 * 365 * DAY + 5 * DAY, "3y5d"),
            (9 * 365 * DAY, "9y"),
        ] {
            assert_eq!(human(seconds), text);
        }
        assert_eq!(since(&"1970-01-01T00:01:40Z".into(), 130), "30s");
        assert_eq!(since(&Value::Null, 0), "<unknown>");
    }
}
