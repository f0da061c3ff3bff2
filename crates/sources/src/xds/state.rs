//! The state of all subscriptions: responses in, exact changes out. Does no I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::{AnyObject, ChangeSet, Diagnostic, Kind, ObjectKey, ParseOptions};
use protos::envoy::service::discovery::v3::DiscoveryResponse;

use super::object::{self, Malformed, refused, type_url};

/// The maximum number of resources per response.
const RESOURCES: usize = 200_000;
/// The maximum length of an error detail, in characters.
const REASON: usize = 1000;

/// The reason for which a response is rejected.
#[derive(Debug, thiserror::Error)]
pub(super) enum Rejection {
    #[error("{0:?} was not subscribed to")]
    NotSubscribed(String),
    #[error("{count} resources in one answer; at most {} are taken", RESOURCES)]
    TooMany { count: usize },
    #[error("resource {index}: {reason}")]
    Malformed { index: usize, reason: Malformed },
    #[error("resource {index}: {key} came twice")]
    Repeated { index: usize, key: ObjectKey },
}

impl Rejection {
    /// The error detail, shortened.
    pub(super) fn detail(&self) -> String {
        self.to_string().chars().take(REASON).collect()
    }
}

/// All subscriptions.
pub(super) struct State {
    name: Arc<str>,
    options: ParseOptions,
    kinds: BTreeMap<String, Subscription>,
}

struct Subscription {
    kind: Kind,
    /// The version of the last accepted response.
    version: String,
    answered: bool,
    objects: BTreeMap<ObjectKey, AnyObject>,
    reported: Vec<Diagnostic>,
}

impl State {
    /// Subscriptions to these kinds at a control plane of this name.
    pub(super) fn new(name: Arc<str>, kinds: &[Kind], options: ParseOptions) -> State {
        let subscription = |kind: &Kind| Subscription {
            kind: *kind,
            version: String::new(),
            answered: false,
            objects: BTreeMap::new(),
            reported: Vec::new(),
        };
        State { name, options, kinds: kinds.iter().map(|kind| (type_url(*kind), subscription(kind))).collect() }
    }

    /// The type and accepted version of each subscription.
    pub(super) fn subscriptions(&self) -> impl Iterator<Item = (&str, &str)> {
        self.kinds.iter().map(|(kind, subscription)| (&**kind, &*subscription.version))
    }

    /// The accepted version of a type.
    pub(super) fn version(&self, type_url: &str) -> &str {
        self.kinds.get(type_url).map_or("", |subscription| &subscription.version)
    }

    /// Whether every subscription was answered once.
    pub(super) fn is_synced(&self) -> bool {
        self.kinds.values().all(|subscription| subscription.answered)
    }

    /// All objects.
    pub(super) fn objects(&self) -> impl Iterator<Item = &AnyObject> {
        self.kinds.values().flat_map(|subscription| subscription.objects.values())
    }

    /// Handles a response. Returns the changes and, if it is rejected, the reason. A rejected response changes no
    /// object.
    pub(super) fn take(&mut self, response: &DiscoveryResponse) -> (ChangeSet, Result<(), Rejection>) {
        let file: Arc<str> = format!("{}/{}", self.name, response.type_url).into();
        let Some(subscription) = self.kinds.get_mut(&response.type_url) else {
            return (ChangeSet::default(), Err(Rejection::NotSubscribed(response.type_url.clone())));
        };
        let (mut change, reported, outcome) = match subscription.read(response, &self.options) {
            Ok((change, reported)) => {
                subscription.version = response.version_info.clone();
                subscription.answered = true;
                (change, reported, Ok(()))
            }
            Err(rejection) => (ChangeSet::default(), vec![refused(&file, rejection.detail())], Err(rejection)),
        };
        let reported: Vec<Diagnostic> =
            reported.into_iter().map(|reported| Diagnostic { file: Some(file.clone()), ..reported }).collect();
        if reported != subscription.reported {
            change.diagnostics.insert(file, reported.clone());
            subscription.reported = reported;
        }
        (change, outcome)
    }
}

impl Subscription {
    fn read(
        &mut self,
        response: &DiscoveryResponse,
        options: &ParseOptions,
    ) -> Result<(ChangeSet, Vec<Diagnostic>), Rejection> {
        let count = response.resources.len();
        if count > RESOURCES {
            return Err(Rejection::TooMany { count });
        }
        let mut read = Vec::with_capacity(count);
        let mut named = BTreeSet::new();
        for (index, resource) in response.resources.iter().enumerate() {
            let one =
                object::read(self.kind, resource, options).map_err(|reason| Rejection::Malformed { index, reason })?;
            if !named.insert(one.key.clone()) {
                return Err(Rejection::Repeated { index, key: one.key });
            }
            read.push(one);
        }
        // The response is accepted from here on.
        let (mut change, mut reported) = (ChangeSet::default(), Vec::new());
        change.deletes.extend(self.objects.keys().filter(|key| !named.contains(*key)).cloned());
        for key in &change.deletes {
            self.objects.remove(key);
        }
        for one in read {
            let kept = one.object.is_none() && self.objects.contains_key(&one.key);
            reported.extend(one.diagnostics.into_iter().map(|mut diagnostic| {
                if kept && diagnostic.is_error() {
                    diagnostic.hint.get_or_insert_with(|| "the last valid version stays in effect".into());
                }
                diagnostic
            }));
            if let Some(object) = one.object
                && self.objects.get(&one.key) != Some(&object)
            {
                self.objects.insert(one.key, object.clone());
                change.upsert(object);
            }
        }
        Ok((change, reported))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use protos::istio::mcp::v1alpha1::{Metadata, Resource};
    use protos::{Any, any, pack_json};
    use serde_json::{Value, json};

    use super::*;

    const ENTRY: &str = "networking.istio.io/v1/ServiceEntry";
    const STRUCT: &str = "google.protobuf.Struct";
    const MESSAGE: &str = "istio.networking.v1alpha3.ServiceEntry";

    fn spec(host: &str) -> Value {
        json!({"hosts": [host], "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}], "resolution": "DNS"})
    }

    fn resource(name: &str, version: &str, body: &str, spec: &Value) -> Any {
        any(&Resource {
            metadata: Some(Metadata {
                name: name.into(),
                version: version.into(),
                labels: [("app".to_owned(), "a".to_owned())].into(),
                ..Metadata::default()
            }),
            body: Some(pack_json(body, spec).expect("a body")),
        })
    }

    fn answer(version: &str, resources: Vec<Any>) -> DiscoveryResponse {
        DiscoveryResponse {
            version_info: version.into(),
            type_url: ENTRY.into(),
            resources,
            ..DiscoveryResponse::default()
        }
    }

    fn state() -> State {
        State::new("xds://test:1".into(), &[Kind::ServiceEntry, Kind::MeshConfig], ParseOptions::default())
    }

    fn names(change: &ChangeSet) -> Vec<&str> {
        change.upserts.values().map(|object| &*object.meta().name).collect()
    }

    #[test]
    fn responses_become_exact_changes() {
        let mut state = state();
        let both = vec![
            resource("default/a", "1", MESSAGE, &spec("a.com")),
            resource("default/b", "1", STRUCT, &spec("b.com")),
        ];
        let (change, outcome) = state.take(&answer("v1", both.clone()));
        assert_eq!((outcome.is_ok(), names(&change)), (true, vec!["a", "b"]));
        assert_eq!(change.upserts.values().next().unwrap().meta().label("app"), Some("a"));
        assert!(!state.is_synced(), "the other kind is missing");
        let (change, _) = state.take(&answer("v2", both));
        assert!(change.is_empty(), "{change:?}");
        let (change, _) = state.take(&answer("v3", vec![resource("default/b", "2", STRUCT, &spec("c.com"))]));
        assert_eq!((names(&change), change.deletes.len()), (vec!["b"], 1));
        assert_eq!(state.version(ENTRY), "v3");
    }

    #[test]
    fn mesh_config_is_one_object() {
        let mut state = state();
        let response = DiscoveryResponse {
            type_url: "core/v1alpha1/MeshConfig".into(),
            resources: vec![
                pack_json("istio.mesh.v1alpha1.MeshConfig", &json!({"rootNamespace": "mesh", "connectTimeout": "3s"}))
                    .expect("a body"),
            ],
            ..DiscoveryResponse::default()
        };
        let (change, outcome) = state.take(&response);
        assert!(outcome.is_ok());
        let Some(AnyObject::MeshConfig(config)) = change.upserts.values().next() else { panic!("{change:?}") };
        assert_eq!((&*config.spec.root_namespace, config.spec.connect_timeout.as_secs()), ("mesh", 3));
    }

    #[test]
    fn an_invalid_object_keeps_its_last_valid_version_and_affects_no_other() {
        let mut state = state();
        let (_, outcome) = state.take(&answer("v1", vec![resource("default/a", "1", MESSAGE, &spec("a.com"))]));
        assert!(outcome.is_ok());
        let bad = vec![
            resource("default/a", "2", MESSAGE, &spec("-bad-")),
            resource("default/b", "1", MESSAGE, &spec("b.com")),
        ];
        let (change, outcome) = state.take(&answer("v2", bad));
        assert_eq!((outcome.is_ok(), names(&change), change.deletes.len()), (true, vec!["b"], 0));
        let reported = change.diagnostics.values().next().expect("the error is reported");
        assert!(reported[0].is_error() && reported[0].hint.is_some());
        let good = vec![
            resource("default/a", "3", MESSAGE, &spec("a.com")),
            resource("default/b", "1", MESSAGE, &spec("b.com")),
        ];
        let (change, _) = state.take(&answer("v3", good));
        assert!(change.diagnostics.values().all(Vec::is_empty), "the error is cleared");
    }

    #[test]
    fn a_malformed_response_is_rejected_and_changes_nothing() {
        let mut state = state();
        let (_, outcome) = state.take(&answer("v1", vec![resource("default/a", "1", MESSAGE, &spec("a.com"))]));
        assert!(outcome.is_ok());
        let good = || resource("default/b", "1", MESSAGE, &spec("b.com"));
        let cases = [
            (vec![good(), good()], "twice"),
            (vec![good(), resource("nameless", "1", MESSAGE, &spec("b.com"))], "resource 1: the name"),
            (vec![resource("/a", "1", MESSAGE, &spec("b.com"))], "not that of a ServiceEntry"),
            (
                vec![resource("default/a", "1", "istio.networking.v1alpha3.Sidecar", &json!({}))],
                "no spec of a ServiceEntry",
            ),
            (vec![any(&Metadata::default())], "is not istio.mcp.v1alpha1.Resource"),
            (
                vec![Any {
                    type_url: "type.googleapis.com/istio.mcp.v1alpha1.Resource".into(),
                    value: b"\xff".as_slice().into(),
                }],
                "resource 0",
            ),
        ];
        for (resources, reason) in cases {
            let (change, outcome) = state.take(&answer("v2", resources));
            let error = outcome.expect_err(reason).to_string();
            assert!(error.contains(reason), "{error}");
            assert!(change.upserts.is_empty() && change.deletes.is_empty());
            assert_eq!(state.version(ENTRY), "v1");
        }
        let unasked = DiscoveryResponse { type_url: "a/b/C".into(), ..DiscoveryResponse::default() };
        assert!(state.take(&unasked).1.is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn no_bytes_cause_a_panic(value in proptest::collection::vec(proptest::num::u8::ANY, 0..64), body in proptest::bool::ANY) {
            let mut state = state();
            let packed = match body {
                false => Any { type_url: "type.googleapis.com/istio.mcp.v1alpha1.Resource".into(), value: value.into() },
                true => any(&Resource {
                    metadata: Some(Metadata { name: "default/a".into(), ..Metadata::default() }),
                    body: Some(Any { type_url: format!("type.googleapis.com/{MESSAGE}"), value: value.into() }),
                }),
            };
            let _ = state.take(&answer("v", vec![packed]));
        }
    }
}
