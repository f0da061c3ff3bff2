//! Services with session affinity, by their labels.

use std::sync::Arc;

use flow::Reads;
use model::proxy::Labels;
use model::service::{Service, ServiceKey};
use model::session::Session;
use registry::Services;

/// Session affinity by cookie: `NAME` or `NAME:PATH`.
const COOKIE_LABEL: &str = "istio.io/persistent-session";
/// Session affinity by this header.
const HEADER_LABEL: &str = "istio.io/persistent-session-header";

flow::index! {
    /// The services with session affinity. Most meshes have none.
    pub SessionServices: () => members of Services = "services with sessions", session_services_keys;
}

fn session_services_keys(_: &ServiceKey, row: &Arc<Service>) -> Vec<()> {
    of_service(row).map(|_| ()).into_iter().collect()
}

flow::rule! {
    /// Whether there are any. Most readers need only this and are not affected by further services.
    pub AnySessions: () => () = "whether services have sessions", derive_any_sessions;
}

fn derive_any_sessions(cx: &Reads<'_>, (): &()) -> Option<()> {
    cx.get::<SessionServices>(&()).map(|_| ())
}

flow::rule! {
    /// The session affinity of services.
    pub Sessions: ServiceKey => Session = "sessions", derive_sessions;
}

fn derive_sessions(cx: &Reads<'_>, key: &ServiceKey) -> Option<Session> {
    cx.with::<Services, _>(key, |service| of_service(service?))
}

/// The session affinity of a service: a cookie wins over a header.
pub fn of_service(service: &Service) -> Option<Session> {
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

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.index::<SessionServices>();
    b.view::<AnySessions>();
    b.view::<Sessions>();
}

fn of_labels(labels: &Labels) -> Option<Session> {
    let label = |name: &str| labels.get(name).map(|value| &**value);
    let cookie = label(COOKIE_LABEL).map(|text| text.split_once(':').unwrap_or((text, "/")));
    let cookie = cookie.filter(|(name, path)| is_token(name) && is_path(path));
    match cookie {
        Some((name, path)) => Some(Session::Cookie { name: name.into(), path: path.into() }),
        None => label(HEADER_LABEL).filter(|name| is_token(name)).map(|name| Session::Header(name.into())),
    }
}

/// Whether HTTP permits the name of a header or cookie. Labels in files are not validated.
fn is_token(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !name.is_empty() && name.chars().all(allowed)
}

/// Whether the path of a cookie is valid; an empty one is that of the request.
fn is_path(path: &str) -> bool {
    path.chars().all(|c| c.is_ascii_graphic() && c != ';')
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
        let cookie = |name: &str, path: &str| Some(Session::Cookie { name: name.into(), path: path.into() });
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
