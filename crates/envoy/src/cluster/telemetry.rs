//! What clusters tell telemetry of the services that they are of.

use model::service::{Registry, Service, ServicePort};
use protos::{Value, value::Kind};

use crate::parts::{object, text};

/// The field `services` of a cluster's metadata: its service.
pub(super) fn services(service: &Service) -> (&'static str, Value) {
    let about = object([
        ("host", text(service.key.hostname.as_str())),
        ("name", text(short_name(service))),
        ("namespace", text(&*service.key.namespace)),
    ]);
    let about = Value {
        kind: Some(Kind::StructValue(about)),
    };
    let list = prost_types::ListValue { values: vec![about] };
    let list = Value {
        kind: Some(Kind::ListValue(list)),
    };
    ("services", list)
}

/// A pattern of the mesh for names in statistics, filled in. `target` is the workload's port, 0 towards others.
pub(super) fn stat_prefix(pattern: &str, service: &Service, port: &ServicePort, subset: &str, target: &str) -> String {
    let host = service.key.hostname.as_str();
    let short = match service.registry {
        Registry::Kubernetes | Registry::Import => format!("{}.{}", service.object.name, service.key.namespace),
        Registry::ServiceEntry => host.to_owned(),
    };
    let values = [
        ("%SERVICE%", &*short),
        ("%SERVICE_NAME%", short_name(service)),
        ("%SERVICE_FQDN%", host),
        ("%SUBSET_NAME%", subset),
        ("%TARGET_PORT%", target),
        ("%SERVICE_PORT%", &port.number.to_string()),
        ("%SERVICE_PORT_NAME%", &port.name),
    ];
    values.into_iter().fold(pattern.to_owned(), |name, (operator, value)| {
        name.replace(operator, value)
    })
}

/// The short name of a Kubernetes service; the hostname of others.
fn short_name(service: &Service) -> &str {
    match service.registry {
        Registry::Kubernetes | Registry::Import => &service.object.name,
        Registry::ServiceEntry => service.key.hostname.as_str(),
    }
}
