//! Authentication of callers: streams and certificate requests on the TLS port, and debug pages.
//!
//! The methods are tried in the order of [`Method::ORDER`]; the first one that succeeds decides. Methods that need nothing but
//! the request are here; those that ask an API server, a store or an issuer of tokens are implemented by `runtime`.

mod credentials;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use ca::caller::{Caller, CallerError, Method, TrustedRanges};

pub use credentials::{ClientCertificate, Credentials, MAX_TOKEN};

/// A method of authentication.
#[async_trait]
pub trait Authenticator: Send + Sync {
    /// The method, which determines its place in the order.
    fn method(&self) -> Method;

    /// Authenticates the caller. `None` if the credentials are not for this method: for example, there is no token, or the
    /// token belongs to another issuer. The future is dropped if the client disconnects.
    ///
    /// # Errors
    /// The credentials are for this method and are not valid.
    async fn authenticate(&self, credentials: &Credentials) -> Result<Option<Caller>, CallerError>;
}

/// The purpose for which a caller is authenticated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A discovery stream.
    Stream,
    /// A certificate.
    Certificate,
    /// A debug page over HTTP.
    Page,
}

impl Purpose {
    /// Whether a method serves the purpose. A join token is used up by the first call: it is for certificates only.
    fn allows(self, method: Method) -> bool {
        method != Method::JoinToken || self == Purpose::Certificate
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Purpose::Stream => "a stream",
            Purpose::Certificate => "a certificate request",
            Purpose::Page => "a request for a debug page",
        })
    }
}

/// The configured methods, in order. Cheap to clone.
#[derive(Clone)]
pub struct Authenticators(Arc<[Arc<dyn Authenticator>]>);

/// No method accepts the credentials, with the reason of each that tried.
#[derive(Clone, PartialEq, Eq, Debug, Default, thiserror::Error)]
pub struct Refused(pub Vec<(Method, CallerError)>);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("the request has no credentials of a configured method");
        }
        for (number, (method, error)) in self.0.iter().enumerate() {
            let separator = if number == 0 { "" } else { "; " };
            write!(f, "{separator}{method:?}: {error}")?;
        }
        Ok(())
    }
}

impl Authenticators {
    /// Client certificates, and these further methods.
    pub fn new(further: impl IntoIterator<Item = Arc<dyn Authenticator>>) -> Authenticators {
        let mut all: Vec<Arc<dyn Authenticator>> = vec![Arc::new(ByCertificate)];
        all.extend(further);
        let place = |method| Method::ORDER.iter().position(|other| *other == method);
        // Stable: of two with the same method, the first one given is tried first.
        all.sort_by_key(|one| place(one.method()));
        Authenticators(all.into())
    }

    /// Authenticates a caller for a purpose.
    ///
    /// # Errors
    /// No method accepts the credentials.
    pub async fn authenticate(&self, credentials: &Credentials, purpose: Purpose) -> Result<Caller, Refused> {
        let mut refused = Refused::default();
        for one in self.0.iter().filter(|one| purpose.allows(one.method())) {
            match one.authenticate(credentials).await {
                Ok(Some(caller)) => return Ok(caller),
                Ok(None) => {}
                Err(error) => refused.0.push((one.method(), error)),
            }
        }
        Err(refused)
    }
}

impl Default for Authenticators {
    /// Client certificates only.
    fn default() -> Authenticators {
        Authenticators::new([])
    }
}

impl fmt::Debug for Authenticators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|one| one.method())).finish()
    }
}

/// Client certificates, which the handshake has verified.
struct ByCertificate;

#[async_trait]
impl Authenticator for ByCertificate {
    fn method(&self) -> Method {
        Method::ClientCertificate
    }

    async fn authenticate(&self, credentials: &Credentials) -> Result<Option<Caller>, CallerError> {
        let Some(certificate) = credentials.certificate() else { return Ok(None) };
        // The connection ends when it expires, which takes a moment.
        if certificate.not_after <= SystemTime::now() {
            return Err(CallerError::Invalid("the client's certificate has expired".to_owned()));
        }
        Ok(Some(Caller::new(self.method(), certificate.identity.clone())))
    }
}

/// The header `x-forwarded-client-cert` of gateways in these ranges.
#[derive(Clone, Debug)]
pub struct ForwardedCertificates(pub TrustedRanges);

#[async_trait]
impl Authenticator for ForwardedCertificates {
    fn method(&self) -> Method {
        Method::ForwardedCertificate
    }

    async fn authenticate(&self, credentials: &Credentials) -> Result<Option<Caller>, CallerError> {
        // A header that occurs twice does not count.
        match (credentials.header("x-forwarded-client-cert"), credentials.remote()) {
            (Some(header), Some(gateway)) => Caller::from_forwarded(header, gateway, &self.0).map(Some),
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use names::Identity;

    use super::*;

    /// Accepts a token with its name, and complains about any other.
    struct Named(Method, &'static str);

    #[async_trait]
    impl Authenticator for Named {
        fn method(&self) -> Method {
            self.0
        }

        async fn authenticate(&self, credentials: &Credentials) -> Result<Option<Caller>, CallerError> {
            match credentials.bearer() {
                None => Ok(None),
                Some(token) if token == self.1 => {
                    let identity = format!("spiffe://cluster.local/ns/{token}/sa/a");
                    Ok(Some(Caller::new(self.0, Identity::parse(&identity).expect("an identity"))))
                }
                Some(_) => Err(CallerError::Rejected(self.1.to_owned())),
            }
        }
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value"))).collect()
    }

    #[tokio::test]
    async fn methods_are_tried_in_istiods_order_and_the_first_success_decides() {
        let all = Authenticators::new([
            Arc::new(ForwardedCertificates(TrustedRanges::parse("192.0.2.0/24").0)) as Arc<dyn Authenticator>,
            Arc::new(Named(Method::KubernetesToken, "k")),
            Arc::new(Named(Method::Oidc, "o")),
            Arc::new(Named(Method::JoinToken, "j")),
        ]);
        assert_eq!(format!("{all:?}"), format!("{:?}", Method::ORDER));
        let caller = |pairs: &[(&'static str, &str)]| {
            let credentials = Credentials::new(&headers(pairs), "192.0.2.1".parse().ok(), None);
            let all = all.clone();
            async move { all.authenticate(&credentials, Purpose::Certificate).await }
        };
        let xfcc = ("x-forwarded-client-cert", "URI=spiffe://cluster.local/ns/x/sa/y");
        for (token, method) in [
            ("j", Method::JoinToken),
            ("o", Method::Oidc),
            ("k", Method::KubernetesToken),
            ("z", Method::ForwardedCertificate),
        ] {
            let found = caller(&[("authorization", &format!("Bearer {token}")), xfcc]).await.expect("a caller");
            assert_eq!(found.method, method);
        }
        let refused = caller(&[("authorization", "Bearer z")]).await.expect_err("nobody knows it");
        assert_eq!(refused.0.len(), 3, "{refused}");
        assert_eq!(caller(&[]).await, Err(Refused::default()));
        let header = headers(&[xfcc]);
        let outside = Credentials::new(&header, "198.51.100.1".parse().ok(), None);
        assert!(all.authenticate(&outside, Purpose::Certificate).await.is_err());
        let token = headers(&[("authorization", "Bearer j")]);
        let join = Credentials::new(&token, None, None);
        assert!(all.authenticate(&join, Purpose::Stream).await.is_err(), "it would be used up");
    }
}
