//! Sessions: a client's requests go to the same backend.

use std::sync::Arc;

use crate::gateway_api::GatewayDuration;
use crate::gateway_api::text::HEADER_NAME;

message! {
    /// Requests of a session go to the same backend.
    pub struct SessionPersistence where [
        rule "self.type != 'Cookie' || has(self.cookie)" "the type Cookie needs cookie",
        rule "!has(self.cookie) || self.type == 'Cookie'" "cookie goes with the type Cookie only",
        rule "self.type != 'Header' || has(self.header)" "the type Header needs header",
        rule "!has(self.header) || self.type == 'Header'" "header goes with the type Header only",
        rule "!has(self.cookie) || !has(self.cookie.lifetimeType) || self.cookie.lifetimeType != 'Permanent' || has(self.absoluteTimeout)"
            "a permanent cookie needs absoluteTimeout",
    ] {
        /// How long a session may be in all; absent: for ever.
        pub absolute_timeout: Option<GatewayDuration>,
        /// How the proxy knows a session.
        pub kind: SessionPersistenceType as "type" where [default "Cookie"],
        /// The cookie; with the type `Cookie`.
        pub cookie: Option<CookieConfig>,
        /// The header; with the type `Header`.
        pub header: Option<HeaderConfig>,
    }
}

enumeration! {
    /// How a session is known.
    pub enum SessionPersistenceType {
        /// By a cookie.
        #[default]
        Cookie = "Cookie",
        /// By a header.
        Header = "Header",
    }
}

message! {
    /// A session's cookie.
    pub struct CookieConfig {
        /// Its name; absent: the proxy's choice.
        pub name: Option<Arc<str>> where [min 1, max 256, pattern HEADER_NAME],
        /// How long clients keep it.
        pub lifetime_type: CookieLifetimeType where [default "Session"],
        /// The path that it is set for.
        pub path: Arc<str> where [max 1024, default "/"] = "/".into(),
    }
}

enumeration! {
    /// How long clients keep a cookie.
    pub enum CookieLifetimeType {
        /// Until their own session ends.
        #[default]
        Session = "Session",
        /// For `absoluteTimeout`.
        Permanent = "Permanent",
    }
}

message! {
    /// A session's header.
    pub struct HeaderConfig {
        /// Its name.
        pub name: Arc<str> where [required, min 1, max 256, pattern HEADER_NAME],
    }
}
