//! Rutter's certificate authority as a pure machine, compatible with Istio's.
//!
//! ```text
//! Secret, files ──► plugged_in, self_signed ──► Authority ──issue(Csr, SANs, lifetime, now)──► leaf, intermediates, roots
//! certificate, token, header ──► caller ──► SANs ──┘
//! roots of all sources ──► TrustBundle ──verify(chain, now)──► Identity
//! ```
//!
//! | module | job |
//! |---|---|
//! | [`csr`] | parses certificate signing requests and takes their public key, nothing else |
//! | [`authority`] | issues workload certificates |
//! | [`self_signed`] | creates a root, decides when to rotate it, and maps it to the Secrets `istio-ca-secret` and `cacerts` |
//! | [`plugged_in`] | checks certificates that the operator provides |
//! | [`keeper`] | chooses between plugged-in and self-signed, and decides what to load, create, rotate and keep |
//! | [`registration`] | checks requests for another signer, and its answers |
//! | [`spiffe`] | reads the bundles of other trust domains |
//! | [`revocation`] | revocation lists |
//! | [`trust`] | roots by trust domain; verifies client certificates |
//! | [`caller`] | the rules who gets which identity |
//! | [`join`] | tokens that let a workload join without Kubernetes |
//! | [`sealed`] | private keys encrypted at rest |
//! | [`serving`] | the certificate of the control plane's own ports |
//!
//! Invariants: no function reads a clock, a file or a socket; the current time is the argument `now`. Names in a
//! certificate come from the authenticated caller, never from the request. A certificate never outlasts its issuer.
//! Debug output never contains a private key or a token.
//!
//! Certificates are encoded here and not by `rcgen`: an issuer's name must be repeated byte for byte, and `rcgen` cannot
//! represent names in which an attribute occurs twice, such as `DC=mesh, DC=example, DC=com`. Paths are verified by
//! `rustls-webpki`.

pub mod authority;
pub mod caller;
pub mod certificate;
pub mod csr;
mod der;
pub mod join;
pub mod keeper;
pub mod key;
pub mod plugged_in;
pub mod registration;
pub mod revocation;
pub mod sealed;
pub mod self_signed;
pub mod serving;
mod signature;
pub mod spiffe;
pub mod trust;

#[cfg(test)]
mod tests;

pub use authority::{Authority, IssueError, Lifetimes};
pub use certificate::Certificate;
pub use csr::Csr;
pub use key::{KeyKind, PrivateKey};
pub use trust::TrustBundle;

/// The gRPC status codes of the certificate service, with their numbers.
///
/// | error | code | istiod |
/// |---|---|---|
/// | [`csr::CsrError`] | `InvalidArgument` | the same |
/// | a lifetime above the maximum | `InvalidArgument` | the same |
/// | [`caller::CallerError`] | `Unauthenticated`, with a message without details | the same |
/// | no authority yet, an expired issuer, a failed signature | `Internal` | the same |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// The request is invalid; a retry is useless.
    InvalidArgument = 3,
    /// The authority cannot sign now.
    Internal = 13,
    /// The caller is not authenticated, or not entitled to the identity.
    Unauthenticated = 16,
}
