//! Kinds and fields that are read but have no effect yet. Each gets a warning, so that nothing is ignored in silence.
//!
//! [`KINDS_NOT_YET`] and [`NOT_YET`] are the only places that know: take an entry out when it takes effect.

use crate::decode::{Problem, is_json_name, json_name};
use crate::diagnostic::{FieldPath, Segment, Severity};
use crate::object::Kind;
use crate::yaml::{Node, Scalar};

/// The code of the warnings.
pub const CODE: &str = "not-implemented-yet";

/// The kinds without effect. Their objects are read and validated all the same.
pub const KINDS_NOT_YET: &[Kind] = &[
    AuthorizationPolicy,
    PeerAuthentication,
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
    /// The kind that has it.
    pub kind: Kind,
    /// The way to it from `spec`, with the names of JSON: `http[].fault`. `[]` stands for every entry of a list.
    pub path: &'static str,
    /// Values (of an enumeration or boolean) with which the field asks for nothing.
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

/// The fields without effect.
pub const NOT_YET: &[Entry] = &[
    entry(WorkloadGroup, "probe"),
    entry(MeshConfig, "hboneIdleTimeout"),
    unless(MeshConfig, "enableTracing", &["false"]),
    unless(MeshConfig, "enableEnvoyAccessLogService", &["false"]),
    entry(MeshConfig, "defaultConfig.tracing"),
    entry(MeshConfig, "defaultConfig.privateKeyProvider"),
    entry(MeshConfig, "defaultConfig.envoyAccessLogService"),
    entry(MeshConfig, "defaultConfig.envoyMetricsService"),
    entry(MeshConfig, "defaultConfig.caCertificatesPem"),
    entry(MeshConfig, "configSources[].subscribedResources"),
    unless(MeshConfig, "enableAutoMtls", &["false"]),
    entry(MeshConfig, "caCertificates"),
    entry(MeshConfig, "certificates"),
    entry(MeshConfig, "serviceScopeConfigs"),
    unless(MeshConfig, "enablePrometheusMerge", &["false"]),
    entry(MeshConfig, "ca"),
    entry(MeshConfig, "extensionProviders"),
    entry(MeshConfig, "defaultProviders"),
    entry(MeshConfig, "meshMTLS"),
];

/// The warnings for an object: one for its kind, or those for what is written in its `spec`.
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

/// Whether an object is a Gateway that only says where a network is entered: as such it has an effect.
fn is_network_gateway(kind: Kind, root: &Node) -> bool {
    let labels = root.get("metadata").and_then(|metadata| metadata.get("labels"));
    kind == KubeGateway && labels.is_some_and(|labels| labels.get("topology.istio.io/network").is_some())
}

/// The warnings for what is written in an object's `spec`.
pub(crate) fn warnings(kind: Kind, spec: &Node) -> Vec<Problem> {
    let mut problems = Vec::new();
    for entry in NOT_YET.iter().filter(|e| e.kind == kind) {
        walk(entry, entry.path, spec, FieldPath::spec(), &mut problems);
    }
    problems
}

/// Follows the rest of an entry's path wherever it leads.
fn walk(entry: &Entry, rest: &'static str, node: &Node, path: FieldPath, problems: &mut Vec<Problem>) {
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
                walk(entry, after, item, path.index(index), problems);
            }
        }
        (false, "") => {
            if asks_for_something(&found.value, entry.unless) {
                problems.push(Problem {
                    path,
                    at: found.at,
                    severity: Severity::Warning,
                    code: CODE,
                    message: "this is not implemented yet and has no effect".to_owned(),
                    hint: None,
                });
            }
        }
        (false, _) => walk(entry, after, &found.value, path, problems),
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

    /// A `spec` that has the field and little else, as JSON.
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
        for entry in NOT_YET {
            let (version, kind, spec) = (entry.kind.api_version(), entry.kind.name(), spec_with(entry.path));
            let text = format!("{{apiVersion: {version}, kind: {kind}, metadata: {{name: a}}, spec: {spec}}}");
            let diagnostics = parse_documents(text.as_bytes(), "f", &ParseOptions::default()).diagnostics;
            assert!(
                diagnostics.iter().all(|d| d.code != "unknown-field"),
                "{kind} {} is no field",
                entry.path
            );
            let path = format!("spec.{}", entry.path.replace("[]", "[0]"));
            let said = diagnostics.iter().any(|d| d.code == CODE && d.path.to_string() == path);
            assert!(said, "{kind} {}: {diagnostics:?}", entry.path);
        }
    }
}
