//! Leaves out the parts of an object that have errors, so that the rest stays in effect.
//!
//! An object that is in a cluster was accepted by another control plane, or before an upgrade. One bad server must not
//! remove the other servers of a Gateway, and one bad provider not the configuration of the mesh. A part is left out if the
//! rest means the same without it: an entry of a list of independent entries (servers, routes, ports), or a field with a
//! default. Fields that decide what an object applies to are not left out: the object would apply to more.
//!
//! An AuthorizationPolicy never permits more because of an error: of `ALLOW`, the rule is left out, even the last one; of the
//! other actions, the condition. Neither does a route of the Gateway API: without a filter, a rule has no backends, so that
//! requests for it fail.

use crate::decode::Problem;
use crate::object::Kind;
use crate::problem::{FieldPath, Segment, Severity};
use crate::yaml::{Node, Value};

/// The end of the messages of warnings about parts that are left out.
pub(crate) const LEFT_OUT: &str = "is left out";

/// The field of a route's rule with its backends.
const BACKENDS: &str = "backendRefs";

/// Maximum number of times that an object is read again without the parts that have errors.
const MAX_ROUNDS: usize = 8;

/// Reads a tree, and again without the parts that have errors, until there are none. The errors become warnings that name
/// what is left out. `None` if the errors concern the object as a whole; the problems are then those of the whole object.
pub(super) fn read<T>(
    kind: Kind,
    root: &Node,
    first: (T, Vec<Problem>),
    mut again: impl FnMut(&Node) -> (T, Vec<Problem>),
) -> (Option<T>, Vec<Problem>) {
    let (value, mut problems) = first;
    if !problems.iter().any(is_error) {
        return (Some(value), problems);
    }
    let mut tree = root.clone();
    let mut removed: Vec<Problem> = Vec::new();
    let mut found: Vec<Problem> = problems.iter().filter(|problem| is_error(problem)).cloned().collect();
    for _ in 0..MAX_ROUNDS {
        let Some(without) = without_parts(kind, &tree, &mut found) else {
            return (None, problems);
        };
        removed.append(&mut found);
        tree = without;
        let (value, rest) = again(&tree);
        found = rest.into_iter().filter(is_error).collect();
        if found.is_empty() {
            problems.retain(|problem| !is_error(problem));
            problems.extend(removed);
            problems.sort_by_key(|problem| (problem.at.line, problem.at.column));
            return (Some(value), problems);
        }
    }
    (None, problems)
}

fn is_error(problem: &Problem) -> bool {
    problem.severity == Severity::Error
}

/// The tree without the parts that have these errors, which become warnings. `None` if a part cannot be left out.
fn without_parts(kind: Kind, tree: &Node, errors: &mut [Problem]) -> Option<Node> {
    let mut parts: Vec<FieldPath> = Vec::new();
    for error in &mut *errors {
        let found = parts_of(kind, tree, &error.path)?;
        let part = found.first()?;
        error.severity = Severity::Warning;
        error.message = format!("{}; {part} {LEFT_OUT}", error.message);
        parts.extend(found);
    }
    // Later entries of a list first, so that the indices of the others stay valid.
    parts.sort();
    parts.dedup();
    let outer: Vec<&FieldPath> =
        parts.iter().filter(|part| !parts.iter().any(|other| other != *part && other.contains(part))).collect();
    let mut tree = tree.clone();
    for part in outer.into_iter().rev() {
        remove(&mut tree, part.segments(), may_be_empty(kind, part)).then_some(())?;
    }
    Some(tree)
}

/// Lists whose entries are independent of each other.
fn entries(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Gateway => &["servers"],
        Kind::VirtualService => &["http", "tls", "tcp", "hosts"],
        Kind::DestinationRule => &["subsets"],
        Kind::ServiceEntry => &["ports", "endpoints", "addresses", "hosts"],
        Kind::Sidecar => &["egress", "ingress"],
        Kind::EnvoyFilter => &["configPatches"],
        Kind::RequestAuthentication => &["jwtRules"],
        Kind::Telemetry => &["tracing", "metrics", "accessLogging"],
        Kind::MeshConfig => &["extensionProviders", "configSources", "serviceSettings", "caCertificates"],
        Kind::KubeGateway => &["listeners", "addresses"],
        Kind::ListenerSet => &["listeners"],
        Kind::BackendTlsPolicy | Kind::BackendTrafficPolicy => &["targetRefs"],
        kind if kind.is_route() => &["parentRefs", "hostnames", "rules"],
        _ => &[],
    }
}

/// Whether the list with this part may be empty without it: a rule without backends serves nothing.
fn may_be_empty(kind: Kind, part: &FieldPath) -> bool {
    let list = part.segments().iter().rev().nth(1);
    let is_backends = matches!(list, Some(Segment::Field(name)) if &**name == BACKENDS);
    kind == Kind::AuthorizationPolicy || kind.is_route() && is_backends
}

/// The parts to leave out because of an error at a path, the one that has the error first.
fn parts_of(kind: Kind, tree: &Node, path: &FieldPath) -> Option<Vec<FieldPath>> {
    if kind.is_route()
        && let Some(parts) = parts_of_rule(tree, path.segments())
    {
        return Some(parts);
    }
    part(kind, tree, path).map(|part| vec![part])
}

/// The parts of a rule of the Gateway API to leave out because of an error beside its matches. None for other errors. Without a
/// filter, requests must not pass, so that the backends are left out, too.
fn parts_of_rule(tree: &Node, path: &[Segment]) -> Option<Vec<FieldPath>> {
    let is = |at: usize, text: &str| matches!(path.get(at), Some(Segment::Field(name)) if &**name == text);
    let Some(Segment::Field(field)) = path.get(3).filter(|_| is(0, "spec") && is(1, "rules")) else { return None };
    let whole = of(&path[..4]);
    let backends = of(&path[..3]).field(BACKENDS);
    match &**field {
        "matches" => None,
        "filters" => {
            let has_backends = existing(tree, backends.segments(), 4).is_some();
            Some(std::iter::once(whole).chain(has_backends.then_some(backends)).collect())
        }
        BACKENDS if path.len() > 4 => Some(vec![of(&path[..5])]),
        _ => existing(tree, &path[..4], 4).map(|part| vec![part]),
    }
}

/// The part to leave out because of an error at a path. `None` if the object means something else without it.
fn part(kind: Kind, tree: &Node, path: &FieldPath) -> Option<FieldPath> {
    if kind == Kind::AuthorizationPolicy {
        return part_of_policy(tree, path.segments());
    }
    let spec = usize::from(matches!(path.segments().first(), Some(Segment::Field(name)) if &**name == "spec"));
    if spec == 0 && kind != Kind::MeshConfig {
        return None;
    }
    let segments = path.segments();
    let Segment::Field(field) = segments.get(spec)? else { return None };
    let own = &segments[spec..];
    // A field of a subset, or all of a policy but its TLS, has a default.
    let of_policy =
        own.iter().position(|segment| matches!(segment, Segment::Field(name) if &**name == "trafficPolicy"));
    let is = |segment: &Segment, text: &str| matches!(segment, Segment::Field(name) if &**name == text);
    if kind == Kind::DestinationRule
        && let Some(at) = of_policy
        && own.len() > at + 2
        && !own.iter().any(|segment| is(segment, "tls"))
    {
        return existing(tree, segments, spec + at + 2);
    }
    if entries(kind).contains(&&**field) {
        let is_entry = matches!(own.get(1), Some(Segment::Index(_)));
        return is_entry.then(|| of(&segments[..spec + 2]));
    }
    // Identities and namespaces decide about trust and visibility.
    const WHOLE: [&str; 6] =
        ["trustDomain", "trustDomainAliases", "rootNamespace", "discoverySelectors", "meshMTLS", "tlsDefaults"];
    let has_default = match kind {
        Kind::MeshConfig => !WHOLE.contains(&&**field) && !field.ends_with("ExportTo"),
        // Nobody may add listeners by default.
        Kind::KubeGateway => ["infrastructure", "allowedListeners", "defaultScope"].contains(&&**field),
        // Without its validation, connections would be in plain text.
        Kind::BackendTlsPolicy => &**field == "options",
        // Without some of its fields, another kind of session would persist.
        Kind::BackendTrafficPolicy if &**field == "sessionPersistence" => return Some(of(&segments[..=spec])),
        Kind::BackendTrafficPolicy => &**field == "retryConstraint",
        _ => false,
    };
    if has_default { existing(tree, segments, spec + 1) } else { None }
}

/// The part of an AuthorizationPolicy without which it permits no more: a rule of `ALLOW`, and a condition of another action.
fn part_of_policy(tree: &Node, path: &[Segment]) -> Option<FieldPath> {
    let is = |at: usize, text: &str| matches!(path.get(at), Some(Segment::Field(name) | Segment::Key(name)) if &**name == text);
    // Without the annotation for a dry run, the policy is enforced.
    if is(0, "metadata") && is(1, "annotations") && path.len() == 3 {
        return Some(of(path));
    }
    if !is(0, "spec") || !is(1, "rules") || path.len() < 3 {
        return None;
    }
    let action = tree.get("spec").and_then(|spec| spec.get("action")).and_then(Node::text);
    if action.is_none_or(|action| &**action == "ALLOW") {
        return Some(of(&path[..3]));
    }
    let is_value = matches!(path.last(), Some(Segment::Index(_))) && path.len() > 5;
    match path.len() {
        _ if is_value => Some(of(path)),
        // All conditions must match, but one source and one operation.
        5.. if is(3, "when") => Some(of(&path[..5])),
        4.. => Some(of(&path[..4])),
        _ => None,
    }
}

fn of(segments: &[Segment]) -> FieldPath {
    segments.iter().cloned().fold(FieldPath::root(), |path, segment| path.then(segment))
}

/// The longest part of a path that exists, of at least this many segments.
fn existing(tree: &Node, segments: &[Segment], least: usize) -> Option<FieldPath> {
    let mut node = tree;
    let mut length = 0;
    for segment in segments {
        let next = match segment {
            Segment::Field(name) => node.field(name),
            Segment::Key(name) => node.get(name),
            Segment::Index(index) => node.items().get(*index),
        };
        let Some(next) = next else { break };
        (node, length) = (next, length + 1);
    }
    (length >= least).then(|| of(&segments[..length]))
}

/// Removes a part. Whether it was there, and its list is not empty without it or may be empty.
fn remove(node: &mut Node, path: &[Segment], may_empty: bool) -> bool {
    let Some((first, rest)) = path.split_first() else { return false };
    match (first, &mut node.value) {
        (Segment::Index(index), Value::List(items)) if *index < items.len() => match rest {
            [] => {
                items.remove(*index);
                may_empty || !items.is_empty()
            }
            rest => remove(&mut items[*index], rest, may_empty),
        },
        (Segment::Field(name) | Segment::Key(name), Value::Map(entries)) => {
            let known = |key: &str| key == &**name || crate::decode::is_json_name(key, name);
            let Some(at) = entries.iter().position(|entry| known(&entry.key)) else { return false };
            match rest {
                [] => {
                    entries.remove(at);
                    true
                }
                rest => remove(&mut entries[at].value, rest, may_empty),
            }
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::{AnyObject, Diagnostic, ParseOptions, parse_documents, parse_mesh_config};

    fn options() -> ParseOptions {
        ParseOptions { degrade: true, ..ParseOptions::default() }
    }

    fn warnings(diagnostics: &[Diagnostic]) -> Vec<String> {
        assert!(!diagnostics.iter().any(Diagnostic::is_error), "{diagnostics:?}");
        let left_out = diagnostics.iter().filter(|d| d.leaves_out());
        left_out.map(|d| d.path.to_string()).collect()
    }

    fn read(text: &str) -> (AnyObject, Vec<String>) {
        let strict = parse_documents(text.as_bytes(), "f", &ParseOptions::default());
        assert!(strict.objects.is_empty() && !strict.refused.is_empty(), "refused on the write path");
        let mut parsed = parse_documents(text.as_bytes(), "f", &options());
        let warnings = warnings(&parsed.diagnostics);
        assert!(parsed.is_whole());
        (parsed.objects.remove(0), warnings)
    }

    fn refused(text: &str) {
        let parsed = parse_documents(text.as_bytes(), "f", &options());
        assert!(parsed.objects.is_empty() && parsed.refused.len() == 1, "{parsed:?}");
    }

    const SERVER: &str = "hosts: [a.com], port: {name: a, number: 80, protocol: HTTP}";

    #[test]
    fn one_bad_server_keeps_the_others() {
        let text = format!(
            "{{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {{name: a}}, spec: {{servers: [{{{SERVER}}}, \
             {{hosts: [b.com], port: {{name: b, number: 443, protocol: HTTPS}}, tls: {{mode: SIMPLE, credentialName: c, \
             verifyCertificateHash: [nonsense]}}}}, {{hosts: [c.com], port: {{name: c, number: 81, protocol: HTTP}}}}]}}}}"
        );
        let (object, warnings) = read(&text);
        let AnyObject::Gateway(gateway) = object else { panic!() };
        let hosts: Vec<&str> = gateway.spec.servers.iter().map(|server| &*server.hosts[0]).collect();
        assert_eq!(hosts, ["a.com", "c.com"]);
        assert_eq!(warnings, ["spec.servers[1].tls.verifyCertificateHash[0]"]);
    }

    #[test]
    fn one_bad_route_keeps_the_others_and_one_bad_policy_field_the_rule() {
        let (object, warnings) = read(
            "{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: a}, spec: {hosts: [a.com], http: [\
             {match: [{uri: {regex: '(a)\\1'}}, {uri: {prefix: /x}}], route: [{destination: {host: x}}]}, \
             {route: [{destination: {host: y}}]}]}}",
        );
        let AnyObject::VirtualService(service) = object else { panic!() };
        assert_eq!(service.spec.http.len(), 1);
        assert_eq!(warnings, ["spec.http[0].match[0].uri.regex"]);
        let (object, _) = read(
            "{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: a}, spec: {host: a.com, \
             trafficPolicy: {connectionPool: {tcp: {connectTimeout: 1us, maxConnections: 5}}}}}",
        );
        let AnyObject::DestinationRule(rule) = object else { panic!() };
        let tcp = rule
            .spec
            .traffic_policy
            .clone()
            .and_then(|policy| policy.connection_pool)
            .and_then(|pool| pool.tcp)
            .unwrap();
        assert_eq!((tcp.connect_timeout, tcp.max_connections), (None, 5));
    }

    #[test]
    fn what_decides_the_meaning_of_an_object_is_not_left_out() {
        for text in [
            "{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: a}, spec: {servers: [{hosts: ['?'], \
             port: {name: a, number: 80, protocol: HTTP}}]}}",
            "{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: a}, spec: {host: a.com, \
             trafficPolicy: {tls: {mode: MUTUAL}}}}",
            "{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: a}, spec: {selector: \
             {matchLabels: {a: 'x*'}}, action: DENY, rules: [{}]}}",
            "{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: a}, spec: {hosts: ['?'], http: [\
             {route: [{destination: {host: y}}]}]}}",
        ] {
            refused(text);
        }
    }

    #[test]
    fn a_policy_with_an_error_permits_no_more() {
        let left = |action: &str, rules: &str| {
            let meta = "{name: a, annotations: {istio.io/dry-run: perhaps}}";
            let text = format!(
                "{{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {meta}, \
                 spec: {{action: {action}, rules: [{rules}]}}}}"
            );
            let parsed = parse_documents(text.as_bytes(), "f", &options());
            let Some(AnyObject::AuthorizationPolicy(policy)) = parsed.objects.into_iter().next() else {
                panic!("{text}: {:?}", parsed.diagnostics);
            };
            warnings(&parsed.diagnostics);
            policy.spec.rules.clone()
        };
        let bad = "{to: [{operation: {ports: ['80', x], methods: [GET]}}], when: [{key: source.ip, values: [y]}]}";
        assert!(left("ALLOW", bad).is_empty(), "it denies everything");
        assert_eq!(left("ALLOW", &format!("{bad}, {{}}")).len(), 1);
        let denied = left("DENY", bad);
        let operation = denied[0].to[0].operation.as_ref().unwrap();
        assert_eq!((&operation.ports[..], denied[0].when.len()), (&["80".into()][..], 0));
        let denied =
            left("DENY", "{from: [{source: {}}, {source: {namespaces: [a]}}], when: [{key: nonsense, values: [a]}]}");
        assert!(denied[0].from.is_empty() && denied[0].when.is_empty(), "it denies more");
    }

    #[test]
    fn one_bad_listener_keeps_the_others() {
        let gateway = |listeners: &str, rest: &str| {
            format!(
                "{{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {{name: a, namespace: a}}, \
                 spec: {{gatewayClassName: istio, listeners: [{listeners}]{rest}}}}}"
            )
        };
        let good = "{name: good, port: 80, protocol: HTTP}";
        let bad = [
            "{name: bad, port: 443, protocol: TLS, tls: {mode: Newer}}",
            "{name: bad, port: 81, protocol: HTTP, allowedRoutes: {namespaces: {from: Newer}}}",
            "{name: bad, port: 0, protocol: HTTP}",
            "{name: bad, port: 81, protocol: HTTP, hostname: '?'}",
            "{port: 81, protocol: HTTP}",
        ];
        for bad in bad {
            let (object, left) = read(&gateway(&format!("{bad}, {good}"), ""));
            let AnyObject::KubeGateway(object) = object else { panic!() };
            assert_eq!(object.spec.listeners.iter().map(|one| &*one.name).collect::<Vec<_>>(), ["good"], "{bad}");
            assert!(left[0].starts_with("spec.listeners[0]"), "{left:?}");
        }
        let (object, left) = read(&gateway(good, ", allowedListeners: {namespaces: {from: Newer}}"));
        let AnyObject::KubeGateway(object) = object else { panic!() };
        assert_eq!((object.spec.listeners.len(), left.len()), (1, 1));
        let (object, left) = read(&gateway(good, ", defaultScope: Newer, addresses: [{type: '?'}, {value: 10.0.0.1}]"));
        let AnyObject::KubeGateway(object) = object else { panic!() };
        assert_eq!((object.spec.addresses.len(), left.len()), (1, 2));
        // Only listeners with errors, and rules about all listeners.
        for listeners in
            ["3", "{port: 80, protocol: HTTP}", &format!("{good}, {{name: more, port: 80, protocol: HTTP}}")]
        {
            refused(&gateway(listeners, ""));
        }
        // Without it, clients would need no certificate.
        refused(&gateway(
            good,
            ", tls: {frontend: {default: {validation: {mode: Newer, caCertificateRefs: [{name: a}]}}}}",
        ));
    }

    #[test]
    fn one_bad_target_or_limit_keeps_the_policy_but_not_a_bad_validation() {
        let policy = |kind: &str, targets: &str, rest: &str| {
            format!("{{{kind}, metadata: {{name: a, namespace: a}}, spec: {{targetRefs: [{targets}], {rest}}}}}")
        };
        let traffic = "apiVersion: gateway.networking.x-k8s.io/v1alpha1, kind: XBackendTrafficPolicy";
        let tls = "apiVersion: gateway.networking.k8s.io/v1, kind: BackendTLSPolicy";
        let good = "{group: '', kind: Service, name: good}";
        let valid = "validation: {hostname: a.com, wellKnownCACertificates: System}";
        let (object, left) = read(&policy(
            traffic,
            &format!("{{kind: Service}}, {good}"),
            "sessionPersistence: {type: Newer}, retryConstraint: {budget: {percent: 200}}",
        ));
        let AnyObject::BackendTrafficPolicy(object) = object else { panic!() };
        assert_eq!((object.spec.target_refs.len(), left.len()), (1, 4), "{left:?}");
        let percent = object.spec.retry_constraint.as_ref().map(|constraint| constraint.budget.percent);
        assert_eq!((object.spec.session_persistence.is_none(), percent), (true, Some(20)), "the default");
        let (object, left) = read(&policy(tls, &format!("{good}, {{name: 3}}"), &format!("options: 3, {valid}")));
        let AnyObject::BackendTlsPolicy(object) = object else { panic!() };
        assert_eq!(object.spec.target_refs.len(), 1, "{left:?}");
        refused(&policy(tls, good, "validation: {hostname: a.com}"));
        refused(&policy(tls, "{kind: Service}", valid));
        refused(&policy(traffic, &[good; 2].join(", ").replacen("good", "", 2), "retryConstraint: {}"));
    }

    #[test]
    fn one_bad_rule_keeps_the_others_and_a_rule_without_a_filter_serves_nothing() {
        let route = |rules: &str| {
            let text = format!(
                "{{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {{name: a, namespace: a}}, \
                 spec: {{parentRefs: [{{name: edge}}], rules: [{rules}]}}}}"
            );
            let (object, left) = read(&text);
            let AnyObject::HttpRoute(object) = object else { panic!() };
            (object.spec.rules.clone(), left)
        };
        let good = "{backendRefs: [{name: good, port: 80}]}";
        let (rules, left) = route(&format!(
            "{{matches: [{{path: {{type: Newer, value: /a}}}}], backendRefs: [{{name: x, port: 80}}]}}, {good}"
        ));
        assert_eq!((rules.len(), &*rules[0].backend_refs[0].name), (1, "good"));
        assert_eq!(left, ["spec.rules[0].matches[0].path.type"]);
        let (rules, _) = route(&format!(
            "{{matches: [{{path: {{value: /a}}}}], filters: [{{type: Newer}}], backendRefs: [{{name: x, port: 80}}]}}, {good}"
        ));
        assert_eq!((&*rules[0].matches[0].path.value, rules[0].backend_refs.len(), rules.len()), ("/a", 0, 2));
        let (rules, _) =
            route(&format!("{{timeouts: {{request: nonsense}}, backendRefs: [{{name: x, port: 80}}]}}, {good}"));
        assert!(
            rules[0].timeouts.as_ref().is_none_or(|times| times.request.is_none()) && rules[0].backend_refs.len() == 1
        );
        let (rules, _) = route("{backendRefs: [{name: x, port: 0}]}");
        assert!(rules[0].backend_refs.is_empty(), "requests fail");
        let only =
            "{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: a, namespace: a}, spec: ";
        // Without its only host, it would serve all; and it would match all requests without its only rule.
        refused(&format!("{only}{{parentRefs: [{{name: edge}}], hostnames: ['?'], rules: [{good}]}}}}"));
        refused(&format!("{only}{{rules: [{{matches: [{{path: {{type: Newer}}}}]}}]}}}}"));
    }

    #[test]
    fn one_bad_provider_keeps_the_mesh() {
        let text = "connectTimeout: 45s\ntrustDomain: td\nextensionProviders:\n- name: bad\n  zipkin: {service: '', port: 0}\n\
                    - {name: good, prometheus: {}}\n";
        let (config, diagnostics) = parse_mesh_config(text.as_bytes(), "f", &options());
        let config = config.expect("the rest");
        assert_eq!(config.connect_timeout, std::time::Duration::from_secs(10));
        assert_eq!(&*config.trust_domain, "td");
        assert!(config.extension_providers.iter().any(|provider| &*provider.name == "good"));
        assert!(!config.extension_providers.iter().any(|provider| &*provider.name == "bad"));
        assert!(warnings(&diagnostics).contains(&"connectTimeout".to_owned()));
        assert!(parse_mesh_config(text.as_bytes(), "f", &ParseOptions::default()).0.is_none(), "strict");
        let untrusted = parse_mesh_config(b"trustDomain: -foo\n", "f", &options());
        assert!(untrusted.0.is_none(), "an identity has no default");
    }
}
