//! Kinds and fields that are read but have no effect. Objects with such fields get a warning.
//!
//! [`KINDS_NOT_YET`] and [`NOT_YET`] list what is not implemented yet: remove an entry when it is implemented.
//! [`ELSEWHERE`] lists fields that only other components use.

use crate::decode::{Problem, is_json_name, json_name};
use crate::diagnostic::{FieldPath, Segment, Severity};
use crate::object::Kind;
use crate::yaml::{Node, Position, Scalar};

/// The code of the warnings.
pub const CODE: &str = "not-implemented-yet";

/// The code of diagnostics for fields that only other components use.
pub const ELSEWHERE_CODE: &str = "not-served";

/// Kinds without effect. Their objects are read and validated.
pub const KINDS_NOT_YET: &[Kind] = &[
    AuthorizationPolicy,
    RequestAuthentication,
    Telemetry,
    WasmPlugin,
    TrafficExtension,
    GatewayClass,
    KubeGateway,
    ListenerSet,
    HttpRoute,
    GrpcRoute,
    TlsRoute,
    TcpRoute,
    UdpRoute,
    ReferenceGrant,
    BackendTlsPolicy,
    BackendTrafficPolicy,
    InferencePool,
];

/// A field without effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The kind.
    pub kind: Kind,
    /// The path from `spec`, with JSON names: `http[].fault`. `[]` means every item of a list.
    pub path: &'static str,
    /// Values of an enumeration or boolean that need no warning.
    pub unless: &'static [&'static str],
}

const fn entry(kind: Kind, path: &'static str) -> Entry {
    Entry {
        kind,
        path,
        unless: &[],
    }
}

const fn unless(kind: Kind, path: &'static str, unless: &'static [&'static str]) -> Entry {
    Entry { kind, path, unless }
}

use Kind::*;

/// Fields without effect.
pub const NOT_YET: &[Entry] = &[
    entry(MeshConfig, "extensionProviders[].envoyExtAuthzHttp"),
    entry(MeshConfig, "extensionProviders[].envoyExtAuthzGrpc"),
];

/// Fields of root certificates.
const ROOTS: &str = "this is for the certificate authority and for agents that are told of its roots, which is not there yet; clients \
                     of the trustDomains beside it are let in where their agents' roots allow it";

/// A field that does not affect the configuration of proxies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elsewhere {
    /// The field.
    pub field: Entry,
    /// The severity of the diagnostic.
    pub severity: Severity,
    /// The message.
    pub why: &'static str,
}

const fn elsewhere(field: Entry, severity: Severity, why: &'static str) -> Elsewhere {
    Elsewhere { field, severity, why }
}

/// Fields that do not affect the configuration of proxies in Istio either. Other components use them.
pub const ELSEWHERE: &[Elsewhere] = &[
    elsewhere(
        entry(WorkloadGroup, "probe"),
        Severity::Info,
        "this is for the agents of the group's workloads, which probe the application and say whether it is healthy; nothing is \
         served because of it",
    ),
    elsewhere(
        unless(MeshConfig, "enablePrometheusMerge", &["false"]),
        Severity::Info,
        "this is for injection, which tells agents to add the application's metrics to the proxy's; nothing is served because of \
         it",
    ),
    elsewhere(
        entry(MeshConfig, "defaultConfig.caCertificatesPem"),
        Severity::Info,
        "this is for agents, which trust these roots; nothing is served because of it",
    ),
    elsewhere(
        entry(MeshConfig, "defaultConfig.envoyAccessLogService"),
        Severity::Info,
        "this is for agents, which make it the cluster envoy_accesslog_service of the proxy's bootstrap; nothing is served because \
         of it",
    ),
    elsewhere(
        entry(MeshConfig, "defaultConfig.envoyMetricsService"),
        Severity::Info,
        "this is for agents, which have the proxy's bootstrap send metrics there; nothing is served because of it",
    ),
    elsewhere(
        entry(MeshConfig, "hboneIdleTimeout"),
        Severity::Warning,
        "this is for connections of the ambient mode, which is not there yet; for sidecars and gateways nothing depends on it",
    ),
    elsewhere(
        entry(MeshConfig, "serviceScopeConfigs"),
        Severity::Warning,
        "this is for services of the ambient mode, which is not there yet; for sidecars and gateways nothing depends on it",
    ),
    elsewhere(entry(MeshConfig, "caCertificates[].pem"), Severity::Warning, ROOTS),
    elsewhere(
        entry(MeshConfig, "caCertificates[].spiffeBundleUrl"),
        Severity::Warning,
        ROOTS,
    ),
    elsewhere(
        entry(MeshConfig, "caCertificates[].certSigners"),
        Severity::Warning,
        ROOTS,
    ),
    elsewhere(
        entry(MeshConfig, "certificates"),
        Severity::Warning,
        "no version of Istio that is supported makes certificates for DNS names, and neither does this one: it has no effect",
    ),
    elsewhere(
        entry(MeshConfig, "ca"),
        Severity::Warning,
        "as with Istio it has no effect: the agents are told of another authority by the address CA_ADDR in their environment",
    ),
    elsewhere(
        entry(MeshConfig, "configSources[].subscribedResources"),
        Severity::Warning,
        "as with Istio it has no effect: all kinds are read from the source",
    ),
];

/// The diagnostics for an object: one for its kind, or those for its fields.
pub(crate) fn of_object(kind: Kind, root: &Node) -> Vec<Problem> {
    if KINDS_NOT_YET.contains(&kind) && !is_network_gateway(kind, root) {
        return vec![Problem {
            path: FieldPath::root(),
            at: root.at,
            severity: Severity::Warning,
            code: CODE,
            message: format!("the kind {} is not implemented yet and has no effect", kind.name()),
            hint: None,
        }];
    }
    root.get("spec").map(|spec| warnings(kind, spec)).unwrap_or_default()
}

/// Whether an object is a Gateway for a remote network, which has an effect.
fn is_network_gateway(kind: Kind, root: &Node) -> bool {
    let labels = root.get("metadata").and_then(|metadata| metadata.get("labels"));
    kind == KubeGateway && labels.is_some_and(|labels| labels.get("topology.istio.io/network").is_some())
}

/// The diagnostics for the fields in `spec`.
pub(crate) fn warnings(kind: Kind, spec: &Node) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut look_for = |entry: &Entry, (severity, code, message): (Severity, &'static str, &str)| {
        if entry.kind != kind {
            return;
        }
        let mut found = Vec::new();
        walk(entry, entry.path, spec, FieldPath::spec(), &mut found);
        problems.extend(found.into_iter().map(|(path, at)| Problem {
            path,
            at,
            severity,
            code,
            message: message.to_owned(),
            hint: None,
        }));
    };
    for entry in NOT_YET {
        look_for(
            entry,
            (Severity::Warning, CODE, "this is not implemented yet and has no effect"),
        );
    }
    for one in ELSEWHERE {
        look_for(&one.field, (one.severity, ELSEWHERE_CODE, one.why));
    }
    problems
}

/// Follows the rest of the path of an entry, and reports every value that needs a diagnostic.
fn walk(entry: &Entry, rest: &'static str, node: &Node, path: FieldPath, asked: &mut Vec<(FieldPath, Position)>) {
    let (step, after) = rest.split_once('.').unwrap_or((rest, ""));
    let (name, in_list) = match step.strip_suffix("[]") {
        Some(name) => (name, true),
        None => (step, false),
    };
    let Some(found) = node
        .entries()
        .iter()
        .find(|e| &*e.key == name || is_json_name(&e.key, name))
    else {
        return;
    };
    let path = path.then(Segment::Field(json_name(name).into()));
    match (in_list, after) {
        (true, _) => {
            for (index, item) in found.value.items().iter().enumerate() {
                walk(entry, after, item, path.index(index), asked);
            }
        }
        (false, "") => {
            if asks_for_something(&found.value, entry.unless) {
                asked.push((path, found.at));
            }
        }
        (false, _) => walk(entry, after, &found.value, path, asked),
    }
}

fn asks_for_something(value: &Node, unless: &[&str]) -> bool {
    match value.scalar() {
        Some(Scalar::Null) => false,
        Some(Scalar::Text(text)) => !unless.contains(&text),
        Some(Scalar::Bool(value)) => !unless.contains(&if value { "true" } else { "false" }),
        Some(_) => true,
        None => !(value.items().is_empty() && value.entries().is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ParseOptions, parse_documents};

    /// A `spec` with the field, as JSON.
    fn spec_with(path: &str) -> String {
        match path.split_once('.') {
            Some((step, rest)) => wrap(step, &spec_with(rest)),
            None => wrap(path, "\"?\""),
        }
    }

    fn wrap(step: &str, value: &str) -> String {
        match step.strip_suffix("[]") {
            Some(name) => format!("{{\"{name}\": [{value}]}}"),
            None => format!("{{\"{step}\": {value}}}"),
        }
    }

    #[test]
    fn every_kind_without_effect_is_reported_once() {
        for kind in KINDS_NOT_YET {
            let (version, name) = (kind.api_version(), kind.name());
            let text = format!("{{apiVersion: {version}, kind: {name}, metadata: {{name: a}}, spec: {{}}}}");
            let diagnostics = parse_documents(text.as_bytes(), "f", &ParseOptions::default()).diagnostics;
            let said = diagnostics.iter().filter(|d| d.code == CODE && d.path.is_empty());
            assert_eq!(said.count(), 1, "{kind}: {diagnostics:?}");
        }
    }

    #[test]
    fn every_entry_names_a_field_and_is_reported() {
        let here = NOT_YET.iter().map(|entry| (entry, CODE));
        let elsewhere = ELSEWHERE.iter().map(|one| (&one.field, ELSEWHERE_CODE));
        for (entry, code) in here.chain(elsewhere) {
            let (version, kind, spec) = (entry.kind.api_version(), entry.kind.name(), spec_with(entry.path));
            let text = format!("{{apiVersion: {version}, kind: {kind}, metadata: {{name: a}}, spec: {spec}}}");
            let diagnostics = parse_documents(text.as_bytes(), "f", &ParseOptions::default()).diagnostics;
            assert!(
                diagnostics.iter().all(|d| d.code != "unknown-field"),
                "{kind} {} is no field",
                entry.path
            );
            let path = format!("spec.{}", entry.path.replace("[]", "[0]"));
            let said = diagnostics.iter().any(|d| d.code == code && d.path.to_string() == path);
            assert!(said, "{kind} {}: {diagnostics:?}", entry.path);
        }
    }
}
