//! Services whose clients stay with one endpoint, by their labels.

use std::sync::Arc;

use flow::{Index, Members, Reads, Relation, Rule};
use model::proxy::Labels;
use model::service::{Service, ServiceKey};
use model::session::Session;
use registry::Services;

/// Sessions by a cookie: `NAME`, or `NAME:PATH`.
const COOKIE_LABEL: &str = "istio.io/persistent-session";
/// Sessions by a header of this name.
const HEADER_LABEL: &str = "istio.io/persistent-session-header";

/// The services with sessions. Most meshes have none.
pub struct SessionServices;

impl Relation for SessionServices {
    const NAME: &'static str = "services with sessions";
    type Key = ();
    type Row = Members<ServiceKey>;
}

impl Index for SessionServices {
    type Of = Services;
    fn keys(_: &ServiceKey, row: &Arc<Service>) -> Vec<()> {
        of_service(row).map(|_| ()).into_iter().collect()
    }
}

/// Whether there are any: what most readers ask, who are left alone when there are more.
pub struct AnySessions;

impl Relation for AnySessions {
    const NAME: &'static str = "whether services have sessions";
    type Key = ();
    type Row = ();
}

impl Rule for AnySessions {
    fn derive(cx: &Reads<'_>, (): &()) -> Option<()> {
        cx.get::<SessionServices>(&()).map(|_| ())
    }
}

/// The sessions of services.
pub struct Sessions;

impl Relation for Sessions {
    const NAME: &'static str = "sessions";
    type Key = ServiceKey;
    type Row = Session;
}

impl Rule for Sessions {
    fn derive(cx: &Reads<'_>, key: &ServiceKey) -> Option<Session> {
        cx.with::<Services, _>(key, |service| of_service(service?))
    }
}

/// The sessions of a service: a cookie goes before a header.
pub fn of_service(service: &Service) -> Option<Session> {
    of_labels(&service.labels)
}

/// Whether any service has sessions.
pub fn any(cx: &Reads<'_>) -> bool {
    cx.get::<AnySessions>(&()).is_some()
}

/// The sessions of the service of this key.
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
        Some((name, path)) => Some(Session::Cookie {
            name: name.into(),
            path: path.into(),
        }),
        None => label(HEADER_LABEL)
            .filter(|name| is_token(name))
            .map(|name| Session::Header(name.into())),
    }
}

/// What HTTP takes for the name of a header or a cookie. A label may hold anything where nobody checks it (files).
fn is_token(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !name.is_empty() && name.chars().all(allowed)
}

/// What may be the path of a cookie; an empty one is that of the request.
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
        let cookie = |name: &str, path: &str| {
            Some(Session::Cookie {
                name: name.into(),
                path: path.into(),
            })
        };
        let header = |name: &str| Some(Session::Header(name.into()));
        assert_eq!(session(&[]), None);
        assert_eq!(session(&[(COOKIE_LABEL, "c")]), cookie("c", "/"));
        assert_eq!(
            session(&[(COOKIE_LABEL, "c:/a"), (HEADER_LABEL, "h")]),
            cookie("c", "/a")
        );
        assert_eq!(session(&[(COOKIE_LABEL, "c:")]), cookie("c", ""));
        assert_eq!(session(&[(HEADER_LABEL, "h")]), header("h"));
        for odd in ["", ":/a", "a b", "a;b", "a\r\nb", "a:/x;y", "ä"] {
            assert_eq!(session(&[(COOKIE_LABEL, odd)]), None, "{odd}");
            assert_eq!(
                session(&[(COOKIE_LABEL, odd), (HEADER_LABEL, "h")]),
                header("h"),
                "{odd}"
            );
        }
        assert_eq!(session(&[(HEADER_LABEL, "a:b")]), None);
    }
}
