//! The settings of authentication and of the TLS port.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use ca::caller::TrustedNodeAccounts;
use ca::{Lifetimes, TrustBundle};
use names::TrustDomain;
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

use crate::authentication::Authenticators;
use crate::signing::{self, Signing};

/// Authentication of clients, and the TLS port.
#[derive(Clone, Debug)]
pub struct Security {
    /// The methods of authentication.
    pub authenticators: Authenticators,
    /// The issuer of workload certificates, and the roots that verify client certificates.
    pub signing: signing::Watched,
    /// The TLS port; `None` if it is off.
    pub port: Option<SecurePort>,
    /// Whether streams on the TLS port must be authenticated. Otherwise, nothing proves their claims.
    pub authenticate_streams: bool,
    /// Whether streams on the plaintext port must be authenticated, too.
    pub authenticate_plaintext: bool,
    /// Whether a stream is refused if its node claims another namespace or service account than the client has proven.
    /// Otherwise, nothing proves the claims of such a stream.
    pub check_identity: bool,
    /// The clients on other machines that may read debug pages.
    pub pages: PageAccess,
    /// Whether other control planes that read the configuration must be in the root namespace, or on this machine.
    pub protect_configuration: bool,
}

/// The clients on other machines that may read debug pages. All of them need an identity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PageAccess {
    /// All pages for any identity.
    Everyone,
    /// All pages for identities in the root namespace and in these namespaces; for others, a few pages about proxies of their
    /// own namespace.
    Namespaces(Arc<[String]>),
}

/// The TLS port.
#[derive(Clone)]
pub struct SecurePort {
    /// The address.
    pub address: SocketAddr,
    /// The certificate and key. The port accepts connections once there is one; later ones replace it for new connections.
    pub certificate: watch::Receiver<Option<Arc<CertifiedKey>>>,
    /// The service that issues certificates; `None` if it is off.
    pub certificates: Option<CertificateOptions>,
}

impl fmt::Debug for SecurePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecurePort").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The rules of the service that issues certificates.
#[derive(Clone, Debug)]
pub struct CertificateOptions {
    /// The lifetimes of certificates.
    pub lifetimes: Lifetimes,
    /// The service accounts that may ask for identities of pods on their node.
    pub trusted_accounts: TrustedNodeAccounts,
    /// The ID of the configuration cluster, whose pods have an empty cluster in the world.
    pub cluster: Arc<str>,
}

impl Default for Security {
    /// No TLS port, and no method of authentication.
    fn default() -> Security {
        let nobody = Signing::unavailable("no certificate authority", TrustBundle::new(TrustDomain::default(), []));
        Security {
            authenticators: Authenticators::default(),
            signing: watch::channel(Arc::new(nobody)).1,
            port: None,
            authenticate_streams: true,
            authenticate_plaintext: false,
            check_identity: true,
            pages: PageAccess::Namespaces(Arc::default()),
            protect_configuration: true,
        }
    }
}
