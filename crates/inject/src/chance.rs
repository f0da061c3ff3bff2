//! Template functions that depend on the time or on chance. Both are inputs, so that an injection is a pure function.

use std::cell::Cell;

use go_template::Problem;
use serde_json::{Value, json};

/// The functions.
pub(crate) const NAMES: [&str; 9] =
    ["now", "ago", "randAlphaNum", "randAlpha", "randNumeric", "randAscii", "randInt", "shuffle", "uuidv4"];
/// Maximum number of random characters.
const MAX_TEXT: i64 = 10_000;

/// The time and the state of a generator of random numbers (SplitMix64).
pub(crate) struct Chance {
    now: i64,
    state: Cell<u64>,
}

impl Chance {
    pub(crate) fn new(now: i64, seed: u64) -> Chance {
        Chance { now, state: Cell::new(seed) }
    }

    /// Calls a function; none if the name is unknown.
    pub(crate) fn call(&self, name: &str, arguments: &[Value]) -> Option<Result<Value, Problem>> {
        let number = |value: &Value| value.as_i64().unwrap_or_default();
        Some(match (name, arguments) {
            ("now", []) => go_template::date(&json!(self.now)).map(go_template::written),
            ("ago", [date]) => go_template::date(date)
                .map(|date| go_template::duration_text(self.now.saturating_sub(date.timestamp())).into()),
            ("randAlphaNum", [count]) => self.text(number(count), |c| c.is_ascii_alphanumeric()),
            ("randAlpha", [count]) => self.text(number(count), |c| c.is_ascii_alphabetic()),
            ("randNumeric", [count]) => self.text(number(count), |c| c.is_ascii_digit()),
            ("randAscii", [count]) => self.text(number(count), |c| c.is_ascii_graphic()),
            ("randInt", [from, to]) => match u64::try_from(number(to).saturating_sub(number(from))) {
                Ok(range @ 1..) => Ok(number(from).saturating_add_unsigned(self.below(range)).into()),
                _ => Err("expected a lower and a higher number".into()),
            },
            ("shuffle", [text]) => {
                let mut chars: Vec<char> = text.as_str().unwrap_or_default().chars().collect();
                for at in (1..chars.len()).rev() {
                    chars.swap(at, usize::try_from(self.below(at as u64 + 1)).unwrap_or(at));
                }
                Ok(chars.into_iter().collect::<String>().into())
            }
            ("uuidv4", []) => {
                let bits = (u128::from(self.next()) << 64) | u128::from(self.next());
                let hex = format!("{:032x}", (bits & !(0xf << 76) & !(0x3 << 62)) | (4 << 76) | (2 << 62));
                Ok([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-").into())
            }
            (name, _) if NAMES.contains(&name) => Err(format!("wrong number of arguments: {}", arguments.len()).into()),
            _ => return None,
        })
    }

    fn next(&self) -> u64 {
        let state = self.state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.state.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&self, range: u64) -> u64 {
        self.next() % range.max(1)
    }

    /// Random characters of a kind.
    fn text(&self, count: i64, is_wanted: impl Fn(&char) -> bool) -> Result<Value, Problem> {
        if count > MAX_TEXT {
            return Err(format!("expected at most {MAX_TEXT} characters").into());
        }
        let kinds: Vec<char> = ('!'..='~').filter(is_wanted).collect();
        let one = |_| kinds[usize::try_from(self.below(kinds.len() as u64)).unwrap_or_default()];
        Ok((0..count).map(one).collect::<String>().into())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn results_depend_on_time_and_seed() {
        let call = |seed: u64, name: &str, arguments: &[Value]| {
            Chance::new(1_700_000_000, seed).call(name, arguments).unwrap().map_err(|error| error.to_string())
        };
        assert_eq!(call(0, "now", &[]), Ok("2023-11-14T22:13:20Z".into()));
        assert_eq!(call(0, "ago", &["2023-11-14T21:13:10Z".into()]), Ok("1h0m10s".into()));
        let id = call(1, "uuidv4", &[]).unwrap();
        let id = id.as_str().unwrap();
        assert!(id.len() == 36 && &id[14..15] == "4" && "89ab".contains(&id[19..20]), "{id}");
        assert_ne!(call(2, "uuidv4", &[]), call(1, "uuidv4", &[]));
        let text = call(1, "randAlphaNum", &[8.into()]).unwrap();
        assert!(text.as_str().unwrap().len() == 8 && text == call(1, "randAlphaNum", &[8.into()]).unwrap());
        assert!((3..5).contains(&call(7, "randInt", &[3.into(), 5.into()]).unwrap().as_i64().unwrap()));
        let mut letters: Vec<char> = call(3, "shuffle", &["abc".into()]).unwrap().as_str().unwrap().chars().collect();
        letters.sort_unstable();
        assert_eq!(letters, ['a', 'b', 'c']);
        for (name, arguments) in [("randInt", json!([5, 5])), ("randAlpha", json!([1_000_000])), ("now", json!([1]))] {
            assert!(call(0, name, arguments.as_array().unwrap()).is_err(), "{name}");
        }
    }
}
