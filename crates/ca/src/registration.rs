//! The registration authority: another signer issues the certificates, such as one of Kubernetes' CertificateSigningRequests.
//!
//! Such a signer takes the names from the request, and not from the authenticated caller. So a request is passed on only if it
//! asks for nothing but the caller's identity ([`check_request`]), and what the signer returns is checked as well ([`check_answer`]):
//! key, identity, and a path to the roots that proxies will trust.

use std::time::SystemTime;

use names::Identity;
use names::dns::is_subdomain;
use rustls_pki_types::CertificateSigningRequestDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer as _;

use crate::Code;
use crate::certificate::{Certificate, CertificateError, bundle};
use crate::csr::{Csr, CsrError};
use crate::revocation::RevocationLists;
use crate::trust::{anchor, identity, verify_path};

/// The longest name of a signer, in bytes.
const MAX_SIGNER: usize = 571;

/// A request that is not passed on, or an answer that is not used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistrationError {
    /// The request cannot be read.
    #[error(transparent)]
    Csr(#[from] CsrError),
    /// The request asks for more than the caller's identity.
    #[error(
        "the certificate signing request must ask for the identity {identity} and for nothing else, because the signer takes the names from it: {problem}"
    )]
    Names {
        /// The caller's identity.
        identity: String,
        /// The difference.
        problem: String,
    },
    /// No signer is configured, or its name is not valid.
    #[error("{0}")]
    Signer(String),
    /// The signer's certificates cannot be read.
    #[error("the answer of the signer {0}")]
    Answer(#[from] CertificateError),
    /// The signer's certificate is not the one that was asked for.
    #[error("the certificate of the signer cannot be used: {0}")]
    Wrong(String),
    /// No root is known.
    #[error(
        "no root of the signer is known: add it to caCertificates of MeshConfig, with the signer {0} in certSigners, or let the signer return it with the certificate"
    )]
    NoRoot(String),
    /// The signer refused, failed, or did not answer in time.
    #[error("the signer {signer} did not issue a certificate: {reason}")]
    Failed {
        /// The signer.
        signer: String,
        /// The reason.
        reason: String,
    },
}

impl RegistrationError {
    /// The gRPC code.
    pub fn code(&self) -> Code {
        match self {
            RegistrationError::Csr(_) | RegistrationError::Names { .. } => Code::InvalidArgument,
            _ => Code::Internal,
        }
    }

    /// The value of the label `error` of istiod's metric `citadel_server_csr_sign_err_count`.
    pub fn label(&self) -> &'static str {
        match self {
            RegistrationError::Csr(_) | RegistrationError::Names { .. } => "CSR_ERROR",
            _ => "CERT_GEN_ERROR",
        }
    }
}

/// The signer of a request, as with istiod: `CERT_SIGNER_DOMAIN` and the request's `CertSigner`, or `K8S_SIGNER`.
///
/// # Errors
/// None of them is set, or the name is not valid.
pub fn signer(domain: &str, default: &str, asked: &str) -> Result<String, RegistrationError> {
    let wrong = |text: &str| Err(RegistrationError::Signer(text.to_owned()));
    let name = match (domain, asked) {
        ("", "") => default.to_owned(),
        ("", _) => return wrong("a request names a CertSigner, but CERT_SIGNER_DOMAIN is not set"),
        (_, "") => default.to_owned(),
        (domain, asked) => format!("{domain}/{asked}"),
    };
    if name.is_empty() {
        return wrong(
            "no signer is known: set K8S_SIGNER, or CERT_SIGNER_DOMAIN and ISTIO_META_CERT_SIGNER of the proxy",
        );
    }
    let parts = name.split_once('/');
    let is_path = |path: &str| path.split('.').all(|part| !part.is_empty() && part.bytes().all(is_path_byte));
    match parts {
        Some((domain, path)) if name.len() <= MAX_SIGNER && is_subdomain(domain) && is_path(path) => Ok(name),
        _ => wrong("the name of the signer is not valid; it must have the form DOMAIN/NAME"),
    }
}

fn is_path_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b':')
}

/// Checks that a request asks for nothing but this identity: no subject, no other name, no other extension.
///
/// # Errors
/// The request is not valid, or asks for more or for less.
pub fn check_request(pem: &str, caller: &Identity) -> Result<Csr, RegistrationError> {
    let csr = Csr::from_pem(pem)?;
    let der = CertificateSigningRequestDer::from_pem_slice(pem.as_bytes()).map_err(|_| CsrError::Pem)?;
    let (_, request) = X509CertificationRequest::from_der(&der).map_err(|_| CsrError::Malformed)?;
    let problem = |problem: String| RegistrationError::Names { identity: caller.to_string(), problem };
    let info = &request.certification_request_info;
    // istio's agent sends an organization without text.
    if info.subject.iter_attributes().any(|attribute| !attribute.as_slice().is_empty()) {
        return Err(problem("it has a subject".to_owned()));
    }
    let mut found = 0;
    for extension in request.requested_extensions().into_iter().flatten() {
        let ParsedExtension::SubjectAlternativeName(names) = extension else {
            return Err(problem("it asks for another extension than subject alternative names".to_owned()));
        };
        for name in &names.general_names {
            match name {
                GeneralName::URI(uri) if *uri == caller.to_string() => found += 1,
                other => return Err(problem(format!("it has the name {}", shortened(&other.to_string())))),
            }
        }
    }
    match found {
        1 => Ok(csr),
        _ => Err(problem(format!("it has this name {found} times"))),
    }
}

/// The checked answer of a signer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The leaf and the intermediate certificates.
    pub chain: Vec<Certificate>,
    /// The roots to trust.
    pub roots: Vec<Certificate>,
}

impl Answer {
    /// The field `cert_chain` of the response: the leaf, each intermediate, and all roots as the last element.
    pub fn cert_chain(&self) -> Vec<String> {
        let mut chain: Vec<String> = self.chain.iter().map(Certificate::pem).collect();
        chain.push(bundle(&self.roots));
        chain
    }
}

/// Checks what a signer returned. `configured` are the roots of the signer that the operator lists; without any, a root must be
/// part of the answer.
///
/// # Errors
/// The certificate has another key or name, is an authority, or does not lead to a root.
pub fn check_answer(
    pem: &[u8],
    csr: &Csr,
    caller: &Identity,
    (signer, configured): (&str, &[Certificate]),
    now: SystemTime,
) -> Result<Answer, RegistrationError> {
    let wrong = |text: String| RegistrationError::Wrong(text);
    let (returned, chain): (Vec<_>, Vec<_>) =
        Certificate::list(pem)?.into_iter().partition(Certificate::is_self_issued);
    let leaf = chain.first().ok_or_else(|| wrong("it has no certificate but roots".to_owned()))?;
    if leaf.public_key() != csr.public_key() {
        return Err(wrong("it has another key than the request".to_owned()));
    }
    if leaf.is_authority() {
        return Err(wrong("it is a certificate authority".to_owned()));
    }
    let named = identity(leaf.der()).map_err(|error| wrong(error.to_string()))?;
    if named != *caller {
        return Err(wrong(format!("it has the identity {}", shortened(&named.to_string()))));
    }
    let roots = if configured.is_empty() { returned } else { configured.to_vec() };
    let anchors: Vec<_> = roots.iter().filter(|root| root.is_valid_at(now)).filter_map(anchor).collect();
    if anchors.is_empty() {
        return Err(RegistrationError::NoRoot(signer.to_owned()));
    }
    let path: Vec<_> = chain.iter().map(|certificate| certificate.der().clone()).collect();
    verify_path(&path, &anchors, &RevocationLists::default(), now).map_err(|error| wrong(error.to_string()))?;
    Ok(Answer { chain, roots })
}

fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests;
