//! The client at the other end of a connection, as far as the connection proves it.

use std::fmt;
use std::sync::Arc;

use model::proxy::{Proxy, SecretRight};
use names::Identity;

/// The identity of a client. It is established before the first message of a stream is read; nothing that the client sends
/// later changes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Peer {
    /// The client has proven this SPIFFE ID, with a certificate or a token.
    Authenticated(Identity),
    /// The client connected to the Unix socket, and the kernel proved its user.
    Local {
        /// The only namespace of the user's proxies; none if the user may run proxies of all namespaces.
        namespace: Option<Arc<str>>,
    },
    /// The client is on this machine, but nothing proves its user. It may read debug pages, and no secrets.
    Loopback,
    /// Any other client. Nothing proves its claims.
    Anonymous,
}

/// The clients that may read secrets over SDS (`--secrets-for`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SecretAccess {
    /// No client.
    None,
    /// Clients whose namespace is proven.
    Authenticated,
    /// Clients whose namespace is proven. If the service account is proven, too, it must be allowed to list Secrets.
    Reviewed,
}

impl Peer {
    /// The namespace of the client, if the connection proves it.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Peer::Authenticated(identity) => Some(&identity.namespace),
            Peer::Local { namespace } => namespace.as_deref(),
            Peer::Loopback | Peer::Anonymous => None,
        }
    }

    /// The service account of the client, if the connection proves it.
    pub fn service_account(&self) -> Option<&str> {
        self.identity().map(|identity| &*identity.service_account)
    }

    /// The secrets that the client may read.
    ///
    /// # Errors
    /// The reason why it reads none, for the log.
    pub fn secret_right(&self, access: SecretAccess) -> Result<SecretRight, &'static str> {
        match (access, self) {
            (SecretAccess::None, _) => Err("no proxy receives secrets (--secrets-for)"),
            (SecretAccess::Reviewed, Peer::Authenticated(_)) => Ok(SecretRight::Account),
            (_, Peer::Authenticated(_) | Peer::Local { .. }) => Ok(SecretRight::Namespace),
            (_, Peer::Loopback | Peer::Anonymous) => Err(
                "the plaintext port does not prove which proxy connects; connect to --secure-grpc-addr or --xds-socket",
            ),
        }
    }

    /// Compares what a node claims with what the connection proves. A service account that the node leaves out is filled
    /// in.
    ///
    /// # Errors
    /// The node claims another namespace or service account.
    pub fn check_claims(&self, proxy: &mut Proxy) -> Result<(), ClaimError> {
        if let Some(account) = self.service_account()
            && proxy.service_account.is_empty()
        {
            proxy.service_account = account.into();
        }
        let claims = [
            ("namespace", &proxy.namespace, self.namespace()),
            ("service account", &proxy.service_account, self.service_account()),
        ];
        match claims.into_iter().find(|(_, claimed, proven)| proven.is_some_and(|proven| ***claimed != *proven)) {
            None => Ok(()),
            Some((field, claimed, _)) => Err(ClaimError { field, claimed: claimed.to_string(), peer: self.clone() }),
        }
    }

    fn identity(&self) -> Option<&Identity> {
        match self {
            Peer::Authenticated(identity) => Some(identity),
            Peer::Local { .. } | Peer::Loopback | Peer::Anonymous => None,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Authenticated(identity) => write!(f, "the client is {identity}"),
            Peer::Local { namespace: Some(namespace) } => {
                write!(f, "its user may run proxies of the namespace {namespace:?} only (--xds-socket-users)")
            }
            Peer::Local { namespace: None } => write!(f, "its user may run proxies of all namespaces"),
            Peer::Loopback | Peer::Anonymous => write!(f, "the connection is plaintext"),
        }
    }
}

/// A node claims to be another workload than the connection proves.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the node claims {field} {claimed:?}, but {peer}")]
pub struct ClaimError {
    field: &'static str,
    claimed: String,
    peer: Peer,
}

#[cfg(test)]
mod tests {
    use protos::envoy::config::core::v3::Node;

    use super::*;

    fn authenticated() -> Peer {
        Peer::Authenticated(Identity::parse("spiffe://cluster.local/ns/shop/sa/cart").unwrap())
    }

    fn local(namespace: Option<&str>) -> Peer {
        Peer::Local { namespace: namespace.map(Arc::from) }
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
    fn only_proven_peers_read_secrets_and_only_if_enabled() {
        for (peer, proven) in [
            (local(None), true),
            (local(Some("shop")), true),
            (authenticated(), true),
            (Peer::Loopback, false),
            (Peer::Anonymous, false),
        ] {
            assert!(peer.secret_right(SecretAccess::None).is_err(), "{peer:?}");
            let expected = proven.then_some(SecretRight::Namespace);
            assert_eq!(peer.secret_right(SecretAccess::Authenticated).ok(), expected, "{peer:?}");
            let reviewed = matches!(peer, Peer::Authenticated(_)).then_some(SecretRight::Account);
            assert_eq!(peer.secret_right(SecretAccess::Reviewed).ok(), reviewed.or(expected), "{peer:?}");
        }
    }

    #[test]
    fn a_certificate_and_a_listed_user_prove_a_namespace() {
        for peer in [local(None), Peer::Loopback, Peer::Anonymous] {
            assert_eq!((peer.namespace(), peer.service_account()), (None, None));
            assert_eq!(peer.check_claims(&mut proxy("any", "any")), Ok(()), "claims are all there is");
        }
        let peer = authenticated();
        assert_eq!((peer.namespace(), peer.service_account()), (Some("shop"), Some("cart")));
        let listed = local(Some("shop"));
        assert_eq!(listed.check_claims(&mut proxy("shop", "any")), Ok(()));
        let error = listed.check_claims(&mut proxy("bank", "any")).unwrap_err().to_string();
        assert_eq!(
            error,
            "the node claims namespace \"bank\", but its user may run proxies of the namespace \"shop\" only \
             (--xds-socket-users)"
        );
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
            "the node claims namespace \"bank\", but the client is spiffe://cluster.local/ns/shop/sa/cart"
        );
        assert!(peer.check_claims(&mut proxy("shop", "admin")).is_err());
    }
}
