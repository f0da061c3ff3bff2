//! The fields of discovery messages that the relay reads. Resources are skipped.

use bytes::Buf;
use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, bytes as wire_bytes, decode_key, skip_field};
use protos::Message as _;
use protos::google::rpc;

/// The variant of the xDS protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Variant {
    /// State of the world.
    Sotw,
    /// Delta.
    Delta,
}

impl Variant {
    /// The path of the gRPC method.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Variant::Sotw => "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
            Variant::Delta => "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
        }
    }

    /// The variant that is served at a path.
    pub(crate) fn at(path: &str) -> Option<Variant> {
        [Variant::Sotw, Variant::Delta].into_iter().find(|variant| variant.path() == path)
    }
}

/// A request or response without node, names and resources.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Envelope {
    /// The type of the resources.
    pub(crate) type_url: String,
    /// The version that is sent or was acknowledged; empty in delta.
    pub(crate) version: String,
    /// The nonce of the response, or of the response that a request answers.
    pub(crate) nonce: String,
    /// The reason for which the response was rejected (a NACK).
    pub(crate) error: Option<rpc::Status>,
}

/// The numbers of the fields: version, type URL, nonce, error.
type Numbers = [u32; 4];

/// Reads a request.
///
/// # Errors
/// The bytes are not a request.
pub(crate) fn request(variant: Variant, message: impl Buf) -> Result<Envelope, DecodeError> {
    match variant {
        Variant::Sotw => read(message, [1, 4, 5, 6]),
        Variant::Delta => read(message, [0, 2, 6, 7]),
    }
}

/// Reads a response.
///
/// # Errors
/// The bytes are not a response.
pub(crate) fn response(variant: Variant, message: impl Buf) -> Result<Envelope, DecodeError> {
    match variant {
        Variant::Sotw => read(message, [1, 4, 5, 0]),
        Variant::Delta => read(message, [0, 4, 5, 0]),
    }
}

/// Reads a message of any kind, for fuzzing.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    for variant in [Variant::Sotw, Variant::Delta] {
        let _ = (request(variant, bytes), response(variant, bytes));
    }
}

fn read(mut message: impl Buf, [version, type_url, nonce, error]: Numbers) -> Result<Envelope, DecodeError> {
    let mut envelope = Envelope::default();
    while message.has_remaining() {
        let (number, wire) = decode_key(&mut message)?;
        if wire == WireType::LengthDelimited && number != 0 && [version, type_url, nonce, error].contains(&number) {
            let mut value = Vec::new();
            wire_bytes::merge(wire, &mut value, &mut message, DecodeContext::default())?;
            if number == error {
                envelope.error = Some(rpc::Status::decode(&*value)?);
                continue;
            }
            let text = String::from_utf8_lossy(&value).into_owned();
            match number {
                _ if number == version => envelope.version = text,
                _ if number == type_url => envelope.type_url = text,
                _ => envelope.nonce = text,
            }
        } else {
            skip_field(wire, number, &mut message, DecodeContext::default())?;
        }
    }
    Ok(envelope)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use protos::Any;
    use protos::envoy::service::discovery::v3::{
        DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
    };

    use super::*;

    fn texts() -> impl Strategy<Value = (String, String, String)> {
        ("[a-z./]{0,9}", "[0-9]{0,9}", "[a-f]{0,9}")
    }

    proptest! {
        #[test]
        fn requests_are_read((type_url, version_info, response_nonce) in texts(), message in proptest::option::of("[a-z]{0,9}")) {
            let error_detail = message.map(|message| rpc::Status { code: 13, message, details: vec![] });
            let resource_names = vec!["x".to_owned(), String::new()];
            let sotw = DiscoveryRequest {
                version_info: version_info.clone(), type_url: type_url.clone(), response_nonce: response_nonce.clone(),
                resource_names: resource_names.clone(), error_detail: error_detail.clone(), ..Default::default()
            };
            let mut expected = Envelope { type_url: type_url.clone(), version: version_info, nonce: response_nonce.clone(), error: error_detail.clone() };
            prop_assert_eq!(&request(Variant::Sotw, &*sotw.encode_to_vec()).unwrap(), &expected);
            let delta = DeltaDiscoveryRequest {
                type_url, response_nonce, resource_names_subscribe: resource_names, error_detail,
                initial_resource_versions: [("a".to_owned(), "b".to_owned())].into(), ..Default::default()
            };
            expected.version.clear();
            prop_assert_eq!(request(Variant::Delta, &*delta.encode_to_vec()).unwrap(), expected);
        }

        #[test]
        fn responses_are_read((type_url, version_info, nonce) in texts(), value in proptest::collection::vec(any::<u8>(), 0..200)) {
            let resource = Any { type_url: type_url.clone(), value: value.into() };
            let sotw = DiscoveryResponse {
                version_info: version_info.clone(), type_url: type_url.clone(), nonce: nonce.clone(), resources: vec![resource.clone()],
                ..Default::default()
            };
            let mut expected = Envelope { type_url: type_url.clone(), version: version_info.clone(), nonce: nonce.clone(), error: None };
            prop_assert_eq!(&response(Variant::Sotw, &*sotw.encode_to_vec()).unwrap(), &expected);
            let resource = Resource { name: "a".to_owned(), resource: Some(resource), ..Default::default() };
            let delta = DeltaDiscoveryResponse {
                type_url, nonce, system_version_info: version_info, resources: vec![resource], removed_resources: vec!["b".to_owned()],
                ..Default::default()
            };
            expected.version.clear();
            prop_assert_eq!(response(Variant::Delta, &*delta.encode_to_vec()).unwrap(), expected);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            fuzz(&bytes);
        }
    }
}
