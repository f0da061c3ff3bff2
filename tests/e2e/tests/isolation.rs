//! A random bad object among 50 good hosts never changes the answer of another host: of an Envoy that runs, and of one
//! that starts while the object is there.
//!
//! `RUTTER_SEED` chooses other objects, `RUTTER_CASES` their number. A failure names the seed, the case and the object.

use std::time::Duration;

use e2e::objects::{networking, static_entry};
use e2e::{Mesh, both_protocols};
use test_harness::run::{Backend, Envoy, Node, Protocol, Result, free_port, http, wait_for};

/// The number of good hosts. The first one only shows that changes of others arrive.
const HOSTS: usize = 50;
/// The number of bad objects of a run.
const CASES: usize = 3;
const SEED: u64 = 20_261_863;
const PATIENCE: Duration = Duration::from_secs(20);

/// Random choices from a seed (splitmix64).
struct Dice(u64);

impl Dice {
    /// A random number below `sides`, which is not zero.
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % sides as u64) as usize
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.roll(of.len())]
    }

    /// A valid regular expression that exceeds Envoy's limit of the size of its program.
    fn large_regex(&mut self) -> String {
        let (letters, digits) = (40 + self.roll(60), 40 + self.roll(60));
        format!("/[a-z]{{1,{letters}}}/[0-9]{{1,{digits}}}/(one|two|three|four|five|six|seven|eight)+")
    }
}

/// The parts of the mesh that bad objects are about.
struct Place<'a> {
    /// The port of all hosts.
    port: u16,
    /// A port that only bad objects have.
    own_port: u16,
    backend: &'a Backend,
}

fn name(number: usize) -> String {
    format!("h{number:02}")
}

/// A host with a route to the backend, which adds this mark to answers.
fn host(name: &str, mark: &str, place: &Place<'_>) -> String {
    let entry = static_entry(name, &format!("{name}.test"), (place.port, "HTTP"), place.backend.address());
    let to = format!("route: [{{ destination: {{ host: {name}.test }} }}]");
    let route = format!("{to}, headers: {{ response: {{ set: {{ x-mark: {mark} }} }} }}");
    format!(
        "{entry}---\n{}",
        networking("VirtualService", name, &format!("hosts: [{name}.test], http: [{{ {route} }}]"))
    )
}

/// A host of its own with this HTTP route and traffic policy.
fn bad_host(place: &Place<'_>, http: &str, policy: &str) -> String {
    let entry = static_entry("bad", "bad.test", (place.port, "HTTP"), place.backend.address());
    let route = networking("VirtualService", "bad", &format!("hosts: [bad.test], http: [{http}]"));
    let rule = networking("DestinationRule", "bad", &format!("host: bad.test, trafficPolicy: {{ {policy} }}"));
    format!("{entry}---\n{route}---\n{rule}")
}

/// An EnvoyFilter with one patch, and a host with a port of its own.
fn bad_filter(place: &Place<'_>, kind: &str, chosen: &str, operation: &str, value: &str) -> String {
    let entry = static_entry("bad", "bad.test", (place.own_port, "HTTP"), place.backend.address());
    let chosen = format!("context: SIDECAR_OUTBOUND, {chosen}");
    let patch = format!("operation: {operation}, value: {value}");
    let spec = format!("configPatches: [{{ applyTo: {kind}, match: {{ {chosen} }}, patch: {{ {patch} }} }}]");
    format!("{entry}---\n{}", networking("EnvoyFilter", "bad", &spec).replace("/v1\n", "/v1alpha3\n"))
}

/// A bad object. Some are refused by Rutter, in whole or in part; others only by Envoy.
fn bad(dice: &mut Dice, place: &Place<'_>) -> String {
    const TO: &str = "route: [{ destination: { host: bad.test } }]";
    match dice.roll(9) {
        0 => {
            let field = dice.one(&[
                "match: [{ uri: { regex: 'R' } }]",
                "match: [{ headers: { x-a: { regex: 'R' } } }]",
                "match: [{ uri: { prefix: / } }], rewrite: { uriRegexRewrite: { match: 'R', rewrite: / } }",
                "corsPolicy: { allowOrigins: [{ regex: 'R' }] }",
            ]);
            let field = field.replace('R', &dice.large_regex());
            bad_host(place, &format!("{{ {TO}, {field} }}"), "")
        }
        1 => {
            let (way, size) = (dice.one(&["request", "response"]), 15_000 + dice.roll(20_000));
            let headers = format!("headers: {{ {way}: {{ set: {{ x-large: '{}' }} }} }}", "a".repeat(size));
            bad_host(place, &format!("{{ {TO}, {headers} }}"), "")
        }
        2 => {
            let weight = 2_147_483_647 - dice.roll(1000);
            let to = format!("{{ destination: {{ host: bad.test }}, weight: {weight} }}");
            bad_host(place, &format!("{{ route: [{to}, {to}, {to}] }}"), "")
        }
        3 => {
            let odd = dice.one(&[
                "directResponse: { status: 200, body: { string: 'B' } }",
                "redirect: { redirectCode: 399 }",
                "directResponse: { status: 99 }",
            ]);
            bad_host(place, &format!("{{ {} }}", odd.replace('B', &"b".repeat(4097 + dice.roll(9000)))), "")
        }
        4 => {
            let size = dice.one(&[
                "minimumRingSize: 1000000000",
                "ringHash: { minimumRingSize: 9000000 }",
                "maglev: { tableSize: 4 }",
                "maglev: { tableSize: 5000012 }",
            ]);
            let policy = format!("loadBalancer: {{ consistentHash: {{ httpHeaderName: x-user, {size} }} }}");
            bad_host(place, &format!("{{ {TO} }}"), &policy)
        }
        5 => {
            let hosts = dice.one(&[
                "[bad.test, BAD.test]",
                "['*.bad.test', '*.bad.test']",
                "[h01.test]",
                "['*.h01.test', h01.test]",
            ]);
            let spec = format!("hosts: {hosts}, http: [{{ {TO} }}]");
            format!(
                "{}---\n{}",
                bad_host(place, &format!("{{ {TO} }}"), ""),
                networking("VirtualService", "bad-too", &spec)
            )
        }
        6 => {
            let vhost = format!("routeConfiguration: {{ vhost: {{ name: 'h01.test:{}' }} }}", place.port);
            let regex = dice.large_regex();
            match dice.roll(3) {
                0 => bad_filter(
                    place,
                    "VIRTUAL_HOST",
                    &vhost,
                    "MERGE",
                    &format!(
                        "{{ virtual_clusters: [{{ name: v, headers: [{{ name: ':path', string_match: {{ safe_regex: {{ regex: '{regex}' }} }} }}] }}] }}"
                    ),
                ),
                1 => bad_filter(
                    place,
                    "HTTP_ROUTE",
                    &vhost,
                    "MERGE",
                    &format!(
                        "{{ route: {{ regex_rewrite: {{ pattern: {{ regex: '{regex}' }}, substitution: / }} }} }}"
                    ),
                ),
                _ => bad_filter(place, "VIRTUAL_HOST", &vhost, "MERGE", "{ domains: [h02.test] }"),
            }
        }
        7 => {
            let value = dice.one(&[
                "{ lb_policy: CLUSTER_PROVIDED }",
                "{ lb_policy: RING_HASH, ring_hash_lb_config: { minimum_ring_size: 2048, maximum_ring_size: 16 } }",
                "{ connect_timeout: 0s }",
                "{ type: LOGICAL_DNS }",
                "{ outlier_detection: { max_ejection_percent: 500 } }",
            ]);
            bad_filter(place, "CLUSTER", "cluster: { service: h01.test }", "MERGE", value)
        }
        _ => {
            let value = dice.one(&["{ name: l, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit, \
                 stat_prefix: a, token_bucket: { max_tokens: 1, fill_interval: 0.001s } } }",
                "{ name: l, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, \
                 default_source_code: { inline_string: 'error(1)' } } }",
                "{ name: l, typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.no_such.v3.Filter } }"]);
            let chosen = format!(
                "listener: {{ portNumber: {}, filterChain: {{ filter: {{ name: envoy.filters.network.http_connection_manager }} }} }}",
                place.own_port
            );
            bad_filter(place, "HTTP_FILTER", &chosen, "INSERT_BEFORE", value)
        }
    }
}

/// The mark of a host's answer; or why it is none.
async fn mark(port: u16, name: &str) -> Result<String> {
    let host = format!("{name}.test");
    let answer = http::get(([127, 0, 0, 1], port).into(), "/", &[("host", &host)]).await?;
    match answer.status.as_u16() {
        200 => Ok(answer.header("x-mark").to_owned()),
        status => Err(format!("status {status}: {}", answer.text()).into()),
    }
}

/// Checks the answers of all hosts that bad objects are not about.
async fn check_others(port: u16) -> Result<()> {
    for number in 2..HOSTS {
        let name = name(number);
        match mark(port, &name).await {
            Ok(mark) if mark == name => {}
            other => return Err(format!("{name} answers {other:?}").into()),
        }
    }
    Ok(())
}

/// Starts an Envoy and waits until the last host answers.
async fn started(mesh: &Mesh, port: u16, protocol: Protocol) -> Result<Envoy> {
    let node = Node::sidecar("client", "test", "127.0.0.2", &[("app", "client")]);
    let envoy = mesh.envoy(&node, protocol).await?;
    envoy.wait_for_listener(([127, 0, 0, 1], port).into()).await?;
    let last = name(HOSTS - 1);
    let answers = || async { mark(port, &last).await.ok().filter(|mark| *mark == last).map(drop) };
    wait_for("the last host to answer", PATIENCE, answers).await?;
    Ok(envoy)
}

/// Changes the first host, and waits until it answers so. The others answer as always, also meanwhile.
async fn change(mesh: &Mesh, place: &Place<'_>, mark_now: &str) -> Result<()> {
    let first = name(0);
    mesh.config.put("h00.yaml", &host(&first, mark_now, place))?;
    let port = place.port;
    let arrived = || async {
        if let Err(error) = check_others(port).await {
            return Some(Err(error));
        }
        mark(port, &name(0)).await.ok().filter(|mark| mark == mark_now).map(|_| Ok(()))
    };
    wait_for(&format!("{first} to answer {mark_now}"), PATIENCE, arrived).await??;
    check_others(port).await
}

/// One bad object: it comes, others change, a proxy starts, and it goes.
async fn case(
    mesh: &Mesh,
    place: &Place<'_>,
    protocol: Protocol,
    running: Envoy,
    number: usize,
    bad: &str,
) -> Result<Envoy> {
    mesh.config.put("bad.yaml", bad)?;
    change(mesh, place, &format!("a{number}")).await.map_err(|error| format!("running: {error}"))?;
    change(mesh, place, &format!("b{number}")).await.map_err(|error| format!("running, later: {error}"))?;
    drop(running);
    let ended = || async { mark(place.port, &name(2)).await.err().map(drop) };
    wait_for("Envoy to end", PATIENCE, ended).await?;
    let envoy = started(mesh, place.port, protocol).await.map_err(|error| format!("starting: {error}"))?;
    change(mesh, place, &format!("c{number}")).await.map_err(|error| format!("started: {error}"))?;
    mesh.config.remove("bad.yaml")?;
    change(mesh, place, &format!("d{number}")).await.map_err(|error| format!("removed: {error}"))?;
    Ok(envoy)
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

both_protocols! {
    async fn a_random_bad_object_changes_no_other_answer(protocol) {
        let seed = setting("RUTTER_SEED").unwrap_or(SEED);
        eprintln!("RUTTER_SEED={seed}");
        // Both protocols together see twice as many objects.
        let mut dice = Dice(seed.wrapping_add(u64::from(protocol == Protocol::Delta)));
        let backend = Backend::start("v1", "shop-0").await?;
        let place = Place { port: free_port(), own_port: free_port(), backend: &backend };
        let hosts: Vec<String> = (1..HOSTS).map(|number| host(&name(number), &name(number), &place)).collect();
        let mesh = Mesh::start(&[("hosts.yaml", &hosts.join("---\n")), ("h00.yaml", &host("h00", "a", &place))]).await?;
        let mut envoy = started(&mesh, place.port, protocol).await?;
        check_others(place.port).await?;
        let cases = setting("RUTTER_CASES").map_or(CASES, |cases| cases as usize);
        for number in 0..cases {
            let bad = bad(&mut dice, &place);
            let short: String = bad.chars().take(1500).collect();
            let played = case(&mesh, &place, protocol, envoy, number, &bad).await;
            envoy = played.map_err(|error| format!("seed {seed}, case {number}: {error}; with\n{short}"))?;
        }
    }
}
