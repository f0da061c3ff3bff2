//! Selectors, as Kubernetes parses them.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use crate::{Continue, FieldSelector, GroupResource, Key, LabelSelector, Stored};

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<Arc<str>, Arc<str>> {
    pairs.iter().map(|(name, value)| (Arc::from(*name), Arc::from(*value))).collect()
}

#[test]
fn label_selectors_select() {
    let object = labels(&[("app", "reviews"), ("version", "v2"), ("weight", "10"), ("empty", ""), ("in", "x")]);
    let cases = [
        ("", true),
        ("  ", true),
        ("app", true),
        ("!app", false),
        ("! app", false),
        ("!other", true),
        ("app=reviews", true),
        ("app == reviews", true),
        ("app!=reviews", false),
        ("other!=x", true),
        ("empty=", true),
        ("app!=", true),
        ("version in (v1, v2)", true),
        ("version in(v1,v3)", false),
        ("version notin (v1,v3)", true),
        ("other notin (v1)", true),
        ("other in (,v1)", false),
        ("empty in (a,)", true),
        ("in in (x)", true),
        ("in", true),
        ("weight>9,weight<11", true),
        ("weight>10", false),
        ("app>1", false),
        ("app=reviews,version=v1", false),
        ("app=reviews,version=v2,!x", true),
        ("example.com/x notin (in)", true),
    ];
    for (text, expected) in cases {
        let selector = LabelSelector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(selector.matches(&object), expected, "{text}");
        assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector), "{text}");
    }
}

#[test]
fn label_selector_errors_describe_the_problem() {
    let cases = [
        (",", "character 1: a label was expected, not \",\""),
        ("a,", "character 3: a label was expected, not the end"),
        ("a b", "character 3: an operator"),
        ("a=b c", "character 5: a comma or the end was expected, not \"c\""),
        ("a in b", "character 6: \"(\" was expected"),
        ("a in ()", "the set of values for a is empty"),
        ("a in (b", "was expected, not the end"),
        ("a in (b c)", "\",\" or \")\" was expected, not \"c\""),
        ("a=(b)", "a value was expected, not \"(\""),
        ("!a=b", "a comma or the end was expected, not \"=\""),
        ("a>b", "\"b\" is not a whole number"),
        ("-a=b", "\"-a\" is no label"),
        ("a/b/c=d", "is no label"),
        ("Upper.com/x", "what is before \"/\" must be a DNS name"),
        ("a=b_", "\"b_\" is no value for a"),
        ("ü", "\"ü\" is no label"),
    ];
    for (text, expected) in cases {
        let error = LabelSelector::parse(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let long = "a".repeat(64);
    assert!(LabelSelector::parse(&long).is_err());
    assert!(LabelSelector::equal("a", &long).is_err());
    assert!(LabelSelector::one_of("a", []).is_err());
    assert!(LabelSelector::parse(&"a,".repeat(10_000)).expect_err("too long").0.contains("at most"));
}

#[test]
fn field_selectors_select() {
    let key = Key::new(GroupResource::new("", "pods"), "default", "web");
    let value =
        json!({"metadata": {}, "spec": {"nodeName": "a,b=c\\", "hostNetwork": true}, "status": {"phase": "Running"}});
    let object = Stored::new(key, 7, value);
    let cases = [
        ("", true),
        ("metadata.name=web", true),
        ("metadata.name==web,metadata.namespace=default", true),
        ("metadata.namespace!=default", false),
        ("status.phase!=Failed", true),
        ("spec.hostNetwork=true", true),
        ("spec.absent=", true),
        ("spec.absent!=x", true),
        ("spec.nodeName=a\\,b\\=c\\\\", true),
        (",status.phase=Running,", true),
        ("status.phase=Failed", false),
    ];
    for (text, expected) in cases {
        let selector = FieldSelector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(selector.matches(&object), expected, "{text}");
        assert_eq!(FieldSelector::parse(&selector.to_string()), Ok(selector), "{text}");
    }
    assert_eq!(FieldSelector::equal("metadata.name", "web").exact("metadata.name"), Some("web"));
    assert_eq!(FieldSelector::parse("a!=b").expect("valid").exact("a"), None);
}

#[test]
fn field_selector_errors_describe_the_problem() {
    let cases = [
        ("a", "\"a\" has no operator"),
        ("=a", "does not begin with the path"),
        ("a=b=c", "\"=\" without a backslash"),
        ("a=b\\x", "a backslash may stand before"),
        ("a=b\\", "ends with a backslash"),
    ];
    for (text, expected) in cases {
        let error = FieldSelector::parse(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

proptest! {
    /// Parsed selectors survive formatting and parsing.
    #[test]
    fn any_text_is_parsed_or_rejected(text in "[ab/.=!,() <>\\\\]{0,24}|in|notin|\\PC{0,16}") {
        if let Ok(selector) = LabelSelector::parse(&text) {
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
        }
        if let Ok(selector) = FieldSelector::parse(&text) {
            prop_assert_eq!(FieldSelector::parse(&selector.to_string()), Ok(selector));
        }
    }

    /// Set requirements select exactly their values.
    #[test]
    fn sets_select_their_members(values in prop::collection::btree_set("[a-c]{1,2}", 1..4), probe in "[a-c]{1,2}") {
        let list = values.iter().cloned().collect::<Vec<_>>().join(",");
        let object = labels(&[("l", &probe)]);
        let selected = LabelSelector::parse(&format!("l in ({list})")).expect("valid").matches(&object);
        let others = LabelSelector::parse(&format!("l notin ({list})")).expect("valid").matches(&object);
        prop_assert_eq!(selected, values.contains(&probe));
        prop_assert_eq!(others, !selected);
    }

    #[test]
    fn field_values_survive_escaping(value in "[a,=\\\\ü]{0,12}") {
        let selector = FieldSelector::equal("spec.x", &value);
        prop_assert_eq!(FieldSelector::parse(&selector.to_string()), Ok(selector));
    }

    /// Tokens survive a round trip; other texts are rejected or valid tokens.
    #[test]
    fn continue_tokens_survive_a_round_trip(revision: u64, namespace in "[a-z]{0,8}", name in "[a-z.]{1,8}", noise in "\\PC{0,40}") {
        let token = Continue { revision, namespace: namespace.into(), name: name.into() };
        prop_assert_eq!(Continue::decode(&token.encode()), Ok(token));
        if let Ok(token) = Continue::decode(&noise) {
            prop_assert_eq!(token.encode(), noise);
        }
    }
}
