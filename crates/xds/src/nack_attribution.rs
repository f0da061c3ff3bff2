//! Finds the resources that a NACK is about.
//!
//! Envoy's error is free text: `Error adding/updating listener(s) 0.0.0.0_80: …`, `… cluster(s) outbound|80||a.b: …,
//! outbound|81||a.b: …`, `Duplicate entry of domain x in route 80`. This module returns words that may be names; the
//! caller compares them with the names in the response.

use bytes::Bytes;
use memchr::memmem::Finder;

/// The longest word that is considered, in bytes.
const WORD: usize = 1024;
/// Punctuation around names.
const AROUND: &[char] = &['\'', '"', '`', '(', ')', '<', '>', ',', ';', '.', '!', '?'];
/// The number of words of an error that are searched for.
const WORDS: usize = 32;
/// The bytes that are searched for these words, all together, since no other client is served meanwhile. A long response is searched
/// for fewer words.
const SEARCHED: usize = 64 << 20;
/// A number is considered a name only after one of these words.
const BEFORE_NUMBERS: &[&str] =
    &["route", "routes", "table", "config", "configuration", "resource", "resources", "for", "expecting"];

/// Words that may be names of resources.
pub(crate) fn candidates(text: &str) -> impl Iterator<Item = &str> {
    let mut before = "";
    let words = text.split_whitespace().filter(|word| word.len() <= WORD);
    words.flat_map(move |word| {
        let bare = word.trim_matches(AROUND);
        let quoted = word.starts_with(['\'', '"', '`']);
        let named = quoted || BEFORE_NUMBERS.contains(&before.trim_end_matches(':'));
        before = bare;
        // In these errors a colon follows a name. It may also be part of one.
        let cut = bare.strip_suffix(':').map(|cut| cut.trim_end_matches(AROUND));
        let plain = move |word: &&str| named || !word.bytes().all(|b| b.is_ascii_digit());
        [Some(bare), cut].into_iter().flatten().filter(plain)
    })
}

/// Shorter words of an error do not identify anything.
const TELLING: usize = 4;

/// The indices of the bodies that contain the longest word of an error that is in some of them and not in all: an expression,
/// the name of a header or a filter.
pub(crate) fn in_bodies(text: &str, bodies: &[&Bytes]) -> Vec<usize> {
    let split = |c: char| c.is_whitespace() || AROUND.contains(&c) && !matches!(c, '(' | ')' | '.' | '?');
    let bare = text.split(split).filter(|word| word.len() <= WORD);
    let trimmed = text.split_whitespace().map(|word| word.trim_matches(AROUND).trim_end_matches(':'));
    let mut words: Vec<&str> = bare.chain(trimmed).filter(|word| word.len() >= TELLING).collect();
    words.sort_by_key(|word| (std::cmp::Reverse(word.len()), *word));
    words.dedup();
    let holders = |word: &&str| -> Vec<usize> {
        let finder = Finder::new(word.as_bytes());
        bodies.iter().enumerate().filter(|(_, body)| finder.find(body).is_some()).map(|(at, _)| at).collect()
    };
    let bytes = bodies.iter().map(|body| body.len()).sum::<usize>().max(1);
    let mut found = words.iter().take(WORDS.min(SEARCHED / bytes)).map(holders);
    found.find(|holders| !holders.is_empty() && holders.len() < bodies.len()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found<'a>(text: &'a str, names: &[&str]) -> Vec<&'a str> {
        candidates(text).filter(|word| names.contains(word)).collect()
    }

    #[test]
    fn the_body_that_an_error_quotes_is_found() {
        let bodies: Vec<Bytes> =
            [r"host a /api/.* exact", r"host b /a(b|c){1,500}/x exact", "host c exact"].map(Bytes::from).into();
        let bodies: Vec<&Bytes> = bodies.iter().collect();
        let found = |text: &str| in_bodies(text, &bodies);
        assert_eq!(found(r"regex '/a(b|c){1,500}/x' RE2 program size of 1300 > max program size of 100"), [1]);
        assert_eq!(found("Invalid host exact"), [0; 0], "all have it");
        assert_eq!(found("no such filter"), [0; 0]);
        assert_eq!(in_bodies("exact", &bodies[..1]), [0; 0]);
    }

    #[test]
    fn names_are_found_in_errors_of_envoy() {
        let names = ["0.0.0.0_80", "[::]_80", "outbound|80||a.b", "outbound|81|v1|a.b", "80", "a"];
        let listeners = "Error adding/updating listener(s) 0.0.0.0_80: cannot bind '0.0.0.0:80': in use\n[::]_80: too";
        assert_eq!(found(listeners, &names), ["0.0.0.0_80", "[::]_80"]);
        let clusters = "Error adding/updating cluster(s) outbound|80||a.b: bad, outbound|81|v1|a.b: worse";
        assert_eq!(found(clusters, &names), ["outbound|80||a.b", "outbound|81|v1|a.b"]);
        let routes = "Only unique values for domains are permitted. Duplicate entry of domain x in route 80";
        assert_eq!(found(routes, &names), ["80"]);
        assert_eq!(found("malformed IP address: 80 is no port", &names), [""; 0]);
        assert_eq!(found("no such route \"80\"", &names), ["80"]);
        assert_eq!(found("", &names), [""; 0]);
    }
}
