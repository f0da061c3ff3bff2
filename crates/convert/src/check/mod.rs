//! Compares the configuration of gateway proxies before and after a conversion.
//!
//! Before, one simulated proxy has the labels that the original Gateways select. After, one has the label of each new
//! Gateway, or is an endpoint of the Service that the user named. Both worlds have all given objects; the second one has the new objects in the place of those that they replace.
//! Secrets and Services that are not among the objects are simulated ([`Report::assumed`]).
//!
//! Listeners are compared by port and SNI, and hosts by the routes that requests for them use. Not compared: names,
//! metadata, statistics, traces, the status for a destination that does not exist, and requests whose host is not their SNI.

mod canonical;
mod compare;
mod path;
mod proxy;
mod surroundings;
mod view;

use std::collections::BTreeSet;
use std::sync::Arc;

use config::{AnyObject, Kind, MeshConfig, ObjectKey, StringMap};
use registry::inputs::MeshSettings;
use world::{Batch, World};

use crate::{Conversion, Options};
pub(crate) use path::Text;

use proxy::Gateway as Simulated;
use view::View;

/// The label of proxies with the name of their Gateway.
const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";

/// The result of a check.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// One entry for each host of each port.
    pub hosts: Vec<HostReport>,
    /// Clusters that routes use before and after, and that differ.
    pub clusters: Vec<ClusterReport>,
    /// Objects that are not among the given ones, and are assumed to exist.
    pub assumed: Vec<ObjectKey>,
}

/// A host at a port, and what differs.
#[derive(Clone, PartialEq, Debug)]
pub struct HostReport {
    /// The port of the listener.
    pub port: u64,
    /// Whether the listener terminates TLS.
    pub secure: bool,
    /// Whether it serves HTTP; else connections.
    pub http: bool,
    /// The host, or the server name of connections; `*` for all others.
    pub host: String,
    /// The differences; empty if there are none.
    pub differences: Vec<String>,
}

/// A cluster, and what differs.
#[derive(Clone, PartialEq, Debug)]
pub struct ClusterReport {
    /// Its name: `outbound|PORT|SUBSET|HOST`.
    pub name: String,
    /// The differences.
    pub differences: Vec<String>,
}

/// The configuration of a simulated proxy cannot be derived.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("cannot derive the configuration of a gateway proxy: {0}")]
pub struct CheckError(pub(crate) String);

impl HostReport {
    /// The protocol of clients.
    pub fn protocol(&self) -> &'static str {
        match (self.http, self.secure) {
            (true, true) => "HTTPS",
            (true, false) => "HTTP",
            // A listener that does not terminate TLS selects connections by their server name.
            (false, secure) if secure || self.host != "*" => "TLS",
            (false, _) => "TCP",
        }
    }
}

impl Report {
    /// Whether nothing differs.
    pub fn is_equal(&self) -> bool {
        self.clusters.is_empty() && self.hosts.iter().all(|host| host.differences.is_empty())
    }
}

/// Derives the original objects and the converted ones, and compares what gateway proxies do.
///
/// # Errors
/// The configuration of a proxy cannot be derived, which is a defect of the control plane.
pub fn check(objects: &[AnyObject], conversion: &Conversion, options: &Options) -> Result<Report, CheckError> {
    let added = surroundings::all(objects, conversion, options);
    let gone: BTreeSet<Kind> = [Kind::Gateway, Kind::Ingress].into();
    let kept = objects.iter().filter(|object| !gone.contains(&object.kind()));
    let old: Vec<AnyObject> = objects.iter().chain(&added).cloned().collect();
    let new: Vec<AnyObject> = kept.chain(&added).chain(&conversion.objects).cloned().collect();
    let (mut before, mut after) = (world(&old, &options.mesh), world(&new, &options.mesh));
    let shown = |kind: Kind| [Kind::GatewayClass, Kind::Secret, Kind::Service, Kind::ServiceEntry].contains(&kind);
    let assumed = added.iter().map(AnyObject::key).filter(|key| shown(key.kind));
    let mut report = Report { assumed: assumed.collect(), ..Report::default() };
    let see = |world: &mut World, name: &str, namespace: &Arc<str>, labels: StringMap| {
        proxy::seen(world, &Simulated { name, namespace, labels }).map(|seen| View::of(&seen, namespace))
    };
    // The proxies of a Service serve all Gateways together.
    if let Some(service) = &options.service {
        let mut old = View::default();
        for group in &conversion.groups {
            old.join(see(&mut before, "before", &group.namespace, group.labels.clone())?);
        }
        let new = see(&mut after, "after", &service.namespace, StringMap::new())?;
        report.hosts = compare::views(&old, &new);
        report.clusters = compare::clusters(&old, &new);
        return Ok(report);
    }
    for group in &conversion.groups {
        let old = see(&mut before, "before", &group.namespace, group.labels.clone())?;
        let mut new = View::default();
        for gateway in &group.gateways {
            let labels = StringMap::from([(GATEWAY_NAME.into(), gateway.name.clone())]);
            new.join(see(&mut after, "after", &gateway.namespace, labels)?);
        }
        report.hosts.extend(compare::views(&old, &new));
        report.clusters.extend(compare::clusters(&old, &new));
    }
    Ok(report)
}

/// A world with these objects.
pub(crate) fn world(objects: &[AnyObject], mesh: &MeshConfig) -> World {
    let settings = MeshSettings { config: mesh.clone(), ..MeshSettings::default() };
    let mut world = World::new(settings, 1);
    let mut batch = Batch::new();
    for object in objects {
        match object {
            AnyObject::MeshConfig(_) => {}
            object => batch.put(object.clone()),
        }
    }
    world.commit(batch);
    world
}
