//! Durations as text.

use std::time::Duration;

pub use protos::parse_duration;

/// Formats a duration in seconds with as many digits as necessary: `1.5s`.
pub(crate) fn format_duration(duration: Duration) -> String {
    if duration.subsec_nanos() == 0 {
        return format!("{}s", duration.as_secs());
    }
    let fraction = format!("{:09}", duration.subsec_nanos());
    format!("{}.{}s", duration.as_secs(), fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_as_protobuf_does() {
        for (nanos, text) in [(0, "0s"), (1_500_000_000, "1.5s"), (1, "0.000000001s"), (90_000_000_000, "90s")] {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(format_duration(duration), text);
            assert_eq!(parse_duration(text), Some(duration));
        }
    }
}
