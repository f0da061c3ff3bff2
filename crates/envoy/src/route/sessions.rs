//! Session affinity options of routes and virtual hosts.

use model::session::Session;
use protos::envoy::extensions::filters::http::stateful_session::v3::stateful_session_per_route::Override;
use protos::envoy::extensions::filters::http::stateful_session::v3::{StatefulSession, StatefulSessionPerRoute};
use protos::envoy::extensions::http::stateful_session::cookie::v3::CookieBasedSessionState;
use protos::envoy::extensions::http::stateful_session::header::v3::HeaderBasedSessionState;
use protos::envoy::r#type::http::v3::Cookie;
use protos::{Any, Message};

use crate::parts::{any, duration, extension};

/// The session affinity filter.
pub(crate) const FILTER: &str = "envoy.filters.http.stateful_session";

/// The state of a session in a cookie.
const COOKIE: &str = "envoy.http.stateful_session.cookie";

/// The filter's options for a route or a virtual host.
pub(crate) fn options(session: &Session) -> Any {
    any(&StatefulSessionPerRoute { r#override: Some(Override::StatefulSession(filter(session))) })
}

/// Whether options of a route use a cookie.
pub(crate) fn has_cookie(options: &Any) -> bool {
    let options = StatefulSessionPerRoute::decode(&*options.value).ok().and_then(|options| options.r#override);
    let Some(Override::StatefulSession(filter)) = options else { return false };
    filter.session_state.is_some_and(|state| state.name == COOKIE)
}

/// The filter's own configuration. It is not strict: a missing endpoint is replaced by another.
pub(crate) fn filter(session: &Session) -> StatefulSession {
    let state = match session {
        Session::Cookie { name, path, lifetime } => {
            // Without a TTL it is a session cookie.
            let ttl = lifetime.map(duration);
            let cookie = Cookie { name: name.to_string(), path: path.to_string(), ttl, ..Default::default() };
            let cookie = CookieBasedSessionState { cookie: Some(cookie) };
            extension(COOKIE, &cookie)
        }
        Session::Header(name) => {
            let header = HeaderBasedSessionState { name: name.to_string() };
            extension("envoy.http.stateful_session.header", &header)
        }
    };
    StatefulSession { session_state: Some(state), ..Default::default() }
}
