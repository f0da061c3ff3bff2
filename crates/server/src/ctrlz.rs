//! Levels of log lines that change while the program runs, in the form that `istioctl admin log` uses (ControlZ's
//! `/scopej/`).

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Body;
use serde_json::{Value, json};

use crate::pages::names_this_machine;

/// The scope of all targets that have no level of their own.
const DEFAULT: &str = "default";
/// Targets that are always listed.
const TARGETS: [&str; 7] = ["api", "runtime", "server", "sources", "status", "store", "xds"];
/// The maximum size of a request's body, in bytes.
const BODY_BYTES: usize = 64 << 10;

/// Applies filter directives (`info,xds=debug`) to the log. The error says what is wrong with them.
pub type Apply = Box<dyn Fn(&str) -> Result<(), String> + Send>;

/// The levels of log lines, by target. Cheap to clone.
#[derive(Clone)]
pub struct LogLevels(Arc<Mutex<State>>);

struct State {
    /// The levels of targets, and of [`DEFAULT`].
    levels: BTreeMap<String, String>,
    apply: Apply,
}

impl LogLevels {
    /// Levels that begin with these directives, which are in effect already.
    pub fn new(directives: &str, apply: Apply) -> LogLevels {
        let mut levels = BTreeMap::from([(DEFAULT.to_owned(), "info".to_owned())]);
        levels.extend(directives.split(',').map(|directive| {
            let (target, level) = directive.split_once('=').unwrap_or((DEFAULT, directive));
            (target.trim().to_owned(), level.trim().to_owned())
        }));
        LogLevels(Arc::new(Mutex::new(State { levels, apply })))
    }

    /// Sets the level of a target, or of all targets without a level of their own (`default`).
    ///
    /// # Errors
    /// The target or the level is invalid. Nothing has changed then.
    pub fn set(&self, target: &str, level: &str) -> Result<(), String> {
        if !["off", "error", "warn", "info", "debug", "trace"].contains(&level) {
            return Err(format!("{level:?} is not a level: use none, error, warn, info, debug or trace"));
        }
        if target.is_empty() || !target.chars().all(|c| c.is_ascii_alphanumeric() || "_:".contains(c)) {
            return Err(format!("{target:?} is not a target"));
        }
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut levels = state.levels.clone();
        levels.insert(target.to_owned(), level.to_owned());
        let directives: Vec<String> = levels
            .iter()
            .map(|(target, level)| if target == DEFAULT { level.clone() } else { format!("{target}={level}") })
            .collect();
        (state.apply)(&directives.join(","))?;
        state.levels = levels;
        Ok(())
    }

    /// The level of a target.
    fn level(&self, target: &str) -> String {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let level = state.levels.get(target).or_else(|| state.levels.get(DEFAULT));
        level.cloned().unwrap_or_default()
    }

    fn targets(&self) -> Vec<String> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut targets: Vec<String> = state.levels.keys().cloned().collect();
        targets.extend(TARGETS.map(str::to_owned));
        targets.sort_unstable();
        targets.dedup();
        targets
    }

    /// A target as ControlZ describes a scope.
    fn scope(&self, target: &str) -> Value {
        let level = match &*self.level(target) {
            "off" => "none".to_owned(),
            level => level.to_owned(),
        };
        json!({
            "name": target,
            "description": if target == DEFAULT { "All targets without a level of their own" } else { "" },
            "output_level": level,
            "stack_trace_level": "none",
            "log_callers": false,
        })
    }

    /// Answers a request.
    pub(crate) async fn answer<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        // A page of another site that resolves its own name to this address has another host. The port may be any one: `istioctl`
        // forwards one of its machine.
        if !names_this_machine(&request) {
            return text(StatusCode::FORBIDDEN, "use the host localhost\n".to_owned());
        }
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let Some(target) = path.strip_prefix("/scopej").map(|rest| rest.trim_matches('/')) else {
            return text(StatusCode::NOT_FOUND, "the levels of log lines are at /scopej/\n".to_owned());
        };
        match (method, target) {
            (Method::GET, "") => json_body(&self.targets().iter().map(|target| self.scope(target)).collect()),
            (Method::GET, target) if self.targets().iter().any(|known| known == target) => {
                json_body(&self.scope(target))
            }
            (Method::GET, target) => text(StatusCode::NOT_FOUND, format!("there is no target {target:?}\n")),
            (Method::PUT, target) => match self.change(target, request).await {
                Ok(()) => text(StatusCode::ACCEPTED, String::new()),
                Err(reason) => text(StatusCode::BAD_REQUEST, format!("{reason}\n")),
            },
            _ => text(StatusCode::METHOD_NOT_ALLOWED, "only GET and PUT are allowed\n".to_owned()),
        }
    }

    async fn change<B>(&self, target: &str, request: Request<B>) -> Result<(), String>
    where
        B: Body,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let body = Limited::new(request.into_body(), BODY_BYTES).collect().await.map_err(|error| error.to_string())?;
        let body: Value = serde_json::from_slice(&body.to_bytes()).map_err(|error| error.to_string())?;
        let level = body["output_level"].as_str().ok_or("output_level: a level is required")?;
        let level = if level == "none" { "off" } else { level };
        self.set(target, level)?;
        tracing::info!(scope = target, level, "the level of log lines changed");
        Ok(())
    }
}

fn json_body(value: &Value) -> Response<Full<Bytes>> {
    let mut response = text(StatusCode::OK, value.to_string());
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_applied_with_the_others_or_not_at_all() {
        let applied = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&applied);
        let levels = LogLevels::new(
            "warn,xds=debug",
            Box::new(move |directives| {
                to.lock().unwrap().push(directives.to_owned());
                if directives.contains("broken") { Err("broken".to_owned()) } else { Ok(()) }
            }),
        );
        assert_eq!((&*levels.level("xds"), &*levels.level("api")), ("debug", "warn"));
        levels.set("api", "trace").unwrap();
        levels.set("default", "off").unwrap();
        assert!(levels.set("broken", "info").is_err());
        assert!(levels.set("api", "loud").unwrap_err().contains("\"loud\" is not a level"));
        assert!(levels.set("a=b,c", "info").is_err());
        assert_eq!(
            *applied.lock().unwrap(),
            ["api=trace,warn,xds=debug", "api=trace,off,xds=debug", "api=trace,broken=info,off,xds=debug"]
        );
        assert_eq!((&*levels.level("api"), &*levels.level("broken")), ("trace", "off"));
        assert_eq!(levels.scope("default")["output_level"], "none");
    }

    #[tokio::test]
    async fn forwarded_ports_are_served_and_pages_of_other_sites_are_not() {
        let levels = LogLevels::new("info", Box::new(|_| Ok(())));
        let ask = |method: Method, host: &str| {
            let request = Request::builder().method(method).uri("/scopej/xds").header(header::HOST, host);
            request.body(Full::<Bytes>::from(r#"{"name":"xds","output_level":"debug"}"#)).unwrap()
        };
        for host in ["localhost", "localhost:43215", "127.0.0.1:9876", "[::1]:43215"] {
            assert_eq!(levels.answer(ask(Method::GET, host)).await.status(), StatusCode::OK, "{host}");
        }
        assert_eq!(levels.answer(ask(Method::PUT, "evil.test:9876")).await.status(), StatusCode::FORBIDDEN);
        assert_eq!(levels.level("xds"), "info");
        assert_eq!(levels.answer(ask(Method::PUT, "localhost:43215")).await.status(), StatusCode::ACCEPTED);
        assert_eq!(levels.level("xds"), "debug");
    }
}
