//! The reasons why a module cannot be fetched.

use std::net::IpAddr;
use std::time::Duration;

/// The reason why there is no module.
#[derive(thiserror::Error, Debug)]
pub enum FetchError {
    /// The filter names no URL.
    #[error("the remote data source has no http_uri")]
    NoUri,
    /// The control plane found no pull secret.
    #[error("the image pull secret is missing")]
    NoSecret,
    /// The pull secret has another format.
    #[error("the image pull secret is not a Docker configuration (.dockerconfigjson)")]
    Secret,
    /// The URL has another scheme or is not valid.
    #[error("{0:?} is not the URL of a module: use oci://, https:// or http://")]
    Url(String),
    /// The address must not be connected to.
    #[error("connections to {0} are blocked (link-local, cloud metadata or BLOCKED_CIDRS_IN_WASM_FETCH)")]
    Blocked(IpAddr),
    /// The server cannot be reached.
    #[error("the server {host} cannot be reached: {reason}")]
    Unreachable {
        /// The host.
        host: String,
        /// The reason.
        reason: String,
    },
    /// The server does not speak TLS.
    #[error("the server {0} does not speak TLS")]
    PlainText(String),
    /// The server does not speak HTTP, or closes the connection.
    #[error("the server {host} sent no valid HTTP response: {reason}")]
    Http {
        /// The host.
        host: String,
        /// The reason.
        reason: String,
    },
    /// The server reports an error.
    #[error("the server {0} answered with status {1}")]
    Status(String, u16),
    /// The server redirects too often or to an address that is not valid.
    #[error("the server {0} redirects too often or to an invalid address")]
    Redirect(String),
    /// The time is over.
    #[error("not fetched within {0:?}")]
    Timeout(Duration),
    /// The answer is too large.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(u64),
    /// The content has another checksum.
    #[error("{url} has the checksum {found}, not {expected}")]
    Checksum {
        /// The URL.
        url: String,
        /// The checksum of the content.
        found: String,
        /// The configured checksum.
        expected: String,
    },
    /// The archive cannot be read.
    #[error("the archive is not valid: {0}")]
    Archive(std::io::Error),
    /// The image has no module.
    #[error("the image has no Wasm module: {0}")]
    Image(String),
    /// The registry asks for a token at an address that must not be asked.
    #[error("the registry sends token requests to {0:?}, which is not allowed")]
    Realm(String),
    /// The content is not a module.
    #[error("{0} is not a Wasm module")]
    NotWasm(String),
    /// A file cannot be written.
    #[error("cannot write the module: {0}")]
    File(#[from] std::io::Error),
}

impl FetchError {
    /// Whether another attempt may succeed.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            FetchError::Status(_, code) => *code >= 500 && !matches!(code, 501 | 505 | 511),
            FetchError::Unreachable { .. } | FetchError::Http { .. } | FetchError::Timeout(_) => true,
            _ => false,
        }
    }
}
