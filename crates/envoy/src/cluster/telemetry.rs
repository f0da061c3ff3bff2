//! Cluster metadata about services, for telemetry.

use model::service::Service;
use protos::{Value, value::Kind};
use traffic::stats;

use crate::parts::{object, text};

/// The field `services` of a cluster's metadata.
pub(super) fn services(service: &Service) -> (&'static str, Value) {
    let about = object([
        ("host", text(service.key.hostname.as_str())),
        ("name", text(stats::short_name(service))),
        ("namespace", text(&*service.key.namespace)),
    ]);
    let about = Value { kind: Some(Kind::StructValue(about)) };
    let list = prost_types::ListValue { values: vec![about] };
    let list = Value { kind: Some(Kind::ListValue(list)) };
    ("services", list)
}
