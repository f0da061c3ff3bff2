//! Session affinity.

use std::sync::Arc;
use std::time::Duration;

use config::gateway_api::session::{SessionPersistence, SessionPersistenceType};

use crate::xds::Version;

/// Identification of a client's session.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Session {
    /// A cookie.
    Cookie {
        /// Its name.
        name: Arc<str>,
        /// Its path.
        path: Arc<str>,
        /// Its lifetime; without one it is a session cookie.
        lifetime: Option<Duration>,
    },
    /// This header.
    Header(Arc<str>),
}

impl Session {
    /// The session affinity that a rule or policy asks for. `owner` identifies it: a generated name depends on it, so that no
    /// two share sessions.
    pub fn of(settings: &SessionPersistence, owner: &str) -> Session {
        let given = settings.name().cloned();
        let generated = |prefix| format!("{prefix}-{}", Version::of(owner.as_bytes())).into();
        match settings.kind {
            SessionPersistenceType::Header => Session::Header(given.unwrap_or_else(|| generated("x-session"))),
            SessionPersistenceType::Cookie => {
                let path = settings.cookie.as_ref().map(|cookie| &cookie.path).filter(|path| is_path(path));
                let limit = settings.absolute_timeout.map(|time| time.get()).filter(|time| !time.is_zero());
                Session::Cookie {
                    name: given.unwrap_or_else(|| generated("session")),
                    path: path.cloned().unwrap_or_else(|| "/".into()),
                    // Cookies count whole seconds, and 0 of them would be no limit.
                    lifetime: limit.map(|time| Duration::from_secs(time.as_secs().max(1))),
                }
            }
        }
    }
}

/// Whether the path of a cookie is valid; an empty one is that of the request.
pub fn is_path(path: &str) -> bool {
    path.chars().all(|c| c.is_ascii_graphic() && c != ';')
}

#[cfg(test)]
mod tests {
    use config::gateway_api::GatewayDuration;
    use config::gateway_api::session::CookieConfig;

    use super::*;

    fn cookie(of: Session) -> (String, String, Option<u64>) {
        match of {
            Session::Cookie { name, path, lifetime } => {
                (name.to_string(), path.to_string(), lifetime.map(|time| time.as_secs()))
            }
            Session::Header(name) => panic!("{name} is a header"),
        }
    }

    #[test]
    fn names_are_given_or_unique() {
        let named = SessionPersistence { session_name: Some("old".into()), ..Default::default() };
        assert_eq!(cookie(Session::of(&named, "a")), ("old".into(), "/".into(), None));
        let own = CookieConfig { name: Some("new".into()), path: "/a".into(), ..Default::default() };
        let both = SessionPersistence { cookie: Some(own), ..named.clone() };
        assert_eq!(cookie(Session::of(&both, "a")), ("new".into(), "/a".into(), None));
        let none = SessionPersistence { session_name: Some("a b".into()), ..Default::default() };
        let generated = |owner| cookie(Session::of(&none, owner)).0;
        assert!(generated("a").starts_with("session-") && generated("a") != generated("b"));
        let header = SessionPersistence { kind: SessionPersistenceType::Header, ..named };
        assert_eq!(Session::of(&header, "a"), Session::Header("old".into()));
    }

    #[test]
    fn lifetimes_are_whole_seconds() {
        let of = |text| {
            let absolute_timeout = GatewayDuration::parse(text);
            cookie(Session::of(&SessionPersistence { absolute_timeout, ..Default::default() }, "a")).2
        };
        assert_eq!((of("0s"), of("500ms"), of("1h"), of("x")), (None, Some(1), Some(3600), None));
    }

    #[test]
    fn a_path_that_no_cookie_may_have_is_the_root() {
        let own = CookieConfig { path: "/a;b".into(), ..Default::default() };
        let settings = SessionPersistence { cookie: Some(own), ..Default::default() };
        assert_eq!(cookie(Session::of(&settings, "a")).1, "/");
    }
}
