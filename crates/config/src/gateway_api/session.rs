//! Session persistence: requests of a session are sent to the same backend.

use std::sync::Arc;

use crate::gateway_api::GatewayDuration;
use crate::gateway_api::text::HEADER_NAME;

message! {
    /// Session persistence: requests of a session are sent to the same backend.
    pub struct SessionPersistence where [
        rule "self.type != 'Cookie' || has(self.cookie)" "the type Cookie requires cookie",
        rule "!has(self.cookie) || self.type == 'Cookie'" "cookie requires the type Cookie",
        rule "self.type != 'Header' || has(self.header)" "the type Header requires header",
        rule "!has(self.header) || self.type == 'Header'" "header requires the type Header",
        rule "!has(self.cookie) || !has(self.cookie.lifetimeType) || self.cookie.lifetimeType != 'Permanent' || has(self.absoluteTimeout)"
            "a permanent cookie requires absoluteTimeout",
    ] {
        /// Maximum lifetime of a session. If omitted, it is unlimited.
        pub absolute_timeout: Option<GatewayDuration>,
        /// How sessions are identified.
        pub kind: SessionPersistenceType as "type" where [default "Cookie"],
        /// Cookie that identifies sessions. Requires the type `Cookie`.
        pub cookie: Option<CookieConfig>,
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
        /// Name of the cookie. If omitted, the proxy chooses one.
        pub name: Option<Arc<str>> where [min 1, max 256, pattern HEADER_NAME],
        /// Lifetime of the cookie in clients.
        pub lifetime_type: CookieLifetimeType where [default "Session"],
        /// Path that the cookie is set for.
        pub path: Arc<str> where [max 1024, default "/"] = "/".into(),
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
