//! The faults of a link and their probabilities.

use std::time::Duration;

/// The faults of a link; none by default. Probabilities are in thousandths.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FaultPlan {
    /// Restricts the faults to requests whose `METHOD PATH` contains this text, such as `/services?`; empty for all.
    /// Delays and silence affect all requests.
    pub only: String,
    /// Requests that are answered with 429 and `Retry-After: 1`.
    pub busy: u32,
    /// Requests that are answered with 500.
    pub failing: u32,
    /// Requests that are answered with 403.
    pub denied: u32,
    /// Watches from a resource version that fail with `410 Gone`.
    pub expired: u32,
    /// Responses that are cut …
    pub cut: u32,
    /// … at a random byte before this one.
    pub cut_within: usize,
    /// The maximum delay of each piece of a response.
    pub delay: Duration,
    /// The maximum size of a piece, in bytes; 0 for no limit.
    pub crumb: usize,
    /// Whether no request is answered, while connections stay open.
    pub silent: bool,
    /// Whether all connections are refused.
    pub down: bool,
    /// Requests whose `METHOD PATH` contains both texts are held until they are released. Their senders receive no
    /// response.
    pub hold: Option<(String, String)>,
}

/// The statistics of a link.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Passage {
    /// Requests that were forwarded.
    pub carried: u64,
    /// Requests that the link answered itself.
    pub answered: u64,
    /// Responses that were cut.
    pub cut: u64,
    /// The `METHOD PATH` of each request that changes something.
    pub writes: Vec<String>,
    /// The status codes of the responses to held requests.
    pub late: Vec<u16>,
}

/// The handling of a request.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// The link sends this response.
    Answered(Vec<u8>),
    /// The server responds, up to this many bytes.
    Carried { cut: Option<usize> },
}

impl FaultPlan {
    pub(super) fn holds(&self, line: &str) -> bool {
        let both = |(one, other): &(String, String)| line.contains(one) && line.contains(other);
        self.hold.as_ref().is_some_and(both)
    }
}

impl Passage {
    pub(super) fn note(&mut self, fate: &Fate, line: &str) {
        if !line.starts_with("GET ") {
            self.writes.push(line.to_owned());
        }
        match fate {
            Fate::Answered(_) => self.answered += 1,
            Fate::Carried { .. } => self.carried += 1,
        }
    }
}

/// Random numbers from a seed (splitmix64).
#[derive(Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// A random number below `sides`, which is not zero.
    pub(super) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides.max(1)
    }

    fn happens(&mut self, share: u32) -> bool {
        self.roll(1000) < u64::from(share)
    }

    /// Chooses the handling of a request by its `METHOD PATH`.
    pub(super) fn fate(&mut self, faults: &FaultPlan, line: &str) -> Fate {
        if !line.contains(&faults.only) {
            return Fate::Carried { cut: None };
        }
        let goes_on = line.contains("watch=true") && !line.contains("sendInitialEvents");
        if self.happens(faults.busy) {
            return Fate::Answered(refusal(429, "this link has too much to do"));
        }
        if self.happens(faults.failing) {
            return Fate::Answered(refusal(500, "this link fails"));
        }
        if self.happens(faults.denied) {
            return Fate::Answered(refusal(403, "this link forbids it"));
        }
        if self.happens(faults.expired) && goes_on {
            return Fate::Answered(expired());
        }
        let cut = self.happens(faults.cut);
        let at = self.roll(faults.cut_within as u64);
        Fate::Carried { cut: cut.then_some(usize::try_from(at).unwrap_or(0)) }
    }
}

fn refusal(code: u16, message: &str) -> Vec<u8> {
    let body =
        format!(r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","code":{code},"message":"{message}"}}"#);
    answer(code, if code == 429 { "retry-after: 1\r\n" } else { "" }, &body)
}

/// The response of a server to an expired watch: status 200, and an error event.
fn expired() -> Vec<u8> {
    let status =
        r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"message":"too old resource version"}"#;
    answer(200, "", &format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n"))
}

fn answer(code: u16, fields: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {code} Fault\r\ncontent-type: application/json\r\n{fields}content-length: {length}\r\nconnection: close\r\n\r\n"
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_faults() {
        let faults =
            FaultPlan { busy: 100, failing: 100, expired: 500, cut: 500, cut_within: 1000, ..FaultPlan::default() };
        let fates = |seed| {
            let mut dice = Dice::new(seed);
            let fates: Vec<Fate> = (0..50).map(|_| dice.fate(&faults, "GET /pods?watch=true")).collect();
            fates
        };
        assert_eq!(fates(7), fates(7));
        assert_ne!(fates(7), fates(8));
        assert!(fates(7).iter().any(|fate| matches!(fate, Fate::Carried { cut: Some(_) })));
        let mut dice = Dice::new(7);
        let concerned = FaultPlan { only: "/services?".to_owned(), denied: 1000, ..FaultPlan::default() };
        assert_eq!(dice.fate(&concerned, "GET /pods?"), Fate::Carried { cut: None });
        assert!(matches!(dice.fate(&concerned, "GET /services?"), Fate::Answered(_)));
    }
}
