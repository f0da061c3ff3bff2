//! Sidecar.

use std::collections::{BTreeMap, BTreeSet};

use crate::decode::{Relations, Report};
use crate::form;
use crate::istio::*;
use crate::object::Meta;
use crate::problem::FieldPath;

impl Relations for Sidecar {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        let mut seen = BTreeSet::new();
        for (index, listener) in self.egress.iter().enumerate() {
            let at = path.field("egress").index(index);
            let Some(port) = &listener.port else {
                if index + 1 < self.egress.len() {
                    let message =
                        "a listener without a port applies to all remaining ports; it must be the last listener";
                    r.error(&at, "exclusive-fields", message);
                }
                continue;
            };
            let socket = if port.number == 0 { &*listener.bind } else { "" };
            if !seen.insert((port.number, socket)) {
                let message = "duplicate egress listener for this port or socket";
                r.error(&at.field("port"), "duplicate", message);
            }
        }
    }
}

impl Relations for IngressListener {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        let Some(port) = &self.port else {
            return;
        };
        if port.number == 0 {
            let message = "a port must be between 1 and 65535, not 0";
            r.error(&path.field("port").field("number"), "out-of-range", message);
        }
        if let Some(tls) = &self.tls {
            ingress_tls(r, &path.field("tls"), tls, port);
        }
        let http = self.connection_pool.as_ref().is_some_and(|pool| pool.http.is_some());
        if http && !port.kind().is_http() {
            let at = path.field("connectionPool").field("http");
            r.warning(&at, "no-effect", "http settings have no effect: the port is not HTTP");
        }
    }
}

fn ingress_tls(r: &mut Report, path: &FieldPath, tls: &ServerTlsSettings, port: &SidecarPort) {
    let unsupported = [
        ("subjectAltNames", !tls.subject_alt_names.is_empty()),
        ("httpsRedirect", tls.https_redirect),
        ("credentialName", !tls.credential_name.is_empty()),
        ("credentialNames", !tls.credential_names.is_empty()),
        ("tlsCertificates", !tls.tls_certificates.is_empty()),
    ];
    r.none_of(path, &unsupported, "unsupported", |field| format!("{field} is not supported in ingress listeners"));
    if matches!(tls.mode, ServerTlsMode::IstioMutual | ServerTlsMode::AutoPassthrough) {
        let message = format!("{} is not supported in ingress listeners", tls.mode.name());
        r.error(&path.field("mode"), "unsupported", message);
    }
    if !port.kind().is_tls() {
        r.error(path, "exclusive-fields", "tls requires protocol HTTPS or TLS");
    }
}

impl Relations for EgressListener {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        let on_socket = self.bind.starts_with(form::UNIX);
        match &self.port {
            Some(port) if port.number == 0 => {
                if !on_socket {
                    let message = "a port without a number requires a Unix domain socket in bind";
                    r.error(&path.field("bind"), "missing-field", message);
                }
                if self.capture_mode == CaptureMode::Iptables {
                    let message = "IPTABLES is not supported for a Unix domain socket";
                    r.error(&path.field("captureMode"), "exclusive-fields", message);
                }
            }
            Some(_) if on_socket => r.form(&path.field("bind"), form::ip, &self.bind),
            _ => {}
        }
    }
}

/// Reports hosts of egress listeners that other hosts include.
pub(super) fn overlaps(r: &mut Report, meta: &Meta, spec: &Sidecar) {
    for (index, listener) in spec.egress.iter().enumerate() {
        let path = FieldPath::spec().field("egress").index(index).field("hosts");
        let mut seen: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (index, text) in listener.hosts.iter().enumerate() {
            let Some((namespace, host)) = text.split_once('/').filter(|(name, _)| !name.starts_with('~')) else {
                continue;
            };
            let namespace = if namespace == "." { &meta.namespace } else { namespace };
            let known = seen.entry(namespace).or_default();
            if known.contains(host) || known.contains("*") || (host == "*" && !known.is_empty()) {
                let message = format!("{text:?} overlaps with another entry");
                r.warning(&path.index(index), "duplicate", message);
            }
            known.insert(host);
        }
        let everything = seen.get("*").is_some_and(|hosts| hosts.contains("*"));
        if everything && seen.len() > 1 {
            let message = "*/* includes all hosts; the other entries have no effect";
            r.warning(&path, "duplicate", message);
        }
    }
}

impl Relations for OutboundTrafficPolicy {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        if self.mode == OutboundMode::AllowAnyDynamicDns {
            let message = "ALLOW_ANY_DYNAMIC_DNS is supported in MeshConfig only";
            r.error(&path.field("mode"), "unsupported", message);
        }
        let Some(proxy) = &self.egress_proxy else {
            return;
        };
        let at = path.field("egressProxy");
        if self.mode != OutboundMode::AllowAny {
            r.error(&at, "exclusive-fields", "egressProxy requires the mode ALLOW_ANY");
        }
        if proxy.port.is_none() {
            r.error(&at, "missing-field", "egressProxy requires a port");
        }
        if proxy.host.contains('*') {
            r.form(&at.field("host"), form::name, &proxy.host);
        }
    }
}
