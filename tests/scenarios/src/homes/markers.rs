//! Objects that show how far a source has read.
//!
//! Each kind is watched separately and in order. After an edit, the marker of every kind that it touched gets another
//! label. When the source has reported the markers with these labels, it has reported the edit. Reports of earlier states
//! of a marker, which a source may repeat, do not count.

use std::collections::{BTreeMap, BTreeSet};

use config::{AnyObject, ChangeSet, Kind, ObjectKey};
use serde_json::{Value, json};

/// The label of a marker that changes with each edit.
pub(super) const TURN: &str = "turn";

/// The changes to wait for.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    /// Markers, with the values of their labels.
    markers: BTreeMap<ObjectKey, String>,
    /// Deleted objects of kinds without markers.
    deletions: BTreeSet<ObjectKey>,
    /// The contents of the mesh settings; `None` for a setting that is removed.
    settings: BTreeMap<Kind, Option<Value>>,
}

impl Awaited {
    /// Waits for this state of a marker.
    pub(super) fn marker(&mut self, key: ObjectKey, turn: String) {
        self.markers.insert(key, turn);
    }

    /// Waits for the deletion of an object.
    pub(super) fn deletion(&mut self, key: ObjectKey) {
        self.deletions.insert(key);
    }

    /// Waits for this content of a setting.
    pub(super) fn setting(&mut self, kind: Kind, content: Option<Value>) {
        self.settings.insert(kind, content);
    }

    /// Whether everything was reported.
    pub(super) fn is_complete(&self) -> bool {
        self.markers.is_empty() && self.deletions.is_empty() && self.settings.is_empty()
    }

    /// Takes a report of the source.
    pub(super) fn take(&mut self, change: &ChangeSet) {
        let reached = |key: &ObjectKey, turn: &String| {
            change.upserts.get(key).is_some_and(|object| object.meta().label(TURN) == Some(turn.as_str()))
        };
        self.markers.retain(|key, turn| !reached(key, turn));
        self.deletions.retain(|key| !change.deletes.contains(key));
        self.settings.retain(|kind, content| match content {
            Some(content) => {
                let mut objects = change.upserts.iter().filter(|(key, _)| key.kind == *kind).map(|(_, object)| object);
                !objects.any(|object: &AnyObject| object.spec_json() == *content)
            }
            None => !change.deletes.iter().any(|key| key.kind == *kind),
        });
    }
}

/// The name of every marker and of its namespace.
pub(super) const MARKER: &str = "scenario-marker";

/// The content of the marker of a kind, without its metadata; `None` if the kind has no marker yet.
pub(super) fn content(kind: Kind) -> Option<Value> {
    const HOST: &str = "marker.example.com";
    let port = json!({"number": 80, "name": "http", "protocol": "HTTP"});
    Some(match kind {
        Kind::Service => json!({"spec": {"clusterIP": "None", "ports": [{"name": "http", "port": 80}]}}),
        Kind::EndpointSlice => json!({"addressType": "IPv4", "endpoints": [], "ports": []}),
        Kind::Pod => json!({"spec": {"containers": [{"name": "none", "image": "none"}]}}),
        Kind::Node | Kind::Namespace | Kind::ServiceExport => json!({}),
        Kind::Ingress => json!({"spec": {"defaultBackend": {"service": {"name": "none", "port": {"number": 80}}}}}),
        Kind::IngressClass => json!({"spec": {"controller": "example.com/none"}}),
        Kind::VirtualService => {
            json!({"spec": {"hosts": [HOST], "http": [{"route": [{"destination": {"host": HOST}}]}]}})
        }
        Kind::ServiceEntry => json!({"spec": {"hosts": [HOST], "ports": [port], "resolution": "DNS"}}),
        Kind::DestinationRule => json!({"spec": {"host": HOST}}),
        Kind::Sidecar => json!({"spec": {"egress": [{"hosts": ["./*"]}]}}),
        Kind::Gateway => {
            json!({"spec": {"selector": {"app": MARKER}, "servers": [{"port": port, "hosts": ["*"]}]}})
        }
        Kind::KubeGateway => {
            let listener = json!({"name": "http", "port": 80, "protocol": "HTTP"});
            json!({"spec": {"gatewayClassName": MARKER, "listeners": [listener]}})
        }
        Kind::ListenerSet => {
            let listener = json!({"name": "http", "port": 80, "protocol": "HTTP"});
            json!({"spec": {"parentRef": {"name": MARKER}, "listeners": [listener]}})
        }
        Kind::GatewayClass | Kind::XMesh => json!({"spec": {"controllerName": "example.com/none"}}),
        Kind::HttpRoute | Kind::GrpcRoute => json!({"spec": {"hostnames": [HOST]}}),
        Kind::TlsRoute | Kind::TcpRoute | Kind::UdpRoute => {
            let mut spec = json!({"rules": [{"backendRefs": [{"name": "none", "port": 80}]}]});
            if kind == Kind::TlsRoute {
                spec["hostnames"] = json!([HOST]);
            }
            json!({"spec": spec})
        }
        Kind::ReferenceGrant => {
            let from = json!({"group": "example.com", "kind": "None", "namespace": MARKER});
            json!({"spec": {"from": [from], "to": [{"group": "example.com", "kind": "None"}]}})
        }
        Kind::BackendTlsPolicy => {
            let validation = json!({"hostname": HOST, "wellKnownCACertificates": "System"});
            json!({"spec": {"targetRefs": [{"group": "", "kind": "Service", "name": MARKER}], "validation": validation}})
        }
        Kind::BackendTrafficPolicy => {
            json!({"spec": {"targetRefs": [{"group": "", "kind": "Service", "name": MARKER}]}})
        }
        Kind::InferencePool => {
            json!({"spec": {"selector": {"matchLabels": {"app": MARKER}}, "targetPorts": [{"number": 1}]}})
        }
        Kind::EnvoyFilter => {
            let nothing = json!({
                "applyTo": "CLUSTER",
                "match": {"cluster": {"name": MARKER}},
                "patch": {"operation": "REMOVE"},
            });
            json!({"spec": {"workloadSelector": {"labels": {"app": MARKER}}, "configPatches": [nothing]}})
        }
        Kind::ProxyConfig => json!({"spec": {"selector": {"matchLabels": {"app": MARKER}}, "concurrency": 1}}),
        Kind::PeerAuthentication | Kind::RequestAuthentication => {
            json!({"spec": {"selector": {"matchLabels": {"app": MARKER}}}})
        }
        Kind::AuthorizationPolicy => json!({"spec": {"selector": {"matchLabels": {"app": MARKER}}}}),
        Kind::WorkloadEntry => json!({"spec": {"address": "192.0.2.1"}}),
        Kind::ServiceImport => json!({"spec": {"type": "Headless", "ports": [{"name": "http", "port": 80}]}}),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use config::ParseOptions;

    use super::*;

    fn reported(texts: &[&str]) -> ChangeSet {
        let mut change = ChangeSet::default();
        for text in texts {
            let read = config::parse_documents(text.as_bytes(), "test", &ParseOptions::default());
            read.objects.into_iter().for_each(|object| change.upsert(object));
        }
        change
    }

    fn marker(turn: &str) -> String {
        format!(
            "{{apiVersion: security.istio.io/v1, kind: PeerAuthentication, metadata: {{name: {MARKER}, namespace: {MARKER}, \
             labels: {{{TURN}: \"{turn}\"}}}}}}"
        )
    }

    fn mesh(domain: &str) -> String {
        format!("{{apiVersion: mesh.istio.io/v1alpha1, kind: MeshConfig, spec: {{trustDomain: {domain}}}}}")
    }

    #[test]
    fn an_earlier_state_of_a_marker_or_setting_does_not_count() {
        let mut awaited = Awaited::default();
        awaited.marker(ObjectKey::new(Kind::PeerAuthentication, MARKER, MARKER), "2".to_owned());
        let content = reported(&[&mesh("b")]).upserts.values().next().map(AnyObject::spec_json);
        assert!(content.is_some());
        awaited.setting(Kind::MeshConfig, content);
        awaited.take(&reported(&[&marker("1"), &mesh("a")]));
        assert!(!awaited.is_complete());
        awaited.take(&reported(&[&marker("2")]));
        assert!(!awaited.is_complete());
        awaited.take(&reported(&[&mesh("b")]));
        assert!(awaited.is_complete());
    }

    #[test]
    fn deletions_are_awaited() {
        let key = ObjectKey::new(Kind::Namespace, "", "a");
        let mut awaited = Awaited::default();
        awaited.deletion(key.clone());
        awaited.setting(Kind::MeshNetworks, None);
        let mut change = ChangeSet::default();
        change.delete(key);
        awaited.take(&change);
        assert!(!awaited.is_complete());
        change.delete(ObjectKey::new(Kind::MeshNetworks, "", ""));
        awaited.take(&change);
        assert!(awaited.is_complete());
    }
}
