//! The rules who gets which identity.
//!
//! The server authenticates a caller in the order of [`Method::ORDER`], which is istiod's; the first method that succeeds
//! decides. The identities of the certificate are the caller's, or the one that a trusted node account asks for
//! ([`identities`]). All errors have the gRPC code `Unauthenticated`, and the client receives [`CallerError::message`]
//! only; the reason is for the log.

mod forwarded;

use std::collections::BTreeSet;

use names::dns::{is_label, is_subdomain};
use names::{Identity, TrustDomain};

pub use forwarded::{MAX_HEADER, TrustedRanges};

use crate::Code;
use crate::join::JoinError;
use crate::trust::TrustBundle;

/// A method of authentication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// A client certificate, verified by [`TrustBundle::verify`].
    ClientCertificate,
    /// A join token of Rutter ([`crate::join`]). istiod has no such tokens. Their prefix is unambiguous.
    JoinToken,
    /// A JWT of the issuer in `JWT_RULE`.
    Oidc,
    /// A token that a Kubernetes API server has reviewed.
    KubernetesToken,
    /// The header `x-forwarded-client-cert` of a trusted gateway.
    ForwardedCertificate,
}

impl Method {
    /// The order in which methods are tried.
    pub const ORDER: [Method; 5] = [
        Method::ClientCertificate,
        Method::JoinToken,
        Method::Oidc,
        Method::KubernetesToken,
        Method::ForwardedCertificate,
    ];
}

/// A caller that is not authenticated, or not entitled to the identity that it asks for.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallerError {
    /// The API server rejected the token.
    #[error("the API server rejected the token: {0}")]
    Rejected(String),
    /// The credentials are not valid, with the reason.
    #[error("{0}")]
    Invalid(String),
    /// The token is for another audience.
    #[error(
        "the token is for the audiences {found:?}, but one of {expected:?} is required (TOKEN_AUDIENCES, JWT_RULE)"
    )]
    Audience {
        /// The audiences of the token.
        found: Vec<String>,
        /// The accepted audiences.
        expected: Vec<String>,
    },
    /// The token's user is no service account.
    #[error("the user {0:?} is not a service account (system:serviceaccount:NAMESPACE:NAME)")]
    NotServiceAccount(String),
    /// The header cannot be used.
    #[error("the header x-forwarded-client-cert cannot be used: {0}")]
    Forwarded(&'static str),
    /// The identity belongs to another mesh.
    #[error(
        "the authority signs no identity of the trust domain {0}; add it to trustDomainAliases if it belongs to this mesh"
    )]
    ForeignDomain(TrustDomain),
    /// The join token is not accepted.
    #[error(transparent)]
    JoinToken(#[from] JoinError),
    /// The caller may not ask for other identities.
    #[error("{caller} may not ask for the identity {asked:?}: {reason}")]
    Impersonation {
        /// The caller.
        caller: String,
        /// The identity that it asks for, truncated.
        asked: String,
        /// The reason.
        reason: String,
    },
}

impl CallerError {
    /// The gRPC code.
    pub fn code(&self) -> Code {
        Code::Unauthenticated
    }

    /// The message for the client: istiod's, without a reason that would help an attacker.
    pub fn message(&self) -> &'static str {
        match self {
            CallerError::Impersonation { .. } => "request impersonation authentication failure",
            _ => "request authenticate failure",
        }
    }
}

/// The pod that a Kubernetes token is bound to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoundPod {
    /// The pod's name.
    pub name: String,
    /// The pod's UID.
    pub uid: String,
}

/// An authenticated caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// The method that authenticated it.
    pub method: Method,
    /// Its identity.
    pub identity: Identity,
    /// Its pod, if a Kubernetes token proves it.
    pub pod: Option<BoundPod>,
}

/// The status of a TokenReview.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ReviewedToken {
    /// `status.authenticated`.
    pub authenticated: bool,
    /// `status.error`.
    pub error: String,
    /// `status.audiences`.
    pub audiences: Vec<String>,
    /// `status.user.username`.
    pub username: String,
    /// `status.user.groups`.
    pub groups: Vec<String>,
    /// The first value of `authentication.kubernetes.io/pod-name` in `status.user.extra`.
    pub pod_name: Option<String>,
    /// The first value of `authentication.kubernetes.io/pod-uid` in `status.user.extra`.
    pub pod_uid: Option<String>,
}

impl Caller {
    /// A caller with a verified client certificate, or with a redeemed join token.
    pub fn new(method: Method, identity: Identity) -> Caller {
        Caller { method, identity, pod: None }
    }

    /// A caller with a token that an API server has reviewed. `audiences` are those of the request; an API server that
    /// ignores them is not accepted.
    ///
    /// # Errors
    /// The token is not authenticated, for another audience, or not that of a service account.
    pub fn from_token(
        token: &ReviewedToken,
        audiences: &[String],
        domain: &TrustDomain,
    ) -> Result<Caller, CallerError> {
        if !token.error.is_empty() || !token.authenticated {
            return Err(CallerError::Rejected(token.error.chars().take(200).collect()));
        }
        check_audience(&token.audiences, audiences)?;
        if !token.groups.iter().any(|group| group == "system:serviceaccounts") {
            return Err(CallerError::NotServiceAccount(shortened(&token.username)));
        }
        let identity = service_account(&token.username, domain)?;
        let pod = match (&token.pod_name, &token.pod_uid) {
            (Some(name), Some(uid)) => Some(BoundPod { name: name.clone(), uid: uid.clone() }),
            _ => None,
        };
        Ok(Caller { method: Method::KubernetesToken, identity, pod })
    }

    /// A caller with a JWT whose signature, issuer and expiry have been verified.
    ///
    /// # Errors
    /// The token is for another audience, or its subject is not a service account.
    pub fn from_claims(
        subject: &str,
        found: &[String],
        audiences: &[String],
        domain: &TrustDomain,
    ) -> Result<Caller, CallerError> {
        check_audience(found, audiences)?;
        Ok(Caller::new(Method::Oidc, service_account(subject, domain)?))
    }
}

/// One audience must be expected. Without expected ones, as with Istio's `TOKEN_AUDIENCES=""`, tokens for the API server
/// itself are accepted, and the review has no audiences.
fn check_audience(found: &[String], expected: &[String]) -> Result<(), CallerError> {
    if expected.is_empty() || found.iter().any(|audience| expected.contains(audience)) {
        return Ok(());
    }
    let found = found.iter().take(10).map(|audience| shortened(audience)).collect();
    Err(CallerError::Audience { found, expected: expected.to_vec() })
}

fn service_account(user: &str, domain: &TrustDomain) -> Result<Identity, CallerError> {
    let parts: Vec<&str> = user.splitn(5, ':').collect();
    match parts[..] {
        ["system", "serviceaccount", namespace, account] if is_label(namespace) && is_subdomain(account) => {
            Ok(Identity { trust_domain: domain.clone(), namespace: namespace.into(), service_account: account.into() })
        }
        _ => Err(CallerError::NotServiceAccount(shortened(user))),
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}

/// The service accounts that may ask for identities of other pods on their node (`CA_TRUSTED_NODE_ACCOUNTS`).
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct TrustedNodeAccounts(BTreeSet<(String, String)>);

impl TrustedNodeAccounts {
    /// Parses `NAMESPACE/NAME,…`. Returns the entries that are not of this form as well, which are ignored.
    pub fn parse(text: &str) -> (TrustedNodeAccounts, Vec<String>) {
        let (mut accounts, mut invalid) = (BTreeSet::new(), Vec::new());
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            match entry.split_once('/') {
                Some((namespace, name)) if is_label(namespace) && is_subdomain(name) => {
                    accounts.insert((namespace.to_owned(), name.to_owned()));
                }
                _ => invalid.push(entry.to_owned()),
            }
        }
        (TrustedNodeAccounts(accounts), invalid)
    }

    fn contains(&self, identity: &Identity) -> bool {
        let of = |(namespace, name): &(String, String)| {
            **namespace == *identity.namespace && **name == *identity.service_account
        };
        self.0.iter().any(of)
    }
}

/// A pod, as far as impersonation needs it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pod {
    /// The UID.
    pub uid: String,
    /// The service account.
    pub service_account: String,
    /// The node; empty before the pod is scheduled.
    pub node: String,
}

/// The pods of the caller's cluster that have not failed.
pub trait Pods {
    /// A pod.
    fn pod(&self, namespace: &str, name: &str) -> Option<Pod>;
    /// Whether a pod with a service account is on a node.
    fn has_account_on_node(&self, node: &str, namespace: &str, service_account: &str) -> bool;
}

/// The identities of the certificate for a caller. `impersonated` is the value of `ImpersonatedIdentity` in the request's
/// metadata; empty is as good as none.
///
/// # Errors
/// The identity belongs to another mesh, or the caller may not ask for it.
pub fn identities(
    caller: &Caller,
    impersonated: Option<&str>,
    trust: &TrustBundle,
    trusted: &TrustedNodeAccounts,
    pods: &dyn Pods,
) -> Result<Vec<Identity>, CallerError> {
    let owned = |identity: Identity| match trust.is_own(&identity.trust_domain) {
        true => Ok(identity),
        false => Err(CallerError::ForeignDomain(identity.trust_domain)),
    };
    let identity = match impersonated.filter(|text| !text.is_empty()) {
        None => owned(caller.identity.clone())?,
        Some(text) => {
            let asked = impersonation(caller, text, trusted, pods);
            let asked = asked.and_then(|identity| owned(identity).map_err(|error| error.to_string()));
            asked.map_err(|reason| CallerError::Impersonation {
                caller: caller.identity.to_string(),
                asked: shortened(text),
                reason,
            })?
        }
    };
    Ok(vec![identity])
}

fn impersonation(
    caller: &Caller,
    asked: &str,
    trusted: &TrustedNodeAccounts,
    pods: &dyn Pods,
) -> Result<Identity, String> {
    let (identity, Some(bound)) = (&caller.identity, &caller.pod) else {
        return Err("only a Kubernetes token that is bound to a pod allows this".to_owned());
    };
    if !trusted.contains(identity) {
        return Err("its service account is not one of CA_TRUSTED_NODE_ACCOUNTS".to_owned());
    }
    let asked = Identity::parse(asked).map_err(|error| error.to_string())?;
    let namespace = &identity.namespace;
    let pod = pods.pod(namespace, &bound.name);
    let pod = pod.ok_or_else(|| format!("the pod {namespace}/{} does not exist", shortened(&bound.name)))?;
    if pod.uid != bound.uid {
        return Err(format!("the pod {namespace}/{} was created again since the token was issued", bound.name));
    }
    if *pod.service_account != *identity.service_account || pod.node.is_empty() {
        return Err(format!("the pod {namespace}/{} has another service account or no node", bound.name));
    }
    if !pods.has_account_on_node(&pod.node, &asked.namespace, &asked.service_account) {
        let (namespace, account) = (&asked.namespace, &asked.service_account);
        return Err(format!("no pod of the service account {namespace}/{account} is on the node {}", pod.node));
    }
    Ok(asked)
}

#[cfg(test)]
mod tests;
