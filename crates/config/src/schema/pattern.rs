//! Patterns of texts.

use std::cell::RefCell;
use std::collections::HashMap;

use regex::Regex;

/// Whether a text matches a pattern of a schema. Each thread compiles a pattern once.
pub fn matches(pattern: &'static str, text: &str) -> bool {
    thread_local! {
        static COMPILED: RefCell<HashMap<&'static str, Option<Regex>>> = RefCell::default();
    }
    COMPILED.with_borrow_mut(|compiled| {
        let regex = compiled.entry(pattern).or_insert_with(|| Regex::new(pattern).ok());
        // A test checks that all patterns compile.
        regex.as_ref().is_none_or(|regex| regex.is_match(text))
    })
}
