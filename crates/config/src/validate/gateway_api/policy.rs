//! Policies about backends, sessions, and pools.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{goes_together, service_port};
use crate::diagnostic::FieldPath;
use crate::gateway_api::GatewayDuration;
use crate::gateway_api::backend_policy::{BackendTlsPolicy, BackendTrafficPolicy, SubjectAltNameType};
use crate::gateway_api::inference_pool::InferencePool;
use crate::gateway_api::reference::PolicyTarget;
use crate::gateway_api::session::{CookieLifetimeType, SessionPersistence};
use crate::validate::Report;

/// The longest time over which requests are counted.
const HOUR: Duration = Duration::from_secs(3600);

pub(crate) fn check_backend_tls(r: &mut Report, spec: &BackendTlsPolicy) {
    let path = FieldPath::spec();
    targets(r, &path.field("targetRefs"), &spec.target_refs);
    let (at, validation) = (path.field("validation"), &spec.validation);
    match (
        validation.ca_certificate_refs.is_empty(),
        &validation.well_known_ca_certificates,
    ) {
        (true, None) => {
            let message = "caCertificateRefs or wellKnownCACertificates is needed";
            r.error(&at, "missing-field", message);
        }
        (false, Some(_)) => {
            let message = "caCertificateRefs and wellKnownCACertificates exclude each other";
            r.error(&at.field("wellKnownCACertificates"), "exclusive-fields", message);
        }
        _ => {}
    }
    for (index, name) in validation.subject_alt_names.iter().enumerate() {
        let at = at.field("subjectAltNames").index(index);
        let kind = name.kind.name();
        let hostname = SubjectAltNameType::Hostname.name();
        goes_together(r, &at, kind, hostname, "hostname", name.hostname.is_some());
        goes_together(r, &at, kind, SubjectAltNameType::Uri.name(), "uri", name.uri.is_some());
    }
}

/// A target that is there more than once is told apart by its section.
fn targets(r: &mut Report, path: &FieldPath, targets: &[PolicyTarget]) {
    fn whole(t: &PolicyTarget) -> (&str, &str, &str) {
        (&t.group, &t.kind, &t.name)
    }
    for (index, target) in targets.iter().enumerate() {
        let mut earlier = targets[..index].iter().filter(|other| whole(other) == whole(target));
        let at = path.index(index);
        if earlier
            .clone()
            .any(|other| other.section_name.is_some() != target.section_name.is_some())
        {
            let message = format!(
                "{} {} is named more than once, and needs sectionName each time",
                target.kind, target.name
            );
            r.error(&at, "ambiguous", message);
        } else if earlier.any(|other| other == target) {
            let message = format!("the same part of {} {} is named twice", target.kind, target.name);
            r.error(&at, "duplicate", message);
        }
    }
}

pub(crate) fn check_backend_traffic(r: &mut Report, spec: &BackendTrafficPolicy) {
    let path = FieldPath::spec();
    session(r, &path.field("sessionPersistence"), spec.session_persistence.as_ref());
    let Some(constraint) = &spec.retry_constraint else {
        return;
    };
    let at = path.field("retryConstraint");
    if !(Duration::from_secs(1)..=HOUR).contains(&constraint.budget.interval.get()) {
        let message = "the interval must be from 1s to 1h";
        r.error(&at.field("budget").field("interval"), "out-of-range", message);
    }
    let interval = constraint.min_retry_rate.interval.map(GatewayDuration::get);
    if interval.is_some_and(|interval| interval.is_zero() || interval > HOUR) {
        let message = "the interval must not be zero or longer than 1h";
        r.error(&at.field("minRetryRate").field("interval"), "out-of-range", message);
    }
}

/// How a session is known, of a rule or of a policy.
pub(super) fn session(r: &mut Report, path: &FieldPath, session: Option<&SessionPersistence>) {
    let Some(session) = session else {
        return;
    };
    let kind = session.kind.name();
    goes_together(r, path, kind, "Cookie", "cookie", session.cookie.is_some());
    goes_together(r, path, kind, "Header", "header", session.header.is_some());
    let permanent = session
        .cookie
        .as_ref()
        .is_some_and(|cookie| cookie.lifetime_type == CookieLifetimeType::Permanent);
    if permanent && session.absolute_timeout.is_none() {
        r.error(
            &path.field("absoluteTimeout"),
            "missing-field",
            "a permanent cookie needs absoluteTimeout",
        );
    }
}

pub(crate) fn check_inference_pool(r: &mut Report, spec: &InferencePool) {
    let path = FieldPath::spec();
    let mut seen = BTreeSet::new();
    for (index, port) in spec.target_ports.iter().enumerate() {
        if !seen.insert(port.number) {
            let message = format!("the port {} is there twice", port.number);
            r.error(
                &path.field("targetPorts").index(index).field("number"),
                "duplicate",
                message,
            );
        }
    }
    if let Some(picker) = &spec.endpoint_picker_ref {
        // Services of any group need one here.
        let group = if &*picker.kind == "Service" { "" } else { &picker.group };
        service_port(
            r,
            &path.field("endpointPickerRef"),
            group,
            &picker.kind,
            picker.port.is_some(),
        );
    }
}
