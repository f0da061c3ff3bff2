//! Parses selectors and continue tokens from a query string. Nothing may panic, and they survive a round trip.

#![no_main]

use libfuzzer_sys::fuzz_target;
use store::{Continue, FieldSelector, LabelSelector};

fuzz_target!(|text: &str| {
    match LabelSelector::parse(text) {
        Ok(selector) => assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match FieldSelector::parse(text) {
        Ok(selector) => assert_eq!(FieldSelector::parse(&selector.to_string()), Ok(selector)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Ok(token) = Continue::decode(text) {
        assert_eq!(token.encode(), text);
    }
});
