//! Expressions that CEL accepts and rejects.

use super::problem;
use proptest::prelude::*;

#[test]
fn expressions() {
    for good in [
        "response.code >= 400",
        "response.code >= 400 && (xds.cluster_name == 'BlackHoleCluster' || xds.cluster_name == \"x\")",
        "!has(request.auth.claims.a) ? -1 : 2u",
        "a.b(c, d)[0].e in [1, 2.5, 0x1F, .5, 1e-3,]",
        "{'a': 1, \"b\": [true, null]}.map(x, x + 1).size() % 2 == 0 // comment",
        "google.type.Money{units: 1, nanos: 2}",
        "r'\\d+' + b\"\\x00\" + '''a\nb''' + '\\u00e9'",
        "a ? b : c ? d : e",
        ".a.`b-c`",
        "'if' + a.for",
        "- - 1",
    ] {
        assert_eq!(problem(good), None, "{good}");
    }
    for bad in [
        "",
        "a ==",
        "a = b",
        "(a",
        "a)",
        "[1, ",
        "'a",
        "a..b",
        "if",
        "a == 'x' && for",
        "a.1",
        "1a",
        "f(a,)",
        "a ? b",
        "'\\q'",
        "{'a'}",
        "a && && b",
        "a b",
        "\"\n\"",
        "#",
        "'\\x1'",
    ] {
        assert!(problem(bad).is_some(), "{bad}");
    }
}

#[test]
fn deep_expressions_do_not_overflow_the_stack() {
    for chain in ["(", "[", "!", "- ", "a.", "a[", "a ? b : ", "1 + ", "a && ", "a || ", "a(", "{1: "] {
        for count in [50, 190, 100_000] {
            problem(&format!("{}a", chain.repeat(count)));
        }
    }
    assert!(problem(&format!("{}1{}", "(".repeat(190), ")".repeat(190))).is_some());
    assert_eq!(problem(&"a + ".repeat(201)).as_deref(), Some("more than 200 operators"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn any_text_is_answered(text in "[-a-z0-9.(){}\\[\\]'\"`\\\\?:!&|=<>,/*%+ \n\u{e9}]{0,60}") {
        problem(&text);
    }
}
