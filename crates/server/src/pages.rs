//! The HTTP pages: readiness, metrics, version, debug.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use envoy::types;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use model::xds::ResourceType;
use serde_json::Value;
use world::World;

use crate::config_dump::Wanted;
use crate::core::Core;
use crate::metrics::{Metric, Snapshot};
use crate::page_access::Access;
use crate::page_data::{Objects, ProxyResources, Streams};
use crate::world_handle::{Closed, WorldHandle};
use crate::{config_dump, debug, syncz};

/// The data of the pages.
#[derive(Clone)]
pub(crate) struct Pages {
    pub(crate) world: WorldHandle,
    pub(crate) ready: Arc<AtomicBool>,
    pub(crate) awaited: Awaited,
    pub(crate) serving_status: ServingStatus,
    pub(crate) version: Arc<str>,
    /// Held while `/debug/recompute` works.
    pub(crate) recomputing: Arc<tokio::sync::Mutex<()>>,
    /// Held while another fork of the world is shown.
    pub(crate) showing: Arc<tokio::sync::Mutex<()>>,
}

/// Shown by `/ready` during a shutdown.
const STOPPING: &str = "the server is shutting down";

/// The sources that have not been read yet, as text.
#[derive(Clone, Default)]
pub(crate) struct Awaited(Arc<Mutex<String>>);

impl Awaited {
    pub(crate) fn set(&self, what: &str) {
        what.clone_into(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn set_stopping(&self) {
        self.set(STOPPING);
    }

    /// `/ready` of a server that is not ready.
    fn page(&self) -> String {
        match &**self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            "" => "not ready: sources have not been read\n".to_owned(),
            STOPPING => format!("not ready: {STOPPING}\n"),
            what => format!("not ready: waiting for {what}\n"),
        }
    }
}

/// The status of the configuration sources, shown by `/ready`, `/metrics` and `/debug/clusterz`. Cheap to clone; each part of
/// the program sets its own.
#[derive(Clone, Default)]
pub struct ServingStatus(Arc<Mutex<StatusParts>>);

#[derive(Default)]
struct StatusParts {
    /// Messages and metrics, by part.
    parts: BTreeMap<&'static str, (Vec<String>, Vec<Metric>)>,
    clusters: Vec<Value>,
    providers: Vec<Provider>,
}

/// Returns the metrics of a part of the program as they are now.
type Provider = Arc<dyn Fn() -> Vec<Metric> + Send + Sync>;

impl ServingStatus {
    /// Sets the status of one part: messages for `/ready`, and metrics for `/metrics`.
    pub fn set(&self, part: &'static str, conflicts: Vec<String>, metrics: Vec<Metric>) {
        self.lock().parts.insert(part, (conflicts, metrics));
    }

    /// Adds a function that returns the metrics of a part of the program. It is called for each scrape and must not
    /// block.
    pub fn provide(&self, metrics: impl Fn() -> Vec<Metric> + Send + Sync + 'static) {
        self.lock().providers.push(Arc::new(metrics));
    }

    /// Sets the list of `/debug/clusterz`.
    pub fn set_clusters(&self, clusters: Vec<Value>) {
        self.lock().clusters = clusters;
    }

    /// `/ready` of a ready server.
    fn page(&self) -> String {
        let parts = self.lock();
        let conflicts = parts.parts.values().flat_map(|(conflicts, _)| conflicts);
        let lines = std::iter::once("ready").chain(conflicts.map(String::as_str));
        lines.map(|line| format!("{line}\n")).collect()
    }

    fn metrics(&self) -> Vec<Metric> {
        let parts = self.lock();
        let mut metrics: Vec<Metric> = parts.parts.values().flat_map(|(_, metrics)| metrics).cloned().collect();
        let providers = parts.providers.clone();
        drop(parts);
        metrics.extend(providers.iter().flat_map(|metrics| metrics()));
        metrics
    }

    fn clusters(&self) -> Value {
        self.lock().clusters.clone().into()
    }

    fn lock(&self) -> MutexGuard<'_, StatusParts> {
        // Each change is one assignment, so that a panic leaves no partial state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A page below `/debug/`.
struct DebugPage {
    name: &'static str,
    description: &'static str,
    content: Content,
}

/// The content of a debug page. The world's thread only collects it; it is converted to JSON on another thread.
enum Content {
    /// Of a fork of the world, one page at a time.
    World(fn(&World) -> Value),
    Streams(fn(&Streams) -> Value),
    Objects,
    /// About the proxy in the query.
    Proxy(OfProxy),
    Clusters,
    /// Recomputes a fork of the world, one at a time.
    Recompute,
}

/// The content of a page about one proxy.
enum OfProxy {
    /// Its resources of a type, or of all.
    Resources(Option<ResourceType>, fn(ProxyResources) -> Value),
    /// `None` if it is not connected.
    Small(fn(&Core, &Wanted) -> Option<Value>),
}

type Conversion = Box<dyn FnOnce() -> Value + Send>;

/// What converts the data of a page, or the reason for which there are none.
type Gathered = Result<Conversion, (StatusCode, &'static str)>;

/// The pages that clients with an identity may read for proxies of their own namespace.
const OWN_PAGES: [&str; 3] = ["config_dump", "edsz", "ndsz"];

const DEBUG_PAGES: [DebugPage; 14] = [
    page(
        "syncz",
        "The sync status of each connected proxy: resources sent, ACKs and NACKs",
        Content::Streams(syncz::page),
    ),
    page(
        "config_dump",
        "The configuration of one proxy, in the form of Envoy's config dump (?proxyID=POD.NAMESPACE)",
        Content::Proxy(OfProxy::Resources(None, config_dump::page)),
    ),
    page(
        "ndsz",
        "The DNS name table of one proxy's agent (?proxyID=POD.NAMESPACE)",
        Content::Proxy(OfProxy::Resources(Some(types::NAME_TABLE), config_dump::names)),
    ),
    page(
        "edsz",
        "The endpoints of one proxy (?proxyID=POD.NAMESPACE)",
        Content::Proxy(OfProxy::Resources(Some(types::ENDPOINTS), config_dump::endpoints)),
    ),
    page(
        "proxyconfigz",
        "The effective ProxyConfig and mTLS mode of one proxy's workload, and ProxyConfigs without effect \
         (?proxyID=POD.NAMESPACE)",
        Content::Proxy(OfProxy::Small(debug::proxy_config)),
    ),
    page("connections", "Connected proxies", Content::Streams(debug::connections)),
    page("configz", "All configuration objects", Content::World(World::configz)),
    page(
        "objectz",
        "The status of each configuration object: whether it is accepted, and how many proxies acknowledged it",
        Content::Objects,
    ),
    page("registryz", "All services", Content::World(World::registryz)),
    page("endpointz", "The endpoints of each service", Content::World(World::endpointz)),
    page("clusterz", "The clusters that are read, and whether each is synced", Content::Clusters),
    page("mesh", "The mesh configuration", Content::World(World::mesh)),
    page("worldz", "The number of cells, reads and runs of each rule", Content::World(World::worldz)),
    page(
        "recompute",
        "Recomputes everything and reports whether the result equals the served state",
        Content::Recompute,
    ),
];

const fn page(name: &'static str, description: &'static str, content: Content) -> DebugPage {
    DebugPage { name, description, content }
}

impl Pages {
    /// Whether a request is for a debug page.
    pub(crate) fn is_debug<B>(request: &Request<B>) -> bool {
        let path = request.uri().path().trim_start_matches('/');
        path == "debug" || path.starts_with("debug/")
    }

    /// Answers a request. `local` clients run on this machine; `access` decides about debug pages.
    pub(crate) async fn answer<B>(&self, request: &Request<B>, local: bool, access: Access) -> Response<Full<Bytes>> {
        if request.method() != http::Method::GET {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is allowed\n");
        }
        // `istioctl version` asks for `//version`.
        let path = &*format!("/{}", request.uri().path().trim_start_matches('/'));
        // A browser on this machine may have been sent here by a page of another host (DNS rebinding).
        if local && path != "/ready" && !names_this_machine(request) {
            return text(StatusCode::MISDIRECTED_REQUEST, "connect by an IP address or as localhost\n");
        }
        if Pages::is_debug(request)
            && let Some(refused) = refused(path, &access)
        {
            return refused;
        }
        let query = request.uri().query().unwrap_or_default();
        match path {
            "/ready" if self.ready.load(Ordering::Acquire) => match self.world.check().await {
                Ok(()) => text(StatusCode::OK, &self.serving_status.page()),
                Err(reason) => text(StatusCode::SERVICE_UNAVAILABLE, &format!("not ready: {reason}\n")),
            },
            "/ready" => text(StatusCode::SERVICE_UNAVAILABLE, &self.awaited.page()),
            "/version" => text(StatusCode::OK, &self.version),
            "/metrics" => match self.world.inspect(|core| Snapshot::of(core)).await {
                Ok(snapshot) => metrics(snapshot.text(&self.version, &self.serving_status.metrics())),
                Err(closed) => text(StatusCode::SERVICE_UNAVAILABLE, &format!("{closed}\n")),
            },
            "/debug" | "/debug/" => html(&index()),
            "/debug/list" => json(&DEBUG_PAGES.iter().map(|page| format!("/debug/{}", page.name)).collect()),
            path => self.debug(path.strip_prefix("/debug/").unwrap_or_default(), query, &access).await,
        }
    }

    async fn debug(&self, name: &str, query: &str, access: &Access) -> Response<Full<Bytes>> {
        let Some(page) = DEBUG_PAGES.into_iter().find(|page| page.name == name) else {
            return text(StatusCode::NOT_FOUND, "no such page; see /debug for a list\n");
        };
        let convert = match self.gather(page.content, query, access).await {
            Ok(Ok(convert)) => convert,
            Ok(Err((status, why))) => return text(status, why),
            Err(closed) => return text(StatusCode::SERVICE_UNAVAILABLE, &format!("{closed}\n")),
        };
        // Continues if the client disconnects, so that what it holds is released in the end.
        match tokio::task::spawn_blocking(move || json(&convert())).await {
            Ok(response) => response,
            Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the page failed; see the log\n"),
        }
    }

    /// Collects the data of a page, or says why there are none.
    async fn gather(&self, content: Content, query: &str, access: &Access) -> Result<Gathered, Closed> {
        let convert: Conversion = match content {
            Content::World(show) => {
                let turn = self.showing.clone().lock_owned().await;
                self.of_fork(show, turn).await?
            }
            Content::Recompute => match self.recomputing.clone().try_lock_owned() {
                Ok(turn) => self.of_fork(debug::recompute, turn).await?,
                Err(_) => {
                    let why = "another recomputation is running; try again later\n";
                    return Ok(Err((StatusCode::TOO_MANY_REQUESTS, why)));
                }
            },
            Content::Streams(show) => {
                let streams = Streams::gather(&self.world).await?;
                Box::new(move || show(&streams))
            }
            Content::Objects => {
                let objects = Objects::gather(&self.world).await?;
                Box::new(move || objects.into_json())
            }
            Content::Clusters => {
                let clusters = self.serving_status.clusters();
                Box::new(move || clusters)
            }
            Content::Proxy(of) => {
                let Some(id) = parameter(query, "proxyID").or_else(|| parameter(query, "proxy_id")) else {
                    return Ok(Err((StatusCode::BAD_REQUEST, "You must provide a proxyID in the query string\n")));
                };
                let wanted = Wanted { id, namespace: access.namespace().cloned() };
                let unknown = "Proxy not connected to this Pilot instance. It may be connected to another instance.\n";
                return Ok(self.of_proxy(of, wanted).await?.ok_or((StatusCode::NOT_FOUND, unknown)));
            }
        };
        Ok(Ok(convert))
    }

    /// Shows a fork of the world, and holds `turn` until then.
    async fn of_fork(
        &self,
        show: fn(&World) -> Value,
        turn: tokio::sync::OwnedMutexGuard<()>,
    ) -> Result<Conversion, Closed> {
        let fork = self.world.fork().await?;
        Ok(Box::new(move || {
            let page = show(&fork);
            drop((fork, turn));
            page
        }))
    }

    /// Collects the data of a page about one proxy. `None` if it is not connected.
    async fn of_proxy(&self, of: OfProxy, wanted: Wanted) -> Result<Option<Conversion>, Closed> {
        Ok(match of {
            OfProxy::Resources(only, show) => {
                let resources = ProxyResources::gather(&self.world, wanted, only).await?;
                resources.map(|resources| -> Conversion { Box::new(move || show(resources)) })
            }
            OfProxy::Small(look) => {
                let page = self.world.inspect(move |core| look(core, &wanted)).await?;
                page.map(|page| -> Conversion { Box::new(move || page) })
            }
        })
    }
}

/// The answer to a client that may not read a debug page.
fn refused(path: &str, access: &Access) -> Option<Response<Full<Bytes>>> {
    match access {
        Access::All => None,
        Access::Namespace(_) if OWN_PAGES.iter().any(|page| path.strip_prefix("/debug/") == Some(page)) => None,
        Access::Namespace(_) => {
            let why = "your identity may read config_dump, edsz and ndsz of proxies of its own namespace only\n";
            Some(text(StatusCode::FORBIDDEN, why))
        }
        Access::None => {
            let why = "debug pages require the token of a service account (header authorization: Bearer TOKEN), or a client on \
                       this machine: use `kubectl port-forward` or ssh\n";
            Some(text(StatusCode::UNAUTHORIZED, why))
        }
    }
}

/// Whether the `Host` of a request is an IP address or `localhost`. Clients without the header are no browsers.
pub(crate) fn names_this_machine<B>(request: &Request<B>) -> bool {
    let header = request.headers().get(header::HOST);
    let Some(host) = request.uri().authority().map(|a| a.as_str().as_bytes()).or(header.map(HeaderValue::as_bytes))
    else {
        return true;
    };
    let Ok(authority) = http::uri::Authority::try_from(host) else {
        return false;
    };
    let name = authority.host();
    name == "localhost" || name.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok()
}

/// The value of a query parameter. Proxy IDs need no escaping.
fn parameter(query: &str, name: &str) -> Option<String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, value)| *key == name && !value.is_empty()).map(|(_, value)| value.to_owned())
}

fn index() -> String {
    let row = |DebugPage { name, description, .. }: &DebugPage| {
        format!("<tr><td><a href=\"/debug/{name}\">/debug/{name}</a></td><td>{description}</td></tr>\n")
    };
    let rows: String = DEBUG_PAGES.iter().map(row).collect();
    format!(
        "<!doctype html><html lang=\"en\"><title>Rutter: debug</title><h1>Debug</h1>\n<table>\n{rows}</table></html>\n"
    )
}

fn metrics(text: String) -> Response<Full<Bytes>> {
    typed(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text)
}

fn json(value: &Value) -> Response<Full<Bytes>> {
    typed(StatusCode::OK, "application/json", format!("{value:#}\n"))
}

fn html(page: &str) -> Response<Full<Bytes>> {
    typed(StatusCode::OK, "text/html; charset=utf-8", page.to_owned())
}

fn text(status: StatusCode, body: &str) -> Response<Full<Bytes>> {
    typed(status, "text/plain; charset=utf-8", body.to_owned())
}

fn typed(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
