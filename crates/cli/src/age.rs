//! Ages of objects, and durations of flags.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use config::Timestamp;

/// The time since an RFC 3339 timestamp: `5s`, `3m20s`, `7d`; `<unknown>` if it is invalid.
pub(crate) fn since(time: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    Timestamp::parse(time).map_or_else(|| "<unknown>".to_owned(), |then| then.age(now))
}

/// An invalid duration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not a duration: expected for example `30s`, `5m` or `1m30s`")]
pub(crate) struct InvalidDuration(String);

/// Parses a duration such as `30s`, `1m30s`, `500ms` or `2h`; a number without a unit is seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, InvalidDuration> {
    let seconds = text.parse::<u32>().ok().map(|seconds| Duration::from_secs(seconds.into()));
    seconds.or_else(|| config::parse_duration(text)).ok_or_else(|| InvalidDuration(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        assert_eq!(since("yesterday"), "<unknown>");
        assert_eq!(parse("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse("1.5h"), Ok(Duration::from_secs(5400)));
        for wrong in ["", "s", "5x", "1m30x", "-5s", "9999999999999999999999d", "1..5s"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
