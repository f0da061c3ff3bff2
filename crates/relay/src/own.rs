//! The agent's own subscriptions: the name table, the trust roots of the mesh, and reports of the application's health.

use std::sync::Arc;

use agent_core::exchange::{Health, MeshRoots, Names};
use bytes::Buf;
use protos::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use protos::google::rpc;
use protos::istio::networking::nds::v1::NameTable;
use protos::{Any, Message};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::sync::watch;

use crate::envelope::{Envelope, Variant};
use crate::grpc::Framed;

pub(crate) const NAMES: &str = "type.googleapis.com/istio.networking.nds.v1.NameTable";
pub(crate) const ROOTS: &str = "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig";
const HEALTH: &str = "type.googleapis.com/istio.v1.HealthInformation";
/// `INTERNAL`, the code of all errors that Istio's agent reports.
const INTERNAL: i32 = 13;
/// The longest error that is reported, in characters.
const MAX_ERROR: usize = 4096;

/// The field of `istio.mesh.v1alpha1.ProxyConfig` that the agent uses.
#[derive(Clone, PartialEq, prost::Message)]
struct ProxyConfig {
    #[prost(string, repeated, tag = "34")]
    ca_certificates_pem: Vec<String>,
}

/// The types that the agent subscribes to.
pub(crate) struct Own {
    /// The receiver of name tables, if DNS queries are captured.
    pub(crate) names: Option<watch::Sender<Names>>,
    /// The receiver of trust roots, if they are wanted.
    pub(crate) roots: Option<watch::Sender<MeshRoots>>,
}

impl Own {
    /// Whether the agent handles responses of a type.
    pub(crate) fn handles(&self, type_url: &str) -> bool {
        match type_url {
            NAMES => self.names.is_some(),
            ROOTS => self.roots.is_some(),
            _ => false,
        }
    }

    /// The first requests of a stream.
    pub(crate) fn subscriptions(&self, variant: Variant) -> impl Iterator<Item = Framed> {
        let names = self.names.as_ref().map(|_| NAMES);
        let roots = self.roots.as_ref().map(|_| ROOTS);
        names.into_iter().chain(roots).map(move |type_url| {
            let envelope = Envelope { type_url: type_url.to_owned(), ..Envelope::default() };
            encode(variant, envelope)
        })
    }

    /// Publishes the resource of a response. A response without resources changes nothing.
    ///
    /// # Errors
    /// The resource is not valid.
    pub(crate) fn accept(&self, variant: Variant, type_url: &str, response: impl Buf) -> Result<(), String> {
        let resource = first_resource(variant, response).map_err(|error| error.to_string())?;
        let Some(Any { value, .. }) = resource else { return Ok(()) };
        match (type_url, &self.names, &self.roots) {
            (NAMES, Some(names), _) => {
                let table =
                    NameTable::decode(value).map_err(|error| format!("the name table is not valid: {error}"))?;
                names.send_replace(Some(Arc::new(table)));
            }
            (ROOTS, _, Some(roots)) => {
                let config =
                    ProxyConfig::decode(value).map_err(|error| format!("the ProxyConfig is not valid: {error}"))?;
                let certificates = config.ca_certificates_pem;
                if let Some(index) =
                    certificates.iter().position(|pem| CertificateDer::from_pem_slice(pem.as_bytes()).is_err())
                {
                    return Err(format!("caCertificatesPem[{index}] has no PEM certificate"));
                }
                roots.send_replace(Arc::new(certificates));
            }
            _ => {}
        }
        Ok(())
    }
}

fn first_resource(variant: Variant, response: impl Buf) -> Result<Option<Any>, protos::DecodeError> {
    Ok(match variant {
        Variant::Sotw => DiscoveryResponse::decode(response)?.resources.into_iter().next(),
        Variant::Delta => {
            DeltaDiscoveryResponse::decode(response)?.resources.into_iter().find_map(|resource| resource.resource)
        }
    })
}

/// The report of the application's health, if it is known.
pub(crate) fn health_report(variant: Variant, health: &Health) -> Option<Framed> {
    let error = match health {
        Health::Unknown => return None,
        Health::Healthy => None,
        Health::Unhealthy { reason } => Some(error(reason)),
    };
    Some(encode(variant, Envelope { type_url: HEALTH.to_owned(), error, ..Envelope::default() }))
}

/// The ACK of a response, or the NACK with an error.
pub(crate) fn answer(variant: Variant, response: Envelope, failed: Option<&str>) -> Framed {
    encode(variant, Envelope { error: failed.map(error), ..response })
}

fn error(message: &str) -> rpc::Status {
    rpc::Status { code: INTERNAL, message: message.chars().take(MAX_ERROR).collect(), details: vec![] }
}

fn encode(variant: Variant, envelope: Envelope) -> Framed {
    let Envelope { type_url, version, nonce, error } = envelope;
    match variant {
        Variant::Sotw => Framed::of(&DiscoveryRequest {
            version_info: version,
            type_url,
            response_nonce: nonce,
            error_detail: error,
            ..DiscoveryRequest::default()
        }),
        Variant::Delta => Framed::of(&DeltaDiscoveryRequest {
            type_url,
            response_nonce: nonce,
            error_detail: error,
            ..DeltaDiscoveryRequest::default()
        }),
    }
}
