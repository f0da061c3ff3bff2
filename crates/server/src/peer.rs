//! The client at the other end of a connection, as far as the connection proves it.

use std::net::SocketAddr;

use model::proxy::Proxy;
use names::Identity;

/// The identity of a client. It is established when a connection is accepted; nothing that the client sends changes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Peer {
    /// The client presented a certificate with this SPIFFE ID, and the certificate was verified.
    Authenticated(Identity),
    /// The connection comes from a loopback address.
    Local,
    /// Any other client.
    Anonymous,
}

/// The clients that may read secrets over SDS (`--secrets-for`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SecretAccess {
    /// No client.
    None,
    /// Clients on this machine.
    Local,
}

impl Peer {
    /// The client of a plaintext connection from this address.
    pub fn plaintext(address: SocketAddr) -> Peer {
        match address.ip().to_canonical().is_loopback() {
            true => Peer::Local,
            false => Peer::Anonymous,
        }
    }

    /// The namespace of the client, if the connection proves it.
    pub fn namespace(&self) -> Option<&str> {
        self.identity().map(|identity| &*identity.namespace)
    }

    /// The service account of the client, if the connection proves it.
    pub fn service_account(&self) -> Option<&str> {
        self.identity().map(|identity| &*identity.service_account)
    }

    /// Checks whether the client may read secrets.
    ///
    /// # Errors
    /// The reason why not, for the log.
    pub fn check_secret_access(&self, access: SecretAccess) -> Result<(), &'static str> {
        match (access, self) {
            (SecretAccess::Local, Peer::Local) => Ok(()),
            (SecretAccess::Local, _) => Err("the proxy is not on this machine"),
            (SecretAccess::None, _) => Err("no proxy receives secrets (--secrets-for)"),
        }
    }

    /// Compares what a node claims with what the connection proves. A service account that the node leaves out is filled
    /// in.
    ///
    /// # Errors
    /// The node claims another namespace or service account.
    pub fn check_claims(&self, proxy: &mut Proxy) -> Result<(), ClaimError> {
        let Some(identity) = self.identity() else {
            return Ok(());
        };
        if proxy.service_account.is_empty() {
            proxy.service_account = identity.service_account.clone();
        }
        let claims = [
            ("namespace", &proxy.namespace, &identity.namespace),
            ("service account", &proxy.service_account, &identity.service_account),
        ];
        match claims.into_iter().find(|(_, claimed, proven)| claimed != proven) {
            None => Ok(()),
            Some((field, claimed, _)) => {
                Err(ClaimError { field, claimed: claimed.to_string(), identity: identity.clone() })
            }
        }
    }

    fn identity(&self) -> Option<&Identity> {
        match self {
            Peer::Authenticated(identity) => Some(identity),
            Peer::Local | Peer::Anonymous => None,
        }
    }
}

/// A node claims to be another workload than its certificate says.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the node claims {field} {claimed:?}, but the certificate is that of {identity}")]
pub struct ClaimError {
    field: &'static str,
    claimed: String,
    identity: Identity,
}

#[cfg(test)]
mod tests {
    use protos::envoy::config::core::v3::Node;

    use super::*;

    fn authenticated() -> Peer {
        Peer::Authenticated(Identity::parse("spiffe://cluster.local/ns/shop/sa/cart").unwrap())
    }

    fn proxy(namespace: &str, service_account: &str) -> Proxy {
        let node = Node {
            id: format!("sidecar~10.0.0.1~cart-1.{namespace}~{namespace}.svc.cluster.local"),
            ..Node::default()
        };
        let mut proxy = envoy::parse_node(&node).unwrap();
        proxy.service_account = service_account.into();
        proxy
    }

    #[test]
    fn loopback_addresses_are_local() {
        for (address, peer) in [
            ("127.0.0.1:1", Peer::Local),
            ("127.8.0.1:1", Peer::Local),
            ("[::1]:1", Peer::Local),
            ("[::ffff:127.0.0.1]:1", Peer::Local),
            ("10.0.0.1:1", Peer::Anonymous),
            ("[fd00::1]:1", Peer::Anonymous),
        ] {
            assert_eq!(Peer::plaintext(address.parse().unwrap()), peer, "{address}");
        }
    }

    #[test]
    fn only_local_peers_read_secrets_and_only_if_enabled() {
        for peer in [Peer::Local, Peer::Anonymous, authenticated()] {
            assert!(peer.check_secret_access(SecretAccess::None).is_err(), "{peer:?}");
            let allowed = peer.check_secret_access(SecretAccess::Local).is_ok();
            assert_eq!(allowed, peer == Peer::Local, "{peer:?}");
        }
    }

    #[test]
    fn only_a_certificate_proves_a_namespace() {
        for peer in [Peer::Local, Peer::Anonymous] {
            assert_eq!((peer.namespace(), peer.service_account()), (None, None));
            assert_eq!(peer.check_claims(&mut proxy("any", "any")), Ok(()), "claims are all there is");
        }
        let peer = authenticated();
        assert_eq!((peer.namespace(), peer.service_account()), (Some("shop"), Some("cart")));
    }

    #[test]
    fn claims_must_agree_with_the_certificate() {
        let peer = authenticated();
        assert_eq!(peer.check_claims(&mut proxy("shop", "cart")), Ok(()));
        let mut without = proxy("shop", "");
        assert_eq!(peer.check_claims(&mut without), Ok(()));
        assert_eq!(&*without.service_account, "cart");
        let error = peer.check_claims(&mut proxy("bank", "cart")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the node claims namespace \"bank\", but the certificate is that of spiffe://cluster.local/ns/shop/sa/cart"
        );
        assert!(peer.check_claims(&mut proxy("shop", "admin")).is_err());
    }
}
