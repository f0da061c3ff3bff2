//! Finds the resources that a NACK is about.
//!
//! Envoy's error is free text: `Error adding/updating listener(s) 0.0.0.0_80: …`, `… cluster(s) outbound|80||a.b: …,
//! outbound|81||a.b: …`, `Duplicate entry of domain x in route 80`. This module returns words that may be names; the
//! caller compares them with the names in the response.

/// The longest word that is considered, in bytes.
const WORD: usize = 1024;
/// Punctuation around names.
const AROUND: &[char] = &['\'', '"', '`', '(', ')', '<', '>', ',', ';', '.', '!', '?'];
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

#[cfg(test)]
mod tests {
    use super::*;

    fn found<'a>(text: &'a str, names: &[&str]) -> Vec<&'a str> {
        candidates(text).filter(|word| names.contains(word)).collect()
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
