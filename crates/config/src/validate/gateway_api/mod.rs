//! The kinds of the Gateway API: the rules that their CRDs state in CEL, and a few that tell of mistakes.
//!
//! Required fields, bounds, patterns and unique keys are checked by their schemas.

mod filter;
mod gateway;
mod policy;
mod route;

pub(super) use gateway::{check_gateway, check_listener_set};
pub(super) use policy::{check_backend_tls, check_backend_traffic, check_inference_pool};
pub(super) use route::{check_grpc, check_http, check_tcp, check_tls, check_udp};

use crate::diagnostic::FieldPath;
use crate::validate::{Report, regex};

/// A reference to a Service says which port.
fn service_port(r: &mut Report, path: &FieldPath, group: &str, kind: &str, has_port: bool) {
    if group.is_empty() && kind == "Service" && !has_port {
        r.error(
            &path.field("port"),
            "missing-field",
            "a reference to a Service needs a port",
        );
    }
}

/// A field that goes together with a type: it is there if, and only if, the type is this one. It is said of the message that
/// has both, so that nothing is said where the type could not be read.
fn goes_together(r: &mut Report, path: &FieldPath, kind: &str, wanted: &str, field: &str, is_set: bool) {
    match (kind == wanted, is_set) {
        (true, false) => r.error(path, "missing-field", format!("the type {kind} needs {field}")),
        (false, true) => {
            let message = format!("{field} goes with the type {wanted}, not with {kind}");
            r.error(path, "exclusive-fields", message);
        }
        _ => {}
    }
}

/// A regular expression, which the API takes as it is and Envoy would refuse.
fn regular_expression(r: &mut Report, path: &FieldPath, text: &str) {
    if let Some(problem) = regex::problem(text) {
        r.warning(path, "bad-regex", format!("{problem}; the route cannot be used"));
    }
}
