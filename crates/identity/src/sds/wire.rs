//! The messages of both forms of the protocol: state of the world, and delta.

use model::tls::KeyProvider;
use protos::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource, ResourceError,
    ResourceName,
};
use protos::google::rpc;
use tonic::Code;

use super::subscription::{Changes, Names, SECRET_TYPE, Update};

/// A request of one variant, and how its responses look.
pub(crate) trait Request: protos::Message + Default + Send + 'static {
    /// The response of the same variant.
    type Response: protos::Message + Default + Send + 'static;

    /// The content of the request.
    fn update(self) -> Update;

    /// The response with these changes.
    fn response(changes: &Changes, provider: Option<&KeyProvider>) -> Self::Response;
}

fn rejected(status: Option<rpc::Status>) -> Option<String> {
    status.map(|status| status.message.chars().take(1000).collect())
}

fn errors(changes: &Changes) -> Vec<ResourceError> {
    let error = |(name, reason): &(String, std::sync::Arc<str>)| ResourceError {
        resource_name: Some(ResourceName { name: name.clone(), ..Default::default() }),
        error_detail: Some(rpc::Status { code: Code::NotFound as i32, message: reason.to_string(), details: vec![] }),
    };
    changes.failed.iter().map(error).collect()
}

impl Request for DiscoveryRequest {
    type Response = DiscoveryResponse;

    fn update(self) -> Update {
        Update {
            type_url: self.type_url,
            nonce: self.response_nonce,
            rejected: rejected(self.error_detail),
            names: Names::Set(self.resource_names.into_iter().collect()),
        }
    }

    fn response(changes: &Changes, provider: Option<&KeyProvider>) -> DiscoveryResponse {
        let versions: Vec<&str> = changes.ready.iter().map(|(_, secret)| &*secret.version).collect();
        DiscoveryResponse {
            version_info: versions.join("."),
            nonce: changes.nonce.to_string(),
            type_url: SECRET_TYPE.to_owned(),
            resources: changes.ready.iter().map(|(name, secret)| secret.encode(name, provider)).collect(),
            resource_errors: errors(changes),
            ..Default::default()
        }
    }
}

impl Request for DeltaDiscoveryRequest {
    type Response = DeltaDiscoveryResponse;

    fn update(self) -> Update {
        Update {
            type_url: self.type_url,
            nonce: self.response_nonce,
            rejected: rejected(self.error_detail),
            names: Names::Edit {
                add: self.resource_names_subscribe,
                remove: self.resource_names_unsubscribe,
                versions: self.initial_resource_versions,
            },
        }
    }

    fn response(changes: &Changes, provider: Option<&KeyProvider>) -> DeltaDiscoveryResponse {
        let resource = |(name, secret): &(String, crate::secret::Secret)| Resource {
            name: name.clone(),
            version: secret.version.to_string(),
            resource: Some(secret.encode(name, provider)),
            ..Default::default()
        };
        DeltaDiscoveryResponse {
            nonce: changes.nonce.to_string(),
            type_url: SECRET_TYPE.to_owned(),
            resources: changes.ready.iter().map(resource).collect(),
            removed_resources: changes.failed.iter().map(|(name, _)| name.clone()).collect(),
            resource_errors: errors(changes),
            ..Default::default()
        }
    }
}
