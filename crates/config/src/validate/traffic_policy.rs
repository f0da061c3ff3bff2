//! Traffic policies: of DestinationRules, their subsets and ports, and of the mesh configuration.

use crate::decode::{Relations, Report};
use crate::istio::*;
use crate::object::Meta;
use crate::problem::FieldPath;

/// Checks references to ConfigMaps in the policies of a DestinationRule.
pub(super) fn config_maps(r: &mut Report, meta: &Meta, spec: &DestinationRule) {
    let path = FieldPath::spec();
    let subsets = spec.subsets.iter().enumerate();
    let subsets = subsets.map(|(index, subset)| (path.field("subsets").index(index), &subset.traffic_policy));
    for (at, policy) in subsets.chain([(path.clone(), &spec.traffic_policy)]) {
        let Some(policy) = policy else {
            continue;
        };
        let at = at.field("trafficPolicy");
        config_map(r, &at.field("tls"), &meta.namespace, policy.tls.as_ref());
        for (index, port) in policy.port_level_settings.iter().enumerate() {
            let at = at.field("portLevelSettings").index(index).field("tls");
            config_map(r, &at, &meta.namespace, port.tls.as_ref());
        }
    }
}

/// Checks a reference to a ConfigMap with CA certificates, `configmap://NAMESPACE/NAME`. It must be in the object's
/// namespace, which is empty for the mesh configuration.
pub(super) fn config_map(r: &mut Report, path: &FieldPath, namespace: &str, tls: Option<&ClientTlsSettings>) {
    let Some(name) = tls.and_then(|tls| tls.credential_name.strip_prefix("configmap://")) else {
        return;
    };
    let message = match name.split_once('/') {
        Some((other, name)) if !other.is_empty() && !name.is_empty() && !name.starts_with('/') => {
            if other == namespace {
                return;
            }
            format!("the ConfigMap must be in the object's namespace, {namespace:?}, not in {other:?}")
        }
        _ => "the reference must have the form configmap://NAMESPACE/NAME".to_owned(),
    };
    r.error(&path.field("credentialName"), "bad-value", message);
}

impl Relations for TrafficPolicy {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        failover(r, path, self.load_balancer.as_ref(), self.outlier_detection.as_ref());
    }
}

impl Relations for PortTrafficPolicy {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        failover(r, path, self.load_balancer.as_ref(), self.outlier_detection.as_ref());
        let port = self.port.as_ref().map(|port| port.number);
        if let Some(number) = port.filter(|number| !(1..=65535).contains(number)) {
            let message = format!("port {number} is invalid, so the settings have no effect");
            r.warning(&path.field("port").field("number"), "no-effect", message);
        }
    }
}

/// Reports failover that has no effect.
fn failover(
    r: &mut Report,
    path: &FieldPath,
    balancer: Option<&LoadBalancerSettings>,
    outlier: Option<&OutlierDetection>,
) {
    let Some(balancer) = balancer.filter(|_| outlier.is_none()) else {
        return;
    };
    let locality = balancer.locality_lb_setting.as_ref();
    let zone = balancer.zone_aware_lb_setting.as_ref();
    let settings = [
        ("localityLbSetting", locality.map(|s| (&s.failover, &s.failover_priority))),
        ("zoneAwareLbSetting", zone.map(|s| (&s.failover, &s.failover_priority))),
    ];
    for (field, setting) in settings {
        if setting.is_some_and(|(failover, priority)| !failover.is_empty() || !priority.is_empty()) {
            let message = "failover has no effect without outlierDetection, which detects unhealthy endpoints";
            r.warning(&path.field("loadBalancer").field(field), "no-effect", message);
        }
    }
}

impl Relations for HttpPoolSettings {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        if self.h2_upgrade_policy == H2UpgradePolicy::Upgrade && self.use_client_protocol {
            let message = "useClientProtocol cannot be combined with h2UpgradePolicy UPGRADE";
            r.error(&path.field("useClientProtocol"), "exclusive-fields", message);
        }
    }
}

impl Relations for OutlierDetection {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        let local = self.consecutive_local_origin_failures.unwrap_or(0) > 0;
        if local && !self.split_external_local_origin_errors {
            let message = "consecutiveLocalOriginFailures requires splitExternalLocalOriginErrors";
            let at = path.field("consecutiveLocalOriginFailures");
            r.error(&at, "exclusive-fields", message);
        }
    }
}

impl Relations for ClientTlsSettings {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        let verifies = matches!(self.mode, ClientTlsMode::Simple | ClientTlsMode::Mutual);
        let has_secret = !self.credential_name.is_empty();
        if self.insecure_skip_verify == Some(true) && verifies {
            let ca = !self.ca_certificates.is_empty() || (self.mode == ClientTlsMode::Simple && has_secret);
            if ca || !self.subject_alt_names.is_empty() {
                let message =
                    "insecureSkipVerify disables verification, so caCertificates and subjectAltNames must not be set";
                r.error(&path.field("insecureSkipVerify"), "exclusive-fields", message);
            }
        }
        let files = [
            ("clientCertificate", &self.client_certificate),
            ("privateKey", &self.private_key),
            ("caCertificates", &self.ca_certificates),
            ("caCrl", &self.ca_crl),
        ];
        if verifies && has_secret && files.iter().any(|(_, file)| !file.is_empty()) {
            let message = "credentialName cannot be combined with paths of certificates";
            r.error(&path.field("credentialName"), "exclusive-fields", message);
        }
        if self.mode == ClientTlsMode::Mutual && !has_secret {
            for (field, _) in files[..2].iter().filter(|(_, file)| file.is_empty()) {
                let message = format!("the mode MUTUAL requires {field} or credentialName");
                r.error(&path.field(*field), "missing-field", message);
            }
        }
    }
}
