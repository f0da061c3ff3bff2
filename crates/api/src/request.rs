//! Requests, as they come from sockets or from inside the process.

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use serde_json::Value;

use crate::access::User;

/// A request of somebody who is known.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub uri: Uri,
    /// Headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
    /// Who calls.
    pub user: User,
}

impl Request {
    /// A request without a body, by Rutter itself.
    ///
    /// # Errors
    /// The path is not one.
    pub fn new(method: Method, path: &str) -> Result<Request, http::uri::InvalidUri> {
        Ok(Request {
            method,
            uri: path.parse()?,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            user: User::system(),
        })
    }

    /// The request with this body of this media type.
    pub fn with(mut self, media: &'static str, body: &Value) -> Request {
        self.headers
            .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(media));
        self.body = body.to_string().into();
        self
    }
}
