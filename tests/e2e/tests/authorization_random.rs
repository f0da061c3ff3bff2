//! Random policies against a real Envoy: it decides as the documentation says, adding a `DENY` policy never allows more,
//! and adding an `ALLOW` policy never denies what another one permits.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use e2e::guarded::{Ask, Guarded, policy};
use test_harness::run::Result;

/// The number of random meshes.
const ROUNDS: u64 = 25;

const PATHS: [&str; 6] = ["/a", "/a/b", "/a/b/c", "/b", "/b/a", "/c.html"];
const METHODS: [&str; 3] = ["GET", "POST", "DELETE"];
const USERS: [Option<&str>; 3] = [None, Some("ann"), Some("bob")];
const PATTERNS: [&str; 9] = ["/a", "/a*", "*/b", "/b/*", "*.html", "/a/{*}", "/a/{**}", "/{*}/a", "*"];

/// A small generator of numbers, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit
    }

    fn some<'a>(&mut self, of: &[&'a str]) -> Vec<&'a str> {
        let count = self.below(3);
        (0..count).map(|_| of[self.below(of.len())]).collect()
    }
}

#[derive(Clone, Debug)]
struct Request {
    method: &'static str,
    path: &'static str,
    user: Option<&'static str>,
}

fn requests() -> Vec<Request> {
    let mut all = Vec::new();
    for method in METHODS {
        for path in PATHS {
            all.extend(USERS.map(|user| Request { method, path, user }));
        }
    }
    all
}

/// A rule with conditions, each a list of accepted and of refused values.
#[derive(Clone, Debug)]
struct Rule {
    paths: [Vec<&'static str>; 2],
    methods: [Vec<&'static str>; 2],
    users: [Vec<&'static str>; 2],
}

#[derive(Clone, Debug)]
struct Policy {
    deny: bool,
    rules: Vec<Rule>,
}

impl Rule {
    fn random(random: &mut Random) -> Rule {
        let mut lists =
            |of: &[&'static str]| [random.some(of), if random.below(3) == 0 { random.some(of) } else { Vec::new() }];
        Rule { paths: lists(&PATTERNS), methods: lists(&METHODS), users: lists(&["ann", "a*", "*", "*b"]) }
    }

    fn text(&self) -> String {
        let list = |name: &str, values: &[&str]| match values {
            [] => String::new(),
            values => format!("{name}: [{}],", values.iter().map(|v| format!("'{v}'")).collect::<Vec<_>>().join(",")),
        };
        let operation = [
            list("paths", &self.paths[0]),
            list("notPaths", &self.paths[1]),
            list("methods", &self.methods[0]),
            list("notMethods", &self.methods[1]),
        ];
        let operation = operation.concat();
        let users = [list("values", &self.users[0]), list("notValues", &self.users[1])].concat();
        let mut parts = Vec::new();
        if !operation.is_empty() {
            parts.push(format!("to: [{{ operation: {{ {operation} }} }}]"));
        }
        if !users.is_empty() {
            parts.push(format!("when: [{{ key: 'request.headers[x-user]', {users} }}]"));
        }
        format!("{{ {} }}", parts.join(", "))
    }

    fn matches(&self, request: &Request) -> bool {
        let holds = |[values, not_values]: &[Vec<&'static str>; 2], is: &dyn Fn(&str) -> bool| {
            (values.is_empty() || values.iter().any(|value| is(value))) && !not_values.iter().any(|value| is(value))
        };
        holds(&self.paths, &|pattern| path_matches(pattern, request.path))
            && holds(&self.methods, &|method| method == request.method)
            && holds(&self.users, &|pattern| request.user.is_some_and(|user| text_matches(pattern, user)))
    }
}

impl Policy {
    fn random(random: &mut Random, deny: bool) -> Policy {
        // A DENY policy needs a rule.
        let count = random.below(3) + usize::from(deny);
        Policy { deny, rules: (0..count).map(|_| Rule::random(random)).collect() }
    }

    fn text(&self, name: &str) -> String {
        let rules: Vec<String> = self.rules.iter().map(Rule::text).collect();
        let action = if self.deny { "DENY" } else { "ALLOW" };
        let rules = if rules.is_empty() { String::new() } else { format!(", rules: [{}]", rules.join(", ")) };
        policy(name, &format!("action: {action}{rules}"))
    }

    fn matches(&self, request: &Request) -> bool {
        self.rules.iter().any(|rule| rule.matches(request))
    }
}

fn text_matches(pattern: &str, text: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        _ if pattern == "*" => !text.is_empty(),
        (Some(suffix), _) => text.ends_with(suffix),
        (_, Some(prefix)) => text.starts_with(prefix),
        _ => pattern == text,
    }
}

fn path_matches(pattern: &str, path: &str) -> bool {
    if !pattern.contains('{') {
        return text_matches(pattern, path);
    }
    let mut segments = path[1..].split('/').peekable();
    for part in pattern[1..].split('/') {
        match part {
            "{**}" => return segments.peek().is_some(),
            "{*}" if segments.next().is_some_and(|segment| !segment.is_empty()) => {}
            literal if literal != "{*}" && segments.next() == Some(literal) => {}
            _ => return false,
        }
    }
    segments.peek().is_none()
}

/// Whether the policies allow a request, as the documentation says.
fn allowed(policies: &[Policy], request: &Request) -> bool {
    let (denies, allows): (Vec<&Policy>, Vec<&Policy>) = policies.iter().partition(|policy| policy.deny);
    !denies.iter().any(|policy| policy.matches(request))
        && (allows.is_empty() || allows.iter().any(|policy| policy.matches(request)))
}

/// The indexes of the requests that pass, once Envoy has exactly these policies.
async fn passing(guarded: &Guarded, marker: &str, policies: &[Policy]) -> Result<BTreeSet<usize>> {
    let mut objects: Vec<String> =
        policies.iter().enumerate().map(|(at, policy)| policy.text(&format!("{marker}-{at}"))).collect();
    // It matches none of the requests, and tells that the configuration has arrived.
    objects.push(policy(marker, "action: DENY, rules: [{ to: [{ operation: { paths: [/marker] } }] }]"));
    guarded.put(&objects.join("---\n"), &format!("policy[{marker}]")).await?;
    let all = requests();
    // Each worker takes the new configuration when it comes to it.
    let mut last = None;
    for _ in 0..20 {
        let mut found = BTreeSet::new();
        for (index, request) in all.iter().enumerate() {
            let headers: Vec<(&str, &str)> = request.user.map(|user| ("x-user", user)).into_iter().collect();
            let line = format!("{} {}", request.method, request.path);
            if Ask::new(&line).with(&headers).passes(guarded.address()).await? {
                found.insert(index);
            }
        }
        if last.as_ref() == Some(&found) {
            return Ok(found);
        }
        last = Some(found);
    }
    Err(format!("no stable answer for {policies:?}").into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_policies_do_what_they_say_and_no_policy_opens_what_another_closes() -> Result<()> {
    let guarded = Guarded::start(&[]).await?;
    let all = requests();
    for seed in 0..ROUNDS {
        let mut random = Random(seed + 1);
        let count = random.below(3);
        let base: Vec<Policy> = (0..count)
            .map(|_| {
                let deny = random.below(2) == 0;
                Policy::random(&mut random, deny)
            })
            .collect();
        let with = |more: Policy| [&base[..], &[more]].concat();
        let stricter = with(Policy::random(&mut random, true));
        let wider = with(Policy::random(&mut random, false));
        let mut found = Vec::new();
        for (name, policies) in [("base", &base), ("stricter", &stricter), ("wider", &wider)] {
            let passed = passing(&guarded, &format!("{name}-{seed}"), policies).await?;
            let expected = (0..all.len()).filter(|index| allowed(policies, &all[*index])).collect();
            let wrong: Vec<&Request> = passed.symmetric_difference(&expected).map(|index| &all[*index]).collect();
            assert!(wrong.is_empty(), "seed {seed}, {name}: {policies:#?} decides otherwise about {wrong:?}");
            found.push(passed);
        }
        let [base_passes, stricter_passes, wider_passes] = &found[..] else { unreachable!() };
        assert!(stricter_passes.is_subset(base_passes), "seed {seed}: {stricter:#?} allows more");
        if base.iter().any(|policy| !policy.deny) {
            assert!(base_passes.is_subset(wider_passes), "seed {seed}: {wider:#?} denies more");
        }
    }
    Ok(())
}
