//! Functions of Helm's library by examples. The results are Helm's.

#![allow(clippy::unwrap_used)]

use go_template::Templates;
use proptest::prelude::*;
use serde_json::{Value, json};

fn filled(text: &str) -> Result<String, String> {
    let mut templates = Templates::default();
    templates.add("it", text).map_err(|error| error.to_string())?;
    templates.render("it", &json!({}), &()).map_err(|error| error.to_string())
}

#[test]
fn results_equal_those_of_helm() {
    // Each line is a template, and after `=>` its output as a JSON text.
    let mut wrong = Vec::new();
    for line in include_str!("library.txt").lines() {
        let (text, expected) = line.rsplit_once(" => ").unwrap();
        let expected: Value = serde_json::from_str(expected).unwrap();
        let found = filled(text);
        if found.as_deref() != Ok(expected.as_str().unwrap()) {
            wrong.push(format!("{text}\n  expected {expected}\n  found {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn invalid_arguments_are_named() {
    for (text, part) in [
        ("{{ date \"2006\" \"soon\" }}", "soon is no date"),
        ("{{ dateInZone \"15\" 0 \"Europe/Berlin\" }}", "only UTC is"),
        ("{{ dateModify \"1 day\" 0 }}", "is no duration"),
        ("{{ toDate \"2006-01-02\" \"2024-13-01\" }}", "has not the form"),
        ("{{ semver \"one\" }}", "is not a version"),
        ("{{ semverCompare \"!1\" \"1\" }}", "is not an operator"),
        ("{{ b32dec \"1\" }}", "not Base32"),
    ] {
        let error = filled(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

proptest! {
    #[test]
    fn no_argument_causes_a_panic(
        name in prop::sample::select(vec![
            "date", "toDate", "dateModify", "duration", "durationRound", "semver", "semverCompare", "urlParse", "urlJoin", "base",
            "clean", "ext", "b32enc", "b32dec", "wrap", "wrapWith", "abbrevboth", "seq", "chunk", "divf", "js", "initials", "toDecimal",
        ]),
        arguments in prop::collection::vec("(-?[0-9]{1,19}|[a-z0-9.:/@#?v^~<>=*| é-]{0,12})", 1..4),
    ) {
        let arguments: Vec<String> = arguments.iter().map(|text| text.parse::<i64>().map_or_else(|_| format!("{text:?}"), |number| number.to_string())).collect();
        let _ = filled(&format!("{{{{ {name} {} }}}}", arguments.join(" ")));
    }
}
