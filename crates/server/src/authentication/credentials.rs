//! The proofs of identity that come with a request.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use ca::trust::TrustError;
use ca::{Certificate, TrustBundle};
use http::{HeaderMap, header};
use names::Identity;
use rustls_pki_types::CertificateDer;

/// The longest accepted bearer token, in bytes.
pub const MAX_TOKEN: usize = 16 * 1024;
/// The header with the ID of the cluster whose API server issued the token.
const CLUSTER: &str = "clusterid";

/// The verified certificate of a connection's client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientCertificate {
    /// The identity in it.
    pub identity: Identity,
    /// The moment at which the first certificate of the chain expires.
    pub not_after: SystemTime,
    chain: Vec<CertificateDer<'static>>,
}

impl ClientCertificate {
    /// Verifies the certificates that a client presents, leaf first.
    ///
    /// # Errors
    /// They do not lead to a root of the identity's trust domain.
    pub fn verify(
        chain: &[CertificateDer<'_>],
        trust: &TrustBundle,
        now: SystemTime,
    ) -> Result<ClientCertificate, TrustError> {
        let identity = trust.verify(chain, now)?;
        let ends = chain.iter().map(|der| Certificate::from_der(der).map(|certificate| certificate.not_after()));
        let not_after = ends.collect::<Result<Vec<_>, _>>().ok().and_then(|ends| ends.into_iter().min());
        let chain = chain.iter().map(|der| der.clone().into_owned()).collect();
        Ok(ClientCertificate { identity, not_after: not_after.ok_or(TrustError::Chain)?, chain })
    }

    /// Verifies the certificate again, with other roots or at another time.
    ///
    /// # Errors
    /// It is not trusted any more.
    pub fn verify_again(&self, trust: &TrustBundle, now: SystemTime) -> Result<(), TrustError> {
        trust.verify(&self.chain, now).map(drop)
    }
}

/// The proofs of identity that come with a request. Debug output contains none of them.
#[derive(Clone, Default)]
pub struct Credentials {
    remote: Option<IpAddr>,
    certificate: Option<Arc<ClientCertificate>>,
    headers: HeaderMap,
}

impl Credentials {
    /// The credentials of a request: its headers, the address of its client, and the client's verified certificate.
    pub fn new(
        headers: &HeaderMap,
        remote: Option<IpAddr>,
        certificate: Option<Arc<ClientCertificate>>,
    ) -> Credentials {
        Credentials { remote, certificate, headers: headers.clone() }
    }

    /// The token of the header `authorization`, without `Bearer`. `None` if there is none, or if it is too long.
    pub fn bearer(&self) -> Option<&str> {
        let token = |value: &http::HeaderValue| -> Option<usize> {
            let scheme = value.to_str().ok()?.get(..7)?;
            scheme.eq_ignore_ascii_case("bearer ").then_some(7)
        };
        let mut values = self.headers.get_all(header::AUTHORIZATION).iter();
        let value = values.find(|value| token(value).is_some())?.to_str().ok()?;
        let token = value.get(7..)?.trim();
        (!token.is_empty() && token.len() <= MAX_TOKEN).then_some(token)
    }

    /// A header, if it occurs once and is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next()?.to_str().ok()?;
        values.next().is_none().then_some(value)
    }

    /// The ID of the cluster whose API server issued the token; empty if the client does not name one.
    pub fn cluster(&self) -> &str {
        self.header(CLUSTER).unwrap_or_default()
    }

    /// The address of the client; none on a Unix socket.
    pub fn remote(&self) -> Option<IpAddr> {
        self.remote
    }

    /// The verified certificate of the client.
    pub fn certificate(&self) -> Option<&ClientCertificate> {
        self.certificate.as_deref()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("remote", &self.remote)
            .field("certificate", &self.certificate.as_ref().map(|certificate| &certificate.identity))
            .field("token", &self.bearer().is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn credentials(headers: &[(&'static str, &str)]) -> Credentials {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_str(value).expect("a header"));
        }
        Credentials::new(&map, None, None)
    }

    #[test]
    fn the_token_is_that_of_the_bearer_scheme_and_is_never_shown() {
        let long = format!("Bearer {}", "a".repeat(MAX_TOKEN + 1));
        for (value, expected) in [
            ("Bearer abc.def", Some("abc.def")),
            ("bearer  abc ", Some("abc")),
            ("Basic abc", None),
            ("Bearer ", None),
            ("Bearer", None),
            ("", None),
            (&*long, None),
        ] {
            assert_eq!(credentials(&[("authorization", value)]).bearer(), expected, "{value:.20}");
        }
        let both = credentials(&[("authorization", "Basic eA=="), ("authorization", "Bearer hidden")]);
        assert_eq!(both.bearer(), Some("hidden"));
        assert!(!format!("{both:?}").contains("hidden"));
    }

    #[test]
    fn a_repeated_header_does_not_count() {
        assert_eq!(credentials(&[("clusterid", "a")]).cluster(), "a");
        assert_eq!(credentials(&[("clusterid", "a"), ("clusterid", "b")]).cluster(), "");
        assert_eq!(credentials(&[]).cluster(), "");
    }
}
