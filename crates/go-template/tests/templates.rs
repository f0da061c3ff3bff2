//! The language by examples, and robustness against random templates.

#![allow(clippy::unwrap_used)]

use go_template::Templates;
use proptest::prelude::*;
use serde_json::{Value, json};

fn filled(text: &str, value: &Value) -> Result<String, String> {
    let mut templates = Templates::default();
    templates.add("it", text).map_err(|error| error.to_string())?;
    templates.render("it", value, &()).map_err(|error| error.to_string())
}

#[test]
fn output_equals_that_of_go() {
    let value =
        json!({"name": "a", "count": 2, "list": ["x", "y"], "map": {"k": "v", "b": 1}, "no": false, "deep": {"er": 1}});
    for (text, expected) in [
        ("{{ .name }}-{{ .count }}", "a-2"),
        ("a  {{- /* nothing */ -}}  b", "ab"),
        ("a {{- .name -}} b", "aab"),
        ("{{ if .no }}1{{ else if eq .name \"a\" }}2{{ else }}3{{ end }}", "2"),
        ("{{ range $i, $x := .list }}{{ $i }}{{ $x }},{{ end }}", "0x,1y,"),
        ("{{ range $k, $v := .map }}{{ $k }}={{ $v }};{{ end }}", "b=1;k=v;"),
        ("{{ range .none }}x{{ else }}empty{{ end }}", "empty"),
        ("{{ with .deep }}{{ .er }}{{ $.name }}{{ end }}", "1a"),
        ("{{ with .none }}x{{ else }}{{ .name }}{{ end }}", "a"),
        ("{{ $x := 1 }}{{ if true }}{{ $x = 2 }}{{ end }}{{ $x }}", "2"),
        ("{{ define \"t\" }}<{{ .}}>{{ end }}{{ include \"t\" .name | upper }}{{ template \"t\" 1 }}", "<A><1>"),
        ("{{ (index .list 1) }}{{ (dict \"a\" .deep).a.er }}", "y1"),
        ("{{ .missing }}|{{ .missing | default \"d\" }}|{{ or .no .name }}|{{ and .name .no }}", "|d|a|false"),
        ("{{ printf \"%s/%d %q\" .name .count \"q\" }}", "a/2 \"q\""),
        ("{{ \"a\\nb\" | nindent 2 }}", "\n  a\n  b"),
        ("{{ quote 1 \"b\" nil }} {{ squote .name }}", "\"1\" \"b\" 'a'"),
        ("{{ merge (dict \"a\" 1) (dict \"a\" 2 \"b\" 3) | toJson }}", "{\"a\":1,\"b\":3}"),
        ("{{ ternary 1 2 .no }}{{ not .no }}{{ len .list }}", "2true2"),
        ("{{ `raw }} text` }}{{ trunc 2 \"abc\" }}{{ trimSuffix \"-\" \"x-\" }}", "raw }} textabx"),
    ] {
        assert_eq!(filled(text, &value).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn errors_have_their_line() {
    for (text, expected) in [
        ("a\n{{ if }}", "it:2: missing value"),
        ("{{ if .a }}", "it:1: `if` without `end`"),
        ("\n\n{{ nosuch 1 }}", "it:3: unknown function `nosuch`"),
        ("{{ .a.b }}", "it:1: cannot read `.b` of a missing value"),
        ("{{ $x }}", "it:1: unknown variable `$x`"),
        ("{{ end }}", "it:1: `end` without a block"),
        ("{{ required \"give x\" .x }}", "it:1: required: give x"),
        ("{{ .a", "it:1: an action is not closed by `}}`"),
        ("{{ eq 1 \"1\" }}", "it:1: eq: a int64 cannot be compared with a string"),
        (
            "{{ define \"r\" }}{{ include \"r\" . }}{{ end }}{{ include \"r\" . }}",
            "it:1: more than 100 nested templates",
        ),
    ] {
        assert_eq!(filled(text, &json!({})).as_ref().map_err(String::as_str), Err(expected), "{text}");
    }
}

#[test]
fn the_output_size_is_limited() {
    for grow in ["print $x $x", "list $x $x", "dict \"a\" $x \"b\" $x"] {
        let doubling = format!("{{{{ $x := \"0123456789\" }}}}{}", format!("{{{{ $x = {grow} }}}}").repeat(90));
        let error = filled(&doubling, &json!({})).unwrap_err();
        assert!(error.contains("too large"), "{error}");
    }
}

proptest! {
    #[test]
    fn rendering_never_panics(text in "(\\{\\{-? ?|\\}\\}| -\\}\\}|if|else|end|range|with|define \"a\"|include \"a\" \\.|\\$x|:=|=|\\.a|\\.|\\(|\\)|\\||,|\"|`|[0-9]|-| |\\PC|\n|eq|index|printf \"%s\"|nindent){0,30}") {
        let _ = filled(&text, &json!({"a": {"a": [1, "x"]}}));
    }
}
