//! The client of the certificate authority, `istio.v1.auth.IstioCertificateService`.

use std::time::{Duration, SystemTime};

use agent_core::upstream::{Upstream, UpstreamError};
use protos::istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse};
use protos::{Struct, Value, value};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::pem::{self, PemError};
use crate::secret::Pair;

const CREATE: &str = "/istio.v1.auth.IstioCertificateService/CreateCertificate";
/// The time for a request. Signers outside of the control plane take seconds.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The largest answer, in bytes.
const MAX_ANSWER: usize = 1 << 20;
/// The codes after which another request may succeed without a change of the configuration.
const TRANSIENT: [Code; 6] = [
    Code::Cancelled,
    Code::DeadlineExceeded,
    Code::ResourceExhausted,
    Code::Aborted,
    Code::Internal,
    Code::Unavailable,
];

/// A request for a certificate that failed.
#[derive(thiserror::Error, Debug)]
pub(crate) enum RequestError {
    /// There is no connection.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The certificate authority refused.
    #[error("{address} answered {:?}: {}", .status.code(), .status.message().chars().take(500).collect::<String>())]
    Status {
        /// The address of the certificate authority.
        address: String,
        /// Its answer.
        status: Box<Status>,
    },
    /// There was no answer in time.
    #[error("{0} did not answer within {TIMEOUT:?}")]
    Timeout(String),
    /// The answer cannot be used.
    #[error("{address} answered with a certificate that cannot be used: {error}")]
    Certificate {
        /// The address of the certificate authority.
        address: String,
        /// The reason.
        error: PemError,
    },
    /// The answer is not a chain and a root.
    #[error("{0} answered with {1} certificates, not with a chain and a root")]
    Count(String, usize),
    /// The certificate has expired, or the clock is wrong.
    #[error("{0} answered with a certificate that has expired; compare the clocks of both machines")]
    Expired(String),
}

impl RequestError {
    /// Whether another request may succeed soon.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            RequestError::Upstream(UpstreamError::Connect { .. }) | RequestError::Timeout(_) => true,
            RequestError::Status { status, .. } => TRANSIENT.contains(&status.code()),
            _ => false,
        }
    }

    /// Whether the certificate authority does not accept who the agent says it is.
    pub(crate) fn is_refusal(&self) -> bool {
        let codes = [Code::Unauthenticated, Code::PermissionDenied];
        matches!(self, RequestError::Status { status, .. } if codes.contains(&status.code()))
    }
}

/// The content of a request.
pub(crate) struct Wish<'a> {
    pub(crate) request: &'a str,
    pub(crate) lifetime: Duration,
    pub(crate) signer: &'a str,
}

/// Requests a certificate over a connection of its own.
pub(crate) async fn create(
    upstream: &Upstream,
    token: Option<&str>,
    wish: Wish<'_>,
) -> Result<Vec<String>, RequestError> {
    let answer = async {
        let signer = Value { kind: Some(value::Kind::StringValue(wish.signer.to_owned())) };
        let mut request = Request::new(IstioCertificateRequest {
            csr: wish.request.to_owned(),
            metadata: Some(Struct { fields: [("CertSigner".to_owned(), signer)].into() }),
            validity_duration: i64::try_from(wish.lifetime.as_secs()).unwrap_or(i64::MAX),
        });
        upstream.authorize_with(token, request.metadata_mut())?;
        let status = |status| RequestError::Status { address: upstream.address.clone(), status: Box::new(status) };
        let mut grpc = tonic::client::Grpc::new(upstream.connect().await?).max_decoding_message_size(MAX_ANSWER);
        grpc.ready().await.map_err(|error| status(Status::unavailable(error.to_string())))?;
        let codec = ProstCodec::<IstioCertificateRequest, IstioCertificateResponse>::default();
        let answer = grpc.unary(request, PathAndQuery::from_static(CREATE), codec).await.map_err(status)?;
        Ok(answer.into_inner().cert_chain)
    };
    tokio::time::timeout(TIMEOUT, answer).await.map_err(|_| RequestError::Timeout(upstream.address.clone()))?
}

/// Checks an answer: the chain must belong to the key, and its last element has the roots.
pub(crate) fn check(
    address: &str,
    mut answer: Vec<String>,
    key: String,
    now: SystemTime,
) -> Result<(Pair, String), RequestError> {
    let failed = |error| RequestError::Certificate { address: address.to_owned(), error };
    let count = answer.len();
    let roots = answer.pop().filter(|_| count > 1).ok_or_else(|| RequestError::Count(address.to_owned(), count))?;
    let chain = pem::concat(&answer);
    let expires = pem::check_pair(chain.as_bytes(), key.as_bytes()).map_err(failed)?;
    if expires <= now {
        return Err(RequestError::Expired(address.to_owned()));
    }
    let roots = pem::bundle([roots.as_bytes()]).map_err(failed)?;
    Ok((Pair { chain: chain.into(), key: key.into(), expires }, roots))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn an_answer_must_have_a_chain_for_the_key_and_a_root() {
        let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let signed = |key: &KeyPair| CertificateParams::default().self_signed(key).unwrap().pem();
        let (leaf, root) = (signed(&key), signed(&other));
        let now = SystemTime::now();
        let checked = |answer: &[&str], now| {
            let answer = answer.iter().map(|&text| text.to_owned()).collect();
            check("ca", answer, key.serialize_pem(), now).map_err(|error| error.to_string())
        };
        let (pair, roots) = checked(&[leaf.trim_end(), &root, &root], now).unwrap();
        assert_eq!(
            (&*pair.chain, roots.replace('\n', "")),
            (&*pem::concat(&[leaf.clone(), root.clone()]), root.replace(['\r', '\n'], ""))
        );
        let later = pair.expires + Duration::from_secs(1);
        for (answer, now, reason) in [
            (&[][..], now, "0 certificates"),
            (&[leaf.as_str()], now, "1 certificates"),
            (&[root.as_str(), &root], now, "does not belong"),
            (&[leaf.as_str(), "no root"], now, "no certificate"),
            (&[leaf.as_str(), &root], later, "has expired"),
        ] {
            let error = checked(answer, now).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_answer_panics(answer in proptest::collection::vec("(-----BEGIN CERTIFICATE-----\n[A-Za-z0-9=]{0,40}\n-----END CERTIFICATE-----|.{0,9})", 0..4)) {
            let _ = check("ca", answer, String::new(), SystemTime::UNIX_EPOCH);
        }
    }
}
