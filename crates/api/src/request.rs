//! Requests from sockets or from this process.

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use serde_json::Value;

use crate::access::User;

/// A request of an authenticated user.
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
    /// The user.
    pub user: User,
}

impl Request {
    /// Creates a request without a body on behalf of Rutter itself.
    ///
    /// # Errors
    /// The path is not a valid URI.
    pub fn new(method: Method, path: &str) -> Result<Request, http::uri::InvalidUri> {
        Ok(Request { method, uri: path.parse()?, headers: HeaderMap::new(), body: Bytes::new(), user: User::system() })
    }

    /// Adds a body of this media type.
    pub fn with(mut self, media: &'static str, body: &Value) -> Request {
        self.headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(media));
        self.body = body.to_string().into();
        self
    }
}
