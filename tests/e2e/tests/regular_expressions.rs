//! Regular expressions are judged as Envoy judges them: which it rejects, and the size of the program that it compiles.

use std::collections::BTreeMap;
use std::time::Duration;

use e2e::envoy_binary;
use serde_json::{Value, json};
use test_harness::run::{Envoy, Result, wait_for};

/// The number of random expressions.
const EXPRESSIONS: usize = 3000;
/// The number of expressions that one Envoy gets.
const AT_ONCE: usize = 500;
const PATIENCE: Duration = Duration::from_secs(120);

/// Pieces of expressions, also of invalid ones.
const PIECES: &[&str] = &[
    "a",
    "b",
    "k",
    "S",
    "0",
    "-",
    "_",
    "/",
    "{",
    "}",
    "]",
    ",",
    ":",
    "\u{e9}",
    " ",
    "abc",
    "foo",
    "bar",
    ".",
    ".*",
    "^",
    "$",
    "[a-z]",
    "[^/]",
    "[a-z0-9-]",
    "[[:alpha:]]",
    "[\\w-.]",
    "[\\d-z]",
    "[^a-f\\s]",
    "[a&&b]",
    "[]a]",
    "[Kk]",
    "\\d",
    "\\w",
    "\\S",
    "\\.",
    "\\x41",
    "\\x{e9}",
    "\\101",
    "\\b",
    "\\B",
    "\\A",
    "\\z",
    "\\C",
    "\\<",
    "\\pL",
    "\\p{Lu}",
    "\\p{^Greek}",
    "\\P{Latin}",
    "\\Qa.b\\E",
    "(?i)",
    "(?s)",
    "(?-i)",
    "(?U)",
    "(?m)",
];
const REPETITIONS: &[&str] =
    &["*", "+", "?", "*?", "{2}", "{1,3}", "{0,2}?", "{3,}", "{0}", "{,3}", "{1,64}", "{01}", "{2"];
const GROUPS: &[&str] = &["(", "(?:", "(?i:", "(?s:", "(?P<n>", "(?<m>", "(?-i:"];
const WRONG: &[&str] = &[
    "\\1",
    "\\u0041",
    "[a--b]",
    "[[:foo:]]",
    "\\p{IsGreek}",
    "(?=a)",
    "(?!a)",
    "\\8",
    "\\x{100}",
    "\\Z",
    "**",
    "x{1001}",
    "x{2,1}",
    "[z-a]",
    "(?z)",
    "(?P=n)",
    "(",
    "[",
    ")",
    "\\",
    "(?i-)",
    "{2}{3}",
    "[\\",
    "[a-\\d]",
    "(?P<n-m>x)",
    "\\E",
];

/// A generator of numbers with a fixed start, so that each run has the same expressions.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    fn one<'t>(&mut self, texts: &[&'t str]) -> &'t str {
        texts[self.below(texts.len())]
    }

    fn expression(&mut self, depth: usize) -> String {
        let choice = if depth == 0 { 0 } else { self.below(10) };
        match choice {
            0..=2 => self.one(PIECES).to_owned(),
            3..=5 => (0..=self.below(3)).map(|_| self.expression(depth - 1)).collect(),
            6 | 7 => {
                let inner = self.expression(depth - 1);
                let group = if self.below(3) == 0 { inner } else { format!("{}{inner})", self.one(GROUPS)) };
                group + self.one(REPETITIONS)
            }
            _ => {
                let alternatives: Vec<String> = (0..=self.below(4)).map(|_| self.expression(depth - 1)).collect();
                format!("{}{})", self.one(GROUPS), alternatives.join("|"))
            }
        }
    }

    fn any(&mut self) -> String {
        let depth = 1 + self.below(5);
        let mut text = self.expression(depth);
        if self.below(8) == 0 {
            let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            let at = places[self.below(places.len())];
            text.insert_str(at, self.one(WRONG));
        }
        text
    }
}

fn listener(index: usize, regex: &str) -> Value {
    let route = json!({"match": {"safe_regex": {"regex": regex}}, "direct_response": {"status": 200}});
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "s",
        "route_config": {"virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [route]}]},
        "http_filters": [{"name": "r", "typed_config":
            {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
    });
    json!({
        "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
        "name": format!("judged-{index}-"),
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "filter_chains": [{"filters": [{"name": "h", "typed_config": manager}]}],
    })
}

/// Envoy's message about each expression. With a limit of 0 it rejects all of them, those that compile with their size.
async fn envoys_messages(expressions: &[String]) -> Result<BTreeMap<usize, String>> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("listeners.json");
    let listeners: Vec<Value> = expressions.iter().enumerate().map(|(index, regex)| listener(index, regex)).collect();
    std::fs::write(&file, json!({"version_info": "1", "resources": listeners}).to_string())?;
    let bootstrap = json!({
        "node": {"id": "judge", "cluster": "judge"},
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
        "dynamic_resources": {"lds_config": {"path_config_source": {"path": file}, "resource_api_version": "V3"}},
        "layered_runtime": {"layers": [{"name": "s", "static_layer": {"re2.max_program_size.error_level": 0}}]},
    });
    let envoy = Envoy::start_with(envoy_binary(), &bootstrap).await?;
    let answered = || async {
        let log = envoy.log().ok()?;
        let (_, messages) = log.split_once("update rejected:")?;
        let mut found = BTreeMap::new();
        for line in messages.lines() {
            let Some((_, rest)) = line.split_once("judged-") else { continue };
            let Some((index, message)) = rest.split_once("-: ") else { continue };
            found.insert(index.parse().ok()?, message.to_owned());
        }
        (found.len() == expressions.len()).then_some(found)
    };
    wait_for("a message about each expression", PATIENCE, answered).await
}

fn size(message: &str) -> Option<u32> {
    message.split_once("program size of ")?.1.split(' ').next()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_expressions_are_judged_as_by_envoy() -> Result<()> {
    let mut random = Random(15);
    let mut expressions: Vec<String> =
        (0..EXPRESSIONS).map(|_| random.any()).filter(|text| text.len() <= 300).collect();
    expressions.sort();
    expressions.dedup();
    let (mut wrong, mut accepted) = (Vec::new(), 0);
    for part in expressions.chunks(AT_ONCE) {
        for (index, message) in envoys_messages(part).await? {
            let (envoys, ours) = (size(&message), config::regex_program_size(&part[index]));
            accepted += usize::from(envoys.is_some());
            if envoys != ours {
                wrong.push(format!("{:?}: {ours:?}, but Envoy: {message}", part[index]));
            }
        }
    }
    assert!(accepted > 1000 && expressions.len() - accepted > 200, "{accepted} of {} compile", expressions.len());
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), expressions.len(), wrong.join("\n"));
    Ok(())
}
