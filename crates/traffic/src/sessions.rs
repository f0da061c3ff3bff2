//! Services with session affinity, by their labels or by an XBackendTrafficPolicy. A label has precedence.

use std::sync::Arc;

use config::Object;
use config::gateway_api::BackendTrafficPolicy;
use config::gateway_api::session::is_token;
use flow::Reads;
use gateway_api::backend_policy;
use gateway_api::route_filters::{self, RouteFilter};
use model::proxy::Labels;
use model::service::{ObjectId, Service, ServiceKey};
use model::session::{Session, is_path};
use registry::Services;
use registry::inputs::BackendTrafficPolicies;

/// Session affinity by cookie: `NAME` or `NAME:PATH`.
const COOKIE_LABEL: &str = "istio.io/persistent-session";
/// Session affinity by this header.
const HEADER_LABEL: &str = "istio.io/persistent-session-header";

flow::index! {
    /// The services with session affinity by a label. Most meshes have none.
    pub SessionServices: () => members of Services = "services with sessions", session_services_keys;
    /// The policies that set session affinity.
    pub SessionPolicies: () => members of BackendTrafficPolicies = "policies with sessions", session_policies_keys;
}

fn session_services_keys(_: &ServiceKey, row: &Arc<Service>) -> Vec<()> {
    by_label(row).map(|_| ()).into_iter().collect()
}

fn session_policies_keys(_: &ObjectId, row: &Arc<Object<BackendTrafficPolicy>>) -> Vec<()> {
    row.spec.session_persistence.as_ref().map(|_| ()).into_iter().collect()
}

flow::rule! {
    /// Whether there are any. Most readers need only this and are not affected by further services.
    pub AnySessions: () => () = "whether services have sessions", derive_any_sessions;
    /// The same, for routes as well.
    SessionsAnywhere: () => () = "whether there are sessions", derive_sessions_anywhere;
}

fn derive_any_sessions(cx: &Reads<'_>, (): &()) -> Option<()> {
    cx.get::<SessionServices>(&()).map(|_| ()).or_else(|| cx.get::<SessionPolicies>(&()).map(|_| ()))
}

fn derive_sessions_anywhere(cx: &Reads<'_>, (): &()) -> Option<()> {
    let in_routes = |mesh| route_filters::in_use(cx, RouteFilter::Sessions, mesh);
    (any(cx) || in_routes(false) || in_routes(true)).then_some(())
}

flow::rule! {
    /// The session affinity of services.
    pub Sessions: ServiceKey => Session = "sessions", derive_sessions;
}

fn derive_sessions(cx: &Reads<'_>, key: &ServiceKey) -> Option<Session> {
    let service = cx.get::<Services>(key)?;
    by_label(&service).or_else(|| backend_policy::session(cx, &service))
}

/// The session affinity that labels of a service ask for: a cookie wins over a header.
pub fn by_label(service: &Service) -> Option<Session> {
    of_labels(&service.labels)
}

/// Whether any service has session affinity.
pub fn any(cx: &Reads<'_>) -> bool {
    cx.get::<AnySessions>(&()).is_some()
}

/// The session affinity of the service with this key.
pub fn of(cx: &Reads<'_>, key: &ServiceKey) -> Option<Session> {
    if !any(cx) {
        return None;
    }
    cx.get::<Sessions>(key).map(|row| (*row).clone())
}

/// Whether clients of a service have session affinity, by its labels, a policy or a route. They keep its draining endpoints.
pub fn keep_draining(cx: &Reads<'_>, service: &Service) -> bool {
    let anywhere = || cx.get::<SessionsAnywhere>(&()).is_some();
    let by_others = || of(cx, &service.key).is_some() || route_filters::binds_sessions(cx, service);
    by_label(service).is_some() || anywhere() && by_others()
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.index::<SessionServices>();
    b.index::<SessionPolicies>();
    b.view::<AnySessions>();
    b.view::<SessionsAnywhere>();
    b.view::<Sessions>();
}

/// Labels in files are not validated, so that a wrong one counts as none.
fn of_labels(labels: &Labels) -> Option<Session> {
    let label = |name: &str| labels.get(name).map(|value| &**value);
    let cookie = label(COOKIE_LABEL).map(|text| text.split_once(':').unwrap_or((text, "/")));
    let cookie = cookie.filter(|(name, path)| is_token(name) && is_path(path));
    match cookie {
        Some((name, path)) => Some(Session::Cookie { name: name.into(), path: path.into(), lifetime: None }),
        None => label(HEADER_LABEL).filter(|name| is_token(name)).map(|name| Session::Header(name.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_say_how_clients_are_known() {
        let session = |labels: &[(&str, &str)]| {
            let labels = labels.iter().map(|(k, v)| (Arc::from(*k), Arc::from(*v))).collect();
            of_labels(&labels)
        };
        let cookie =
            |name: &str, path: &str| Some(Session::Cookie { name: name.into(), path: path.into(), lifetime: None });
        let header = |name: &str| Some(Session::Header(name.into()));
        assert_eq!(session(&[]), None);
        assert_eq!(session(&[(COOKIE_LABEL, "c")]), cookie("c", "/"));
        assert_eq!(session(&[(COOKIE_LABEL, "c:/a"), (HEADER_LABEL, "h")]), cookie("c", "/a"));
        assert_eq!(session(&[(COOKIE_LABEL, "c:")]), cookie("c", ""));
        assert_eq!(session(&[(HEADER_LABEL, "h")]), header("h"));
        for odd in ["", ":/a", "a b", "a;b", "a\r\nb", "a:/x;y", "ä"] {
            assert_eq!(session(&[(COOKIE_LABEL, odd)]), None, "{odd}");
            assert_eq!(session(&[(COOKIE_LABEL, odd), (HEADER_LABEL, "h")]), header("h"), "{odd}");
        }
        assert_eq!(session(&[(HEADER_LABEL, "a:b")]), None);
    }
}
