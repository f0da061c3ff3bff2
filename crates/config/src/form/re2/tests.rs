//! Compares verdicts and sizes with those of Envoy.

use super::program_size;

/// Expressions with the sizes that Envoy 1.40 reports, or `refused`.
const FACTS: &str = include_str!("facts.txt");

#[test]
fn sizes_are_those_of_envoy() {
    let mut wrong = Vec::new();
    for line in FACTS.lines().filter(|line| !line.starts_with('#')) {
        let Some((fact, text)) = line.split_once(' ') else { panic!("not a fact: {line:?}") };
        let text: String = serde_json::from_str(text).expect("a JSON string");
        let found = match program_size(&text) {
            Ok(Some(size)) => size.to_string(),
            Ok(None) => "large".to_owned(),
            Err(_) => "refused".to_owned(),
        };
        if found != fact {
            wrong.push(format!("{text:?}: {found} instead of {fact}"));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
