//! Converts Ingresses and Istio's Gateways and VirtualServices to the Gateway API, and compares the results.
//!
//! ```text
//! objects ─convert─► Conversion { objects, remarks, groups } ─► output
//!     │                    │
//!     └──► World           └──► World
//!            └── proxies ── check ── proxies ──► Report: the hosts, and what differs
//! ```
//!
//! [`convert()`] names each field that the Gateway API does not have, with object, path and remedy, as a [`Diagnostic`]: a
//! warning if behavior is lost, else info. It leaves nothing out without a diagnostic. A condition that the Gateway API does
//! not have is never dropped from a match, because the match would get requests that it must not get: the match is left out.
//!
//! [`check()`] does not trust the conversion. It derives the configuration of simulated gateway proxies from the original
//! and from the converted objects with the rules of the control plane, and compares what the listeners and routes match and
//! do, in a canonical form (`check::canonical`). Names, metadata and statistics are not compared.
//!
//! The crate is pure.

mod action;
mod backend;
pub mod check;
mod connections;
mod context;
mod gateway;
mod ingress;
mod listener;
mod matching;
mod order;
mod policy;
mod routes;
mod rule;

pub use check::{CheckError, ClusterReport, HostReport, Report, check};

use std::sync::Arc;

use config::{AnyObject, Diagnostic, Kind, MeshConfig, ObjectKey, ParseOptions, StringMap, read_object};
use model::service::ObjectId;
use serde_json::{Value as Json, json};

use context::Context;

/// Options of the conversion.
#[derive(Clone, Debug)]
pub struct Options {
    /// The class of the Gateways.
    pub gateway_class: Arc<str>,
    /// The Service of existing gateway proxies that serve the Gateways. If `None`, the Gateways have proxies of their own.
    pub service: Option<ObjectId>,
    /// The conversion of path prefixes that end within a segment.
    pub prefixes: Prefixes,
    /// The DNS domain of Kubernetes services.
    pub domain: Arc<str>,
    /// The mesh configuration.
    pub mesh: MeshConfig,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            gateway_class: "istio".into(),
            service: None,
            prefixes: Prefixes::Exact,
            domain: "cluster.local".into(),
            mesh: MeshConfig::default(),
        }
    }
}

/// The conversion of path prefixes that end within a segment: `/a` also matches `/ab`, which `PathPrefix` does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prefixes {
    /// A regular expression that matches the same paths.
    Exact,
    /// `PathPrefix`, which matches whole segments.
    Segments,
}

/// The result of a conversion.
#[derive(Clone, Debug, Default)]
pub struct Conversion {
    /// The new objects: Gateways, HTTPRoutes, TLSRoutes, TCPRoutes, ReferenceGrants.
    pub objects: Vec<AnyObject>,
    /// The objects that they replace. A VirtualService may be needed for sidecars, and is not here.
    pub replaced: Vec<ObjectKey>,
    /// Warnings name what cannot be expressed, infos what to know.
    pub remarks: Vec<Diagnostic>,
    /// The proxies before and after.
    pub groups: Vec<Group>,
}

/// The proxies that serve the same original objects, and the Gateways that replace them.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// The labels of the proxies.
    pub labels: StringMap,
    /// Their namespace.
    pub namespace: Arc<str>,
    /// The converted Gateways.
    pub gateways: Vec<ObjectId>,
}

impl Conversion {
    /// Whether nothing is lost.
    pub fn is_complete(&self) -> bool {
        self.remarks.iter().all(|remark| remark.severity == config::Severity::Info)
    }

    /// The new objects as JSON.
    pub fn json(&self) -> Vec<Json> {
        self.objects.iter().map(to_json).collect()
    }
}

/// The code of a diagnostic about something that the Gateway API cannot express.
pub const NOT_EXPRESSIBLE: &str = "not-expressible";
/// The code of a diagnostic about something that is expressed in another way.
pub const CONVERTED: &str = "converted";

/// Converts all Ingresses, and Istio's Gateways and VirtualServices, among the objects. The others, such as Services, are
/// read for what they tell about these.
pub fn convert(objects: &[AnyObject], options: &Options) -> Conversion {
    let mut cx = Context::new(objects, options);
    let gateways = gateway::convert(&mut cx);
    let ingress = ingress::convert(&mut cx);
    routes::convert(&mut cx, &gateways);
    let mut groups: Vec<Group> = Vec::new();
    for placed in gateways.iter().chain(&ingress) {
        match groups.iter_mut().find(|group| group.labels == placed.labels && group.namespace == placed.proxies) {
            Some(group) => group.gateways.extend(placed.id.clone()),
            None => groups.push(Group {
                labels: placed.labels.clone(),
                namespace: placed.proxies.clone(),
                gateways: placed.id.iter().cloned().collect(),
            }),
        }
    }
    let mut conversion = cx.finish();
    conversion.groups = groups;
    validate(&mut conversion);
    conversion
}

/// An object as JSON.
pub fn to_json(object: &AnyObject) -> Json {
    let (kind, meta) = (object.kind(), object.meta());
    let version = kind.versions().first().copied().unwrap_or("v1");
    let mut spec = object.spec_json();
    if matches!(kind, Kind::HttpRoute | Kind::TcpRoute | Kind::TlsRoute) {
        tidy(&mut spec);
    }
    json!({
        "apiVersion": format!("{}/{version}", kind.group()),
        "kind": kind.name(),
        "metadata": {"name": &*meta.name, "namespace": &*meta.namespace},
        "spec": spec,
    })
}

/// Leaves out defaults that nobody writes, and adds the types of paths.
fn tidy(spec: &mut Json) {
    let without = |value: &mut Json, defaults: &[(&str, Json)]| {
        let Some(fields) = value.as_object_mut() else { return };
        fields.retain(|name, value| !defaults.iter().any(|(default, of)| default == name && of == value));
    };
    let items = |value: &mut Json, name: &str| -> Vec<Json> {
        value.get_mut(name).and_then(Json::as_array_mut).map(std::mem::take).unwrap_or_default()
    };
    let put = |value: &mut Json, name: &str, items: Vec<Json>| {
        if !items.is_empty() {
            value[name] = items.into();
        }
    };
    let mut parents = items(spec, "parentRefs");
    let defaults = [("group", Kind::KubeGateway.group().into()), ("kind", Kind::KubeGateway.name().into())];
    parents.iter_mut().for_each(|parent| without(parent, &defaults));
    put(spec, "parentRefs", parents);
    let mut rules = items(spec, "rules");
    for rule in &mut rules {
        let mut backends = items(rule, "backendRefs");
        let alone = backends.len() == 1;
        for backend in &mut backends {
            without(backend, &[("kind", "Service".into())]);
            if alone {
                without(backend, &[("weight", 1.into())]);
            }
        }
        put(rule, "backendRefs", backends);
        let mut matches = items(rule, "matches");
        for one in &mut matches {
            if one["path"]["type"].is_null() {
                let value = one["path"]["value"].as_str().unwrap_or("/").to_owned();
                one["path"] = json!({"type": "PathPrefix", "value": value});
            }
        }
        put(rule, "matches", matches);
    }
    put(spec, "rules", rules);
}

/// Reads the new objects like a server, and reports those that it would refuse. They stay, so that users see them.
fn validate(conversion: &mut Conversion) {
    for object in &conversion.objects {
        let read = read_object(&to_json(object), &ParseOptions::default());
        let bad = read.diagnostics.into_iter().filter(Diagnostic::is_error);
        conversion.remarks.extend(bad.map(|problem| Diagnostic {
            message: format!("the converted object is not valid: {}", problem.message),
            ..problem
        }));
    }
}
