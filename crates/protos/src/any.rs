//! `google.protobuf.Any` with shared bytes, and encoding.

use bytes::Bytes;
use prost::{Message, Name};

/// `google.protobuf.Any`: an encoded message and what it is. Cloning it copies no message.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Any {
    /// `type.googleapis.com/` and the full name of the message.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// The message's encoding.
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
    /// Decodes the message if it is an `M`; `None` if it is something else.
    ///
    /// # Errors
    /// The bytes are no `M` although the type says so.
    pub fn decode_as<M: Message + Name + Default>(&self) -> Option<Result<M, prost::DecodeError>> {
        (self.type_url == M::type_url()).then(|| M::decode(self.value.clone()))
    }
}

/// Packs a message with its type.
pub fn any<M: Message + Name>(message: &M) -> Any {
    Any {
        type_url: M::type_url(),
        value: encode(message),
    }
}

/// The encoding of a message.
pub fn encode(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envoy::config::core::v3::Node;

    #[test]
    fn what_is_packed_is_named_and_comes_out_again() {
        let node = Node {
            id: "a".to_owned(),
            ..Node::default()
        };
        let packed = any(&node);
        assert_eq!(packed.type_url, "type.googleapis.com/envoy.config.core.v3.Node");
        assert_eq!(packed.decode_as::<Node>().unwrap().unwrap(), node);
        assert!(packed.decode_as::<Any>().is_none());
    }
}
