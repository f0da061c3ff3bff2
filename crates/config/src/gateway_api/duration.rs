//! Durations in the format of the Gateway API (GEP-2257): `1h30m`, `10s`, `100ms`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value as Json;

use crate::decode::{Decode, Decoder, parse_duration};
use crate::schema::{self, Schema};
use crate::yaml::Node;

/// Pattern of the format: one to four integers of at most five digits, each with a unit.
const PATTERN: &str = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$";

/// Maximum value: `99999h59m59s999ms`.
const MAX: Duration = Duration::from_millis(99_999 * 3_600_000 + 3_599_999);

/// Duration in whole milliseconds, at most `99999h59m59s999ms`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct GatewayDuration(Duration);

impl GatewayDuration {
    /// Creates a duration from seconds. Values above `99999h59m59s` are clamped.
    pub const fn from_secs(seconds: u64) -> GatewayDuration {
        let most = MAX.as_secs();
        GatewayDuration(Duration::from_secs(if seconds < most { seconds } else { most }))
    }

    /// Parses the Gateway API's format. Returns `None` for any other text, such as `1.5s`, and for values above the
    /// maximum.
    pub fn parse(text: &str) -> Option<GatewayDuration> {
        if !schema::matches(PATTERN, text) {
            return None;
        }
        parse_duration(text).filter(|d| *d <= MAX).map(GatewayDuration)
    }

    /// Returns the standard library's duration.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl std::fmt::Display for GatewayDuration {
    /// Writes the Gateway API's format, largest unit first.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_zero() {
            return f.write_str("0s");
        }
        let seconds = self.0.as_secs();
        let parts = [
            (seconds / 3600, "h"),
            (seconds / 60 % 60, "m"),
            (seconds % 60, "s"),
            (u64::from(self.0.subsec_millis()), "ms"),
        ];
        parts.iter().filter(|(number, _)| *number > 0).try_for_each(|(number, unit)| write!(f, "{number}{unit}"))
    }
}

impl Decode for GatewayDuration {
    fn decode(node: &Node, cx: &mut Decoder) -> Option<GatewayDuration> {
        let value = node.text().and_then(|text| GatewayDuration::parse(text));
        if value.is_none() {
            cx.mismatch(node, "a duration in whole numbers with units h, m, s, ms, such as 1m30s or 250ms");
        }
        value
    }

    fn encode(&self) -> Json {
        Json::String(self.to_string())
    }

    fn schema() -> Arc<Schema> {
        let mut schema = Schema::text();
        schema::facts::pattern(&mut schema, PATTERN);
        Arc::new(schema)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        for (text, millis, again) in [
            ("0s", 0, "0s"),
            ("0h0m", 0, "0s"),
            ("100ms", 100, "100ms"),
            ("1500ms", 1_500, "1s500ms"),
            ("90s", 90_000, "1m30s"),
            ("1s1h", 3_601_000, "1h1s"),
            ("99999h59m59s999ms", 359_999_999_999, "99999h59m59s999ms"),
        ] {
            let read = GatewayDuration::parse(text).expect(text);
            assert_eq!((read.get().as_millis(), read.to_string()), (millis, again.to_owned()), "{text}");
            assert_eq!(GatewayDuration::parse(again), Some(read));
        }
        for bad in
            ["", "0", "1", "1.5s", "-1s", "+1s", "1us", "100000s", "1s1s1s1s1s", "1 s", "s", "99999h60m", "1\u{0661}s"]
        {
            assert_eq!(GatewayDuration::parse(bad), None, "{bad}");
        }
    }
}
