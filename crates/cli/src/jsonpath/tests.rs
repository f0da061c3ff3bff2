//! Templates and what they make of one list of objects.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn list() -> Json {
    json!({
        "kind": "List",
        "items": [
            {"metadata": {"name": "a", "labels": {"app.kubernetes.io/name": "web"}}, "spec": {"weight": 3, "hosts": ["x", "y"]}},
            {"metadata": {"name": "b"}, "spec": {"weight": 10, "on": true}},
            {"metadata": {"name": "c"}, "spec": {"weight": 2.5}},
        ]
    })
}

fn made(template: &str) -> String {
    Template::parse(template)
        .and_then(|template| template.render(&list()))
        .unwrap_or_else(|error| format!("error: {error}"))
}

#[test]
fn templates_print_what_kubectl_prints() {
    let cases = [
        ("{.kind}", "List"),
        (".kind", "List"),
        ("{$.kind}", "List"),
        ("kind is {.kind}!", "kind is List!"),
        ("{.items[*].metadata.name}", "a b c"),
        ("{.items[0].metadata.name}{'-'}{.items[-1].metadata.name}", "a-c"),
        ("{.items[0,2].metadata.name}", "a c"),
        ("{.items[1:].metadata.name}", "b c"),
        ("{.items[:-1].metadata.name}", "a b"),
        ("{.items[::2].metadata.name}", "a c"),
        ("{.items[5:9].metadata.name}", ""),
        ("{..name}", "a b c"),
        ("{.items[*]['metadata','spec'].name}", "a b c"),
        (r"{.items[0].metadata.labels.app\.kubernetes\.io/name}", "web"),
        ("{.items[0].metadata.labels['app.kubernetes.io/name']}", "web"),
        ("{.items[?(@.metadata.name==\"b\")].spec.weight}", "10"),
        ("{.items[?(@.metadata.name != 'b')].metadata.name}", "a c"),
        ("{.items[?(@.spec.weight>2.5)].metadata.name}", "a b"),
        ("{.items[?(@.spec.weight <= 3)].metadata.name}", "a c"),
        ("{.items[?(@.spec.on)].metadata.name}", "b"),
        ("{.items[?(@.spec.on==true)].metadata.name}", "b"),
        ("{.items[?(@.spec.weight==\"3\")].metadata.name}", ""),
        ("{.items[0].spec.hosts}", "[\"x\",\"y\"]"),
        ("{.items[0].spec.*}", "[\"x\",\"y\"] 3"),
        ("{.nothing.at.all}", ""),
        (
            "{range .items[*]}{.metadata.name}={.spec.weight}{\"\\n\"}{end}",
            "a=3\nb=10\nc=2.5\n",
        ),
        ("{range .items[*]}{range .spec.hosts[*]}{@}.{end}{end}", "x.y."),
        ("{range .items[0:1]}{$.kind}{end}", "List"),
        ("", ""),
    ];
    for (template, expected) in cases {
        assert_eq!(made(template), expected, "{template}");
    }
}

#[test]
fn mistakes_are_told_with_their_place() {
    let cases = [
        ("{.items[7].metadata.name}", "there is no item 7"),
        ("{.items[0", "not closed"),
        ("{.items[}", "an index, a slice"),
        ("{range .items[*]}{.x}", "no `{end}`"),
        ("{end}", "without a `range`"),
        ("{.a.'}", "character 5"),
        ("{.items[?(@.a=1)]}", "a comparison"),
        ("{.items[::0]}", "at least 1"),
        ("{\"open}", "quotes are not closed"),
        ("{.a", "a path"),
        ("{.items[99999999999999999999]}", "no whole number"),
    ];
    for (template, expected) in cases {
        let said = made(template);
        assert!(
            said.starts_with("error: ") && said.contains(expected),
            "{template}: {said}"
        );
    }
    assert!(made(&"{range .a}".repeat(40)).contains("inside each other"));
    assert!(made(&" ".repeat(MAX_TEMPLATE + 1)).contains("longer than"));
}

#[test]
fn paths_alone_take_three_spellings() {
    for text in ["{.spec.weight}", ".spec.weight", "spec.weight"] {
        let path = Path::parse(text).unwrap();
        assert_eq!(path.text(&list()["items"][0]).unwrap().as_deref(), Some("3"), "{text}");
    }
    assert!(Path::parse("{.a}{.b}").is_err());
    assert!(Path::parse("{range .a}{end}").is_err());
    assert_eq!(Path::parse("spec.none").unwrap().text(&list()).unwrap(), None);
}

/// Values of a few fields and levels.
fn values() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i32>().prop_map(Json::from),
        "[a-c]{0,2}".prop_map(Json::from),
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::btree_map("[a-c]", inner, 0..4).prop_map(|map| Json::Object(map.into_iter().collect())),
        ]
    })
}

/// How many values are in a value, itself included.
fn count(value: &Json) -> usize {
    1 + children_of(value).map(count).sum::<usize>()
}

fn children_of(value: &Json) -> Box<dyn Iterator<Item = &Json> + '_> {
    match value {
        Json::Array(items) => Box::new(items.iter()),
        Json::Object(fields) => Box::new(fields.values()),
        _ => Box::new(std::iter::empty()),
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in r#"[-a-c.\[\]{}()*?@$:,'"\\ =<>0-9é]{0,40}"#, value in values()) {
        if let Ok(template) = Template::parse(&text) {
            let _ = template.render(&value);
        }
        let _ = Path::parse(&text);
    }

    #[test]
    fn descending_meets_every_value_once(value in values()) {
        let all = Path(vec![Step::Descend]).find(&value).unwrap();
        prop_assert_eq!(all.len(), count(&value));
    }

    #[test]
    fn a_filter_and_its_opposite_part_a_list(value in values(), limit in any::<i32>()) {
        let with = |op: &str| Path::parse(&format!(".[?(@ {op} {limit})]")).unwrap();
        let children = children_of(&value).count();
        let found = with("==").find(&value).unwrap().len() + with("!=").find(&value).unwrap().len();
        prop_assert_eq!(found, children);
    }
}
