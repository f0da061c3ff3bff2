//! Replaces the parts of outputs that differ from run to run.

use std::sync::LazyLock;

use regex::Regex;

/// The replacements, in this order.
const CHANGING: &[(&str, &str)] = &[
    ("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
    (r#"(resourceVersion"?: ?|Resource Version: +)"?\d+"?"#, "$1<rv>"),
    (r"(current: )\d+", "$1<rv>"),
    // A column of ages is as wide as its widest value, which moves the columns after it.
    (r"(?m)\s{2,}(\d+s|\d+m\d*s?)(\s+|$)", "   <age>   "),
    (r"(Created:|CreationTimestamp:|Creation Timestamp:|Deletion Timestamp:|Renew Time:|Time:)(\s+)\S.*", "$1$2<time>"),
    (r"(127\.0\.0\.1|localhost):\d{4,5}", "<address>"),
    (r"/tmp/[A-Za-z.]+[-A-Za-z0-9]*", "<temporary>"),
    // Newer programs print the namespace: `"a" deleted from shop namespace`.
    (r#"(" )(force )?deleted from \S+ namespace"#, "$1${2}deleted"),
];

/// Occasional log lines of the client's libraries.
const LOGGED: &str = r"^[IWE]\d{4} \d\d:\d\d:\d\d\.\d+ ";

/// The text without what differs from run to run, without spaces at the ends of lines, and without empty lines, which
/// separate steps.
pub(super) fn settled(text: &str) -> String {
    static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        let compiled = |(pattern, with): &(&str, &'static str)| Some((Regex::new(pattern).ok()?, *with));
        CHANGING.iter().filter_map(compiled).collect()
    });
    static LOG: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(LOGGED).ok());
    let is_log = |line: &str| LOG.as_ref().is_some_and(|log| log.is_match(line));
    let mut out = String::new();
    for line in text.lines().filter(|line| !line.trim_end().is_empty() && !is_log(line)) {
        let mut line = line.to_owned();
        for (pattern, with) in PATTERNS.iter() {
            line = pattern.replace_all(&line, *with).into_owned();
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_is_valid() {
        for (pattern, _) in CHANGING {
            Regex::new(pattern).unwrap();
        }
        Regex::new(LOGGED).unwrap();
    }

    #[test]
    fn variable_parts_are_replaced() {
        let text =
            "a   5s   x\n\nuid: 0e6f0bd2-1c2b-4b56-8f1c-5a5b6e8d2a10\nresourceVersion: \"12\"\n2026-01-02T03:04:05Z\n";
        assert_eq!(settled(text), "a   <age>   x\nuid: <uid>\nresourceVersion: <rv>\n<time>\n");
        assert_eq!(settled("a\nI1121 16:29:48.194956   24506 reflector.go:664] \"x\"\nb"), "a\nb\n");
        assert_eq!(settled("pod \"a\" deleted from shop namespace"), "pod \"a\" deleted\n");
        assert_eq!(settled("{\"resourceVersion\":\"7\"}"), "{\"resourceVersion\":<rv>}\n");
    }
}
