//! What goes wrong, and how often.

use std::time::Duration;

/// What goes wrong on a link; nothing by default. Shares are of a thousand.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FaultPlan {
    /// Concerns only requests whose `METHOD PATH` has this text, such as `/services?`; empty: all. Delays and silence are
    /// everybody's.
    pub only: String,
    /// How many requests are answered with 429, and asked to come back in a second.
    pub busy: u32,
    /// How many requests are answered with 500.
    pub failing: u32,
    /// How many requests are answered with 403.
    pub denied: u32,
    /// How many watches that go on from a version are told that it is too old.
    pub expired: u32,
    /// How many answers are cut …
    pub cut: u32,
    /// … at some byte before this one.
    pub cut_within: usize,
    /// How long each piece of an answer waits at most.
    pub delay: Duration,
    /// How large a piece is at most, in bytes; 0: as it comes.
    pub crumb: usize,
    /// Nothing is answered any more; connections stay.
    pub silent: bool,
    /// Nobody gets a connection.
    pub down: bool,
    /// Requests whose `METHOD PATH` has both texts are kept until they are released, and their senders told nothing.
    pub hold: Option<(String, String)>,
}

/// What happened on a link.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Passage {
    /// Requests that were passed on.
    pub carried: u64,
    /// Requests that were answered in the server's place.
    pub answered: u64,
    /// Answers that were cut.
    pub cut: u64,
    /// Requests that were to change something: `METHOD PATH` of each.
    pub writes: Vec<String>,
    /// What the server answered to requests that were held: codes of HTTP.
    pub late: Vec<u16>,
}

/// What becomes of a request.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// This is the answer.
    Answered(Vec<u8>),
    /// The server answers, up to so many bytes.
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

/// Numbers that follow from a seed (the generator is splitmix64).
#[derive(Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// A number below this one, which is not zero.
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

    /// What becomes of the request of this `METHOD PATH`.
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
        Fate::Carried {
            cut: cut.then_some(usize::try_from(at).unwrap_or(0)),
        }
    }
}

fn refusal(code: u16, message: &str) -> Vec<u8> {
    let body =
        format!(r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","code":{code},"message":"{message}"}}"#);
    answer(code, if code == 429 { "retry-after: 1\r\n" } else { "" }, &body)
}

/// As a server says it: the watch is granted, and its only event is that it cannot be.
fn expired() -> Vec<u8> {
    let status =
        r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"message":"too old resource version"}"#;
    answer(200, "", &format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n"))
}

fn answer(code: u16, fields: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {code} FaultPlan\r\ncontent-type: application/json\r\n{fields}content-length: {length}\r\nconnection: close\r\n\r\n"
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_brings_the_same_weather() {
        let faults = FaultPlan {
            busy: 100,
            failing: 100,
            expired: 500,
            cut: 500,
            cut_within: 1000,
            ..FaultPlan::default()
        };
        let fates = |seed| {
            let mut dice = Dice::new(seed);
            let fates: Vec<Fate> = (0..50).map(|_| dice.fate(&faults, "GET /pods?watch=true")).collect();
            fates
        };
        assert_eq!(fates(7), fates(7));
        assert_ne!(fates(7), fates(8));
        assert!(
            fates(7)
                .iter()
                .any(|fate| matches!(fate, Fate::Carried { cut: Some(_) }))
        );
        let mut dice = Dice::new(7);
        let concerned = FaultPlan {
            only: "/services?".to_owned(),
            denied: 1000,
            ..FaultPlan::default()
        };
        assert_eq!(dice.fate(&concerned, "GET /pods?"), Fate::Carried { cut: None });
        assert!(matches!(dice.fate(&concerned, "GET /services?"), Fate::Answered(_)));
    }
}
