//! `/debug/syncz`: what was sent to each connected proxy, and what it acknowledged or rejected.

use model::proxy::{ProxyKind, SecretRight};
use serde_json::{Map, Value, json};
use xds::{StreamStatus, WatchStatus};

use crate::clock::Clock;
use crate::page_data::Streams;

/// The page in Istio's form (`SyncStatus`), with the error messages of NACKs.
pub(crate) fn page(Streams { statuses, clock }: &Streams) -> Value {
    statuses.iter().map(|status| proxy(status, clock)).collect()
}

/// The connected proxies of a namespace, or of all, as Envoy's `ClientConfig`s, each with its type: the form that
/// `istioctl proxy-status` reads.
pub(crate) fn clients(Streams { statuses, clock }: &Streams, namespace: Option<&str>) -> Vec<Value> {
    let shown =
        statuses.iter().filter(|status| namespace.is_none_or(|namespace| *namespace == *status.proxy.namespace));
    shown.map(|status| client(status, clock)).collect()
}

fn client(status: &StreamStatus, clock: &Clock) -> Value {
    let facts = &status.proxy;
    let mut watches: Vec<&WatchStatus> = status.watches.iter().collect();
    watches.sort_unstable_by_key(|watch| watch.kind.type_url);
    let configs = watches.into_iter().map(|watch| {
        let mut config = json!({"typeUrl": watch.kind.type_url, "configStatus": state(watch)});
        if let Some(at) = watch.acked.as_ref().or(watch.sent.as_ref()) {
            config["lastUpdated"] = clock.at(at.at).to_string().into();
        }
        if let Some(error) = &watch.error {
            config["errorState"] = json!({"details": &*error.message});
        }
        config
    });
    json!({
        "@type": "type.googleapis.com/envoy.service.status.v3.ClientConfig",
        "node": {
            "id": &*facts.id,
            "metadata": {
                "CLUSTER_ID": &*facts.cluster_id,
                "NAMESPACE": &*facts.namespace,
                "ISTIO_VERSION": &*facts.version,
            },
        },
        "genericXdsConfigs": configs.collect::<Vec<_>>(),
    })
}

/// The state of a subscription, as in Envoy's `ConfigStatus`.
fn state(watch: &WatchStatus) -> &'static str {
    match (&watch.error, watch.synced, &watch.sent) {
        (Some(_), ..) => "ERROR",
        (None, true, _) => "SYNCED",
        (None, false, None) => "NOT_SENT",
        (None, false, Some(_)) => "STALE",
    }
}

fn proxy(status: &StreamStatus, clock: &Clock) -> Value {
    let facts = &status.proxy;
    let mut fields = Map::new();
    fields.insert("cluster_id".into(), facts.cluster_id.to_string().into());
    fields.insert("proxy".into(), facts.id.to_string().into());
    let kind = match facts.kind {
        // Istio reports gRPC clients as sidecars too.
        ProxyKind::Sidecar | ProxyKind::Grpc => "sidecar",
        ProxyKind::Router => "router",
    };
    fields.insert("proxy_type".into(), kind.into());
    fields.insert("istio_version".into(), facts.version.to_string().into());
    fields.insert("connected_at".into(), clock.at(status.connected).to_string().into());
    fields.insert("variant".into(), format!("{:?}", status.variant).to_lowercase().into());
    let secrets = match facts.secrets {
        SecretRight::None => "refused (--secrets-for)",
        SecretRight::Namespace => "served",
        SecretRight::Account => "served if its service account may list secrets",
    };
    fields.insert("secrets".into(), secrets.into());
    let mut resources = Map::new();
    for watch in &status.watches {
        let name = watch.kind.long_name;
        let nonce = |e: &Option<xds::Exchange>| e.as_ref().map_or(String::new(), |e| e.nonce.to_string());
        fields.insert(format!("{name}_sent"), nonce(&watch.sent).into());
        fields.insert(format!("{name}_acked"), nonce(&watch.acked).into());
        resources.insert(watch.kind.type_url.into(), resource(watch, clock));
    }
    fields.insert("resources".into(), resources.into());
    fields.insert("not_served".into(), status.unserved.iter().map(|t| Value::from(&**t)).collect());
    Value::Object(fields)
}

fn resource(watch: &WatchStatus, clock: &Clock) -> Value {
    json!({
        "status": state(watch),
        "sent": watch.sent.as_ref().map(|e| &*e.nonce),
        "acked": watch.acked.as_ref().map(|e| &*e.nonce),
        "sentTime": watch.sent.as_ref().map(|e| clock.at(e.at).to_string()),
        "version": watch.acked.as_ref().map(|e| &*e.version),
        "names": watch.names,
        "lastError": watch.error.as_ref().map(|e| &*e.message),
        "lastErrorTime": watch.error.as_ref().map(|e| clock.at(e.at).to_string()),
        "rejectedVersion": watch.error.as_ref().map(|e| &*e.version),
    })
}
