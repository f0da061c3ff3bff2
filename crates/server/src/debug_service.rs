//! Debug pages over xDS, as `istioctl proxy-status`, `istioctl version` and `istioctl x internal-debug` read them.
//!
//! A client requests the type `istio.io/debug` in SotW and names one page with its query (`config_dump?proxyID=a.b`), or
//! one of the types `istio.io/debug/syncz` and `istio.io/debug/config_dump`. Each request gets one response, which is not
//! updated. As in istiod, a client needs an identity, which determines what it sees ([`Access`]); a client on the same machine
//! sees everything (`kubectl port-forward` is such a client).

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use protos::Any;
use protos::Message as _;
use protos::envoy::config::core::v3::ControlPlane;
use protos::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use xds::Rope;

use crate::config_dump::{self, Wanted};
use crate::grpc::{Down, Messages, Status};
use crate::page_access::Access;
use crate::page_data::{ProxyResources, Streams};
use crate::pages::Pages;
use crate::syncz;

/// The type of any page as JSON. The types of this name with a suffix have messages of Envoy.
const PAGE: &str = "istio.io/debug";
const SYNCZ: &str = "istio.io/debug/syncz";
const CONFIG_DUMP: &str = "istio.io/debug/config_dump";

/// The parts of the server that a stream uses.
#[derive(Clone)]
pub(crate) struct DebugService {
    pub(crate) pages: Pages,
    /// The identifier of this instance in responses; `istioctl` shows it.
    pub(crate) identifier: String,
}

/// Whether the first request of a stream is for debug pages.
pub(crate) fn wants(message: &Bytes) -> bool {
    let request = DiscoveryRequest::decode(message.clone()).unwrap_or_default();
    request.type_url == PAGE || request.type_url.strip_prefix(PAGE).is_some_and(|rest| rest.starts_with('/'))
}

/// The identifier of this instance: JSON with istiod's fields.
pub(crate) fn identifier(instance: &str, version: &str) -> String {
    json!({"Component": "istiod", "ID": instance, "Info": {"version": version}}).to_string()
}

impl DebugService {
    /// Serves a stream, whose first message was already read, until it ends.
    pub(crate) async fn serve(
        self,
        first: Bytes,
        access: &Access,
        messages: &mut Messages,
        down: &mpsc::Sender<Down>,
    ) -> Status {
        let mut next = Some(first);
        let mut nonce: u64 = 0;
        let ended = loop {
            let message = match next.take() {
                Some(message) => message,
                None => tokio::select! {
                    message = messages.next() => match message {
                        Ok(Some((message, _))) => message,
                        Ok(None) => break Status::new(Status::OK, ""),
                        Err(status) => break status,
                    },
                    () = down.closed() => break Status::new(Status::UNAVAILABLE, "the client disconnected"),
                },
            };
            let request = match DiscoveryRequest::decode(message) {
                Ok(request) => request,
                Err(error) => break Status::new(Status::INVALID_ARGUMENT, error.to_string()),
            };
            // An ACK: pages are not updated. `istioctl` sends its first request with a nonce of its own.
            if request.response_nonce.parse().is_ok_and(|answered: u64| answered <= nonce) {
                continue;
            }
            nonce += 1;
            match self.answer(&request, access, nonce).await {
                Ok(response) => {
                    let rope = Rope::from_pieces(vec![response.encode_to_vec().into()]);
                    if down.send(Down::Message(rope)).await.is_err() {
                        break Status::new(Status::UNAVAILABLE, "the client disconnected");
                    }
                }
                Err(status) => break status,
            }
        };
        // The final status needs room in the queue, because its sender does not wait.
        drop(down.reserve().await);
        ended
    }

    async fn answer(
        &self,
        request: &DiscoveryRequest,
        access: &Access,
        nonce: u64,
    ) -> Result<DiscoveryResponse, Status> {
        if *access == Access::None {
            return Err(Status::new(
                Status::UNAUTHENTICATED,
                "authentication required: connect to port 15012 with a token (`istioctl` does), or from the same machine, for \
                 example through `kubectl port-forward` to port 15010 with `istioctl --plaintext --xds-address localhost:15010`",
            ));
        }
        let names = &request.resource_names;
        let type_url = request.type_url.clone();
        let resources = match &*type_url {
            PAGE => vec![Any { type_url: PAGE.to_owned(), value: self.page(names, access).await? }],
            SYNCZ => self.proxies(access).await?,
            CONFIG_DUMP => self.config_dump(names, access).await?,
            other => {
                let text = format!("there is no type {other}; the types are {PAGE}, {SYNCZ} and {CONFIG_DUMP}");
                return Err(Status::new(Status::INVALID_ARGUMENT, text));
            }
        };
        Ok(DiscoveryResponse {
            version_info: nonce.to_string(),
            resources,
            type_url,
            nonce: nonce.to_string(),
            control_plane: Some(ControlPlane { identifier: self.identifier.clone() }),
            ..DiscoveryResponse::default()
        })
    }

    /// The body of a page. That of a page that cannot be shown is its message: istioctl then asks another instance.
    async fn page(&self, names: &[String], access: &Access) -> Result<Bytes, Status> {
        let [name] = names else {
            return Err(Status::new(
                Status::INVALID_ARGUMENT,
                format!("a request for {PAGE} names one page, but this one names {}", names.len()),
            ));
        };
        let uri = format!("/debug/{}", name.trim_start_matches('/').trim_start_matches("debug/"));
        let request = Request::get(uri).body(());
        let request = request.map_err(|error| Status::new(Status::INVALID_ARGUMENT, error.to_string()))?;
        let response = self.pages.answer(&request, false, access.clone()).await;
        if response.status() == StatusCode::FORBIDDEN {
            let text = format!("the page {name:?} is served to the root namespace only");
            return Err(Status::new(Status::PERMISSION_DENIED, text));
        }
        // A complete body has no errors.
        Ok(response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default())
    }

    async fn proxies(&self, access: &Access) -> Result<Vec<Any>, Status> {
        let namespace = access.namespace().cloned();
        let streams = Streams::gather(&self.pages.world).await;
        let streams = streams.map_err(|closed| Status::new(Status::UNAVAILABLE, closed.to_string()))?;
        converted(move || packed(syncz::clients(&streams, namespace.as_deref()))).await
    }

    async fn config_dump(&self, names: &[String], access: &Access) -> Result<Vec<Any>, Status> {
        let [name] = names else {
            return Err(Status::new(Status::INVALID_ARGUMENT, format!("a request for {CONFIG_DUMP} names one proxy")));
        };
        let wanted = Wanted { id: name.clone(), namespace: access.namespace().cloned() };
        let resources = ProxyResources::gather(&self.pages.world, wanted, None).await;
        let resources = resources.map_err(|closed| Status::new(Status::UNAVAILABLE, closed.to_string()))?;
        let missing = || Status::new(Status::NOT_FOUND, "Proxy not connected to this Pilot instance");
        let resources = resources.ok_or_else(missing)?;
        converted(move || packed(config_dump::sections(resources))).await
    }
}

/// Converts what was gathered, which can take long.
async fn converted(convert: impl FnOnce() -> Result<Vec<Any>, Status> + Send + 'static) -> Result<Vec<Any>, Status> {
    let failed = |_| Status::new(Status::INTERNAL, "the page failed; see the log");
    tokio::task::spawn_blocking(convert).await.map_err(failed)?
}

/// Messages in JSON that have their type in `@type`, packed.
fn packed(values: Vec<Value>) -> Result<Vec<Any>, Status> {
    let pack = |mut value: Value| {
        let type_url = value.as_object_mut().and_then(|fields| fields.remove("@type"));
        let name = type_url.as_ref().and_then(Value::as_str).and_then(|url| url.rsplit_once('/'));
        protos::pack_json(name.map_or("", |(_, name)| name), &value)
    };
    let packed: Result<Vec<Any>, _> = values.into_iter().map(pack).collect();
    packed.map_err(|error| Status::new(Status::INTERNAL, error.to_string()))
}
