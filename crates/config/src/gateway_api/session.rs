//! Session persistence: requests of a session are sent to the same backend.
//!
//! The form of the API changed after version 1.6: `cookie` and `header` replaced `sessionName` and `cookieConfig`, and
//! `idleTimeout` was removed. Both forms are read.

use std::sync::Arc;

use crate::gateway_api::GatewayDuration;
use crate::gateway_api::text::HEADER_NAME;

message! {
    /// Session persistence: requests of a session are sent to the same backend.
    pub struct SessionPersistence: Relations where [
        rule "!has(self.cookie) || self.type == 'Cookie'" "cookie requires the type Cookie",
        rule "!has(self.cookieConfig) || self.type == 'Cookie'" "cookieConfig requires the type Cookie",
        rule "!has(self.header) || self.type == 'Header'" "header requires the type Header",
        rule "!has(self.cookie) || !has(self.cookieConfig)" "cookie and cookieConfig are mutually exclusive",
        rule "!has(self.cookie) || !has(self.cookie.lifetimeType) || self.cookie.lifetimeType != 'Permanent' || has(self.absoluteTimeout)"
            "a permanent cookie requires absoluteTimeout",
        rule "!has(self.cookieConfig) || !has(self.cookieConfig.lifetimeType) || self.cookieConfig.lifetimeType != 'Permanent' || has(self.absoluteTimeout)"
            "a permanent cookie requires absoluteTimeout",
    ] {
        /// Name of the cookie or header in the form of version 1.6; `cookie.name` and `header.name` take precedence. If
        /// omitted, a name is generated that is unique to the rule or policy.
        pub session_name: Option<Arc<str>> where [max 128],
        /// Maximum lifetime of a session. If omitted, it is unlimited.
        pub absolute_timeout: Option<GatewayDuration>,
        /// Time without requests after which a session ends. Proxies do not count it.
        pub idle_timeout: Option<GatewayDuration>,
        /// How sessions are identified.
        pub kind: SessionPersistenceType as "type" where [default "Cookie"],
        /// Cookie that identifies sessions. Requires the type `Cookie`.
        pub cookie: Option<CookieConfig>,
        /// Cookie that identifies sessions, in the form of version 1.6. Requires the type `Cookie`.
        pub cookie_config: Option<CookieLifetime>,
        /// Header that identifies sessions. Requires the type `Header`.
        pub header: Option<HeaderConfig>,
    }
}

enumeration! {
    /// How sessions are identified.
    pub enum SessionPersistenceType {
        /// By a cookie.
        #[default]
        Cookie = "Cookie",
        /// By a header.
        Header = "Header",
    }
}

message! {
    /// Cookie that identifies a session.
    pub struct CookieConfig {
        /// Name of the cookie. If omitted, `sessionName`.
        pub name: Option<Arc<str>> where [min 1, max 256, pattern HEADER_NAME],
        /// Lifetime of the cookie in clients.
        pub lifetime_type: CookieLifetimeType where [default "Session"],
        /// Path that the cookie is set for.
        pub path: Arc<str> where [max 1024, default "/"] = "/".into(),
    }
}

message! {
    /// Lifetime of a cookie, in the form of version 1.6.
    pub struct CookieLifetime {
        /// Lifetime of the cookie in clients.
        pub lifetime_type: CookieLifetimeType where [default "Session"],
    }
}

enumeration! {
    /// Lifetime of a cookie.
    pub enum CookieLifetimeType {
        /// Until the client's session ends.
        #[default]
        Session = "Session",
        /// For the duration of `absoluteTimeout`.
        Permanent = "Permanent",
    }
}

message! {
    /// Header that identifies a session.
    pub struct HeaderConfig {
        /// Name of the header.
        pub name: Arc<str> where [required, min 1, max 256, pattern HEADER_NAME],
    }
}

/// Whether HTTP permits the name of a header or cookie.
pub fn is_token(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !name.is_empty() && name.chars().all(allowed)
}

impl SessionPersistence {
    /// The name that is given for the cookie or header, if HTTP permits it.
    pub fn name(&self) -> Option<&Arc<str>> {
        let own = match self.kind {
            SessionPersistenceType::Cookie => self.cookie.as_ref().and_then(|cookie| cookie.name.as_ref()),
            SessionPersistenceType::Header => self.header.as_ref().map(|header| &header.name),
        };
        own.or(self.session_name.as_ref()).filter(|name| is_token(name))
    }

    /// The lifetime of the cookie in clients.
    pub fn lifetime(&self) -> CookieLifetimeType {
        let own = self.cookie.as_ref().map(|cookie| cookie.lifetime_type);
        own.or_else(|| self.cookie_config.as_ref().map(|cookie| cookie.lifetime_type)).unwrap_or_default()
    }

    /// The fields that proxies cannot follow, by name, and what happens instead.
    pub fn limits(&self) -> Vec<(&'static str, &'static str)> {
        let is_cookie = self.kind == SessionPersistenceType::Cookie;
        let mut limits = Vec::new();
        if self.session_name.as_deref().is_some_and(|name| !name.is_empty() && !is_token(name)) {
            limits.push(("sessionName", "sessionName is no name of a cookie or header: a generated name is used"));
        }
        if self.idle_timeout.is_some() {
            limits.push(("idleTimeout", "proxies do not count the time without requests: idleTimeout has no effect"));
        }
        match (self.absolute_timeout.is_some(), is_cookie, self.lifetime()) {
            (true, false, _) => {
                limits.push(("absoluteTimeout", "absoluteTimeout has no effect on sessions of the type Header"));
            }
            (true, true, CookieLifetimeType::Session) => {
                limits.push((
                    "absoluteTimeout",
                    "clients keep the cookie until absoluteTimeout, as a permanent one: proxies count its age only then",
                ));
            }
            _ => {}
        }
        limits
    }
}
