//! `google.protobuf.Any` with shared bytes.

use bytes::Bytes;
use prost::{Message, Name};

/// `google.protobuf.Any`: an encoded message and its type. Clones share the bytes.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Any {
    /// `type.googleapis.com/` and the full name of the message.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// The encoded message.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

impl Name for Any {
    const NAME: &'static str = "Any";
    const PACKAGE: &'static str = "google.protobuf";

    fn type_url() -> String {
        "type.googleapis.com/google.protobuf.Any".to_owned()
    }
}

impl Any {
    /// Decodes the message as an `M`; `None` if it has another type.
    ///
    /// # Errors
    /// The bytes are not a valid `M`.
    pub fn decode_as<M: Message + Name + Default>(&self) -> Option<Result<M, prost::DecodeError>> {
        (self.type_url == M::type_url()).then(|| M::decode(self.value.clone()))
    }
}

/// Packs a message.
pub fn any<M: Message + Name>(message: &M) -> Any {
    Any { type_url: M::type_url(), value: encode(message) }
}

/// Encodes a message.
pub fn encode(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envoy::config::core::v3::Node;

    #[test]
    fn packed_messages_have_their_type_and_decode() {
        let node = Node { id: "a".to_owned(), ..Node::default() };
        let packed = any(&node);
        assert_eq!(packed.type_url, "type.googleapis.com/envoy.config.core.v3.Node");
        assert_eq!(packed.decode_as::<Node>().unwrap().unwrap(), node);
        assert!(packed.decode_as::<Any>().is_none());
    }

    #[test]
    fn the_certificate_service_has_the_numbers_of_istios_agent() {
        use crate::istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse};
        let request = IstioCertificateRequest { csr: "a".to_owned(), validity_duration: 5, ..Default::default() };
        assert_eq!(request.encode_to_vec(), [0x0a, 1, b'a', 0x18, 5]);
        let asked = crate::Value { kind: Some(crate::value::Kind::StringValue("b".to_owned())) };
        let metadata = crate::Struct { fields: [("c".to_owned(), asked)].into() };
        let request = IstioCertificateRequest { metadata: Some(metadata), ..Default::default() };
        assert_eq!(request.encode_to_vec(), [0x22, 10, 0x0a, 8, 0x0a, 1, b'c', 0x12, 3, 0x1a, 1, b'b']);
        let response = IstioCertificateResponse { cert_chain: vec!["d".to_owned()] };
        assert_eq!(response.encode_to_vec(), [0x0a, 1, b'd']);
    }
}
