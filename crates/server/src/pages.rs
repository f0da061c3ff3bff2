//! The HTTP pages: readiness, metrics, version, debug.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use serde_json::Value;

use crate::metrics::{Gauge, Snapshot};
use crate::world_handle::{Core, WorldHandle};
use crate::{config_dump, debug, syncz};

/// What the pages need.
#[derive(Clone)]
pub(crate) struct Pages {
    pub(crate) pilot: WorldHandle,
    pub(crate) ready: Arc<AtomicBool>,
    pub(crate) awaited: Awaited,
    pub(crate) standing: Standing,
    pub(crate) version: Arc<str>,
}

/// What is waited for before it is ready.
#[derive(Clone, Default)]
pub(crate) struct Awaited(Arc<Mutex<String>>);

impl Awaited {
    pub(crate) fn set(&self, what: &str) {
        what.clone_into(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The page of a server that is not ready.
    fn page(&self) -> String {
        match &**self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            "" => "not ready: sources are not read yet, or shutting down\n".to_owned(),
            what => format!("not ready: waiting for {what}\n"),
        }
    }
}

/// What is to be known of where configuration comes from: shown by `/ready`, `/metrics` and `/debug/clusterz`, set by
/// whoever knows.
#[derive(Clone, Default, Debug)]
pub struct Standing(Arc<Mutex<Stands>>);

#[derive(Default, Debug)]
struct Stands {
    /// Lines and numbers, by who says so.
    parts: BTreeMap<&'static str, (Vec<String>, Vec<Gauge>)>,
    clusters: Vec<Value>,
}

impl Standing {
    /// Sets what one part of the program has to say: lines for people, which `/ready` shows below its verdict, and numbers
    /// for `/metrics`.
    pub fn set(&self, part: &'static str, conflicts: Vec<String>, gauges: Vec<Gauge>) {
        self.lock().parts.insert(part, (conflicts, gauges));
    }

    /// Sets the list that `/debug/clusterz` shows.
    pub fn set_clusters(&self, clusters: Vec<Value>) {
        self.lock().clusters = clusters;
    }

    /// The page of a server that is ready.
    fn page(&self) -> String {
        let stands = self.lock();
        let conflicts = stands.parts.values().flat_map(|(conflicts, _)| conflicts);
        let lines = std::iter::once("ready").chain(conflicts.map(String::as_str));
        lines.map(|line| format!("{line}\n")).collect()
    }

    fn gauges(&self) -> Vec<Gauge> {
        let stands = self.lock();
        stands.parts.values().flat_map(|(_, gauges)| gauges).cloned().collect()
    }

    fn clusters(&self) -> Value {
        self.lock().clusters.clone().into()
    }

    fn lock(&self) -> MutexGuard<'_, Stands> {
        // Nothing is half done when a holder panics: each change is one assignment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The debug pages, with what they show.
const DEBUG_PAGES: [(&str, &str); 13] = [
    (
        "/debug/syncz",
        "Each connected proxy: what was sent, what it accepted, what it refused and why",
    ),
    (
        "/debug/config_dump",
        "All that one proxy has, as Envoy's config dump (?proxyID=POD.NAMESPACE)",
    ),
    (
        "/debug/ndsz",
        "The names that the agent of one proxy was told of (?proxyID=POD.NAMESPACE)",
    ),
    (
        "/debug/proxyconfigz",
        "What ProxyConfigs come to for the workload of one proxy (?proxyID=POD.NAMESPACE), which of them have no effect, and what \
         PeerAuthentications have the workload take",
    ),
    ("/debug/connections", "Connected proxies"),
    ("/debug/configz", "All configuration objects"),
    (
        "/debug/objectz",
        "What became of each configuration object: whether it is accepted, and how many proxies run it",
    ),
    ("/debug/registryz", "All services"),
    ("/debug/endpointz", "The endpoints of each service"),
    (
        "/debug/clusterz",
        "The clusters that are read, and whether each was read to its end",
    ),
    ("/debug/mesh", "The mesh configuration"),
    ("/debug/worldz", "Cells, reads and runs of each rule"),
    (
        "/debug/recompute",
        "Derives everything anew and compares: says whether they agree",
    ),
];

impl Pages {
    /// Answers a request.
    pub(crate) async fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if request.method() != http::Method::GET {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here\n");
        }
        let query = request.uri().query().unwrap_or_default();
        match request.uri().path() {
            "/ready" if self.ready.load(Ordering::Acquire) => text(StatusCode::OK, &self.standing.page()),
            "/ready" => text(StatusCode::SERVICE_UNAVAILABLE, &self.awaited.page()),
            "/version" => text(StatusCode::OK, &format!("{}\n", self.version)),
            "/metrics" => match self.pilot.inspect(|core| Snapshot::of(core)).await {
                Ok(snapshot) => metrics(snapshot.with(self.standing.gauges())),
                Err(closed) => text(StatusCode::SERVICE_UNAVAILABLE, &format!("{closed}\n")),
            },
            "/debug" | "/debug/" => html(&index()),
            "/debug/list" => json(&DEBUG_PAGES.iter().map(|(path, _)| Value::from(*path)).collect()),
            path => {
                self.debug(path.strip_prefix("/debug/").unwrap_or_default(), query)
                    .await
            }
        }
    }

    async fn debug(&self, page: &str, query: &str) -> Response<Full<Bytes>> {
        let started = self.pilot.started();
        let looked = match page {
            "syncz" => self.pilot.inspect(move |core| syncz::page(core, started)).await,
            "connections" => self.pilot.inspect(|core| debug::connections(core)).await,
            "configz" => self.pilot.inspect(|core| core.served.0.configz()).await,
            "objectz" => self.pilot.inspect(|core| core.tracker.page()).await,
            "registryz" => self.pilot.inspect(|core| core.served.0.registryz()).await,
            "endpointz" => self.pilot.inspect(|core| core.served.0.endpointz()).await,
            "mesh" => self.pilot.inspect(|core| core.served.0.mesh()).await,
            "worldz" => self.pilot.inspect(|core| core.served.0.worldz()).await,
            "recompute" => self.pilot.inspect(|core| debug::recompute(core)).await,
            "clusterz" => return json(&self.standing.clusters()),
            "config_dump" => return self.config_dump(query).await,
            "ndsz" => return self.names(query).await,
            "proxyconfigz" => return self.of_proxy(query, debug::proxy_config, |page| page).await,
            _ => return text(StatusCode::NOT_FOUND, "no such page; /debug lists them\n"),
        };
        match looked {
            Ok(value) => json(&value),
            Err(closed) => text(StatusCode::SERVICE_UNAVAILABLE, &format!("{closed}\n")),
        }
    }

    async fn config_dump(&self, query: &str) -> Response<Full<Bytes>> {
        self.of_proxy(query, config_dump::gather, config_dump::Dump::into_json)
            .await
    }

    async fn names(&self, query: &str) -> Response<Full<Bytes>> {
        self.of_proxy(query, config_dump::names, |table| {
            config_dump::names_json(table.as_ref())
        })
        .await
    }

    /// What one proxy has. Only the bytes are fetched on the world's thread; turning them into JSON takes its time elsewhere.
    async fn of_proxy<T: Send + 'static>(
        &self,
        query: &str,
        gather: fn(&Core, &str) -> Option<T>,
        show: fn(T) -> Value,
    ) -> Response<Full<Bytes>> {
        let Some(id) = parameter(query, "proxyID").or_else(|| parameter(query, "proxy_id")) else {
            return text(
                StatusCode::BAD_REQUEST,
                "You must provide a proxyID in the query string\n",
            );
        };
        let gathered = self.pilot.inspect(move |core| gather(core, &id)).await;
        match gathered {
            Ok(Some(found)) => match tokio::task::spawn_blocking(move || show(found)).await {
                Ok(value) => json(&value),
                Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the dump failed; see the log\n"),
            },
            Ok(None) => text(
                StatusCode::NOT_FOUND,
                "Proxy not connected to this WorldHandle instance. It may be connected to another instance.\n",
            ),
            Err(closed) => text(StatusCode::SERVICE_UNAVAILABLE, &format!("{closed}\n")),
        }
    }
}

/// The value of a query parameter. Proxy ids hold nothing that needs to be escaped.
fn parameter(query: &str, name: &str) -> Option<String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .find(|(key, value)| *key == name && !value.is_empty())
        .map(|(_, value)| value.to_owned())
}

fn index() -> String {
    let row = |(path, text): &(&str, &str)| format!("<tr><td><a href=\"{path}\">{path}</a></td><td>{text}</td></tr>\n");
    let rows: String = DEBUG_PAGES.iter().map(row).collect();
    format!(
        "<!doctype html><html lang=\"en\"><title>Rutter: debug</title><h1>Debug</h1>\n<table>\n{rows}</table></html>\n"
    )
}

fn metrics(snapshot: Snapshot) -> Response<Full<Bytes>> {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    typed(StatusCode::OK, kind, snapshot.text())
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
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
