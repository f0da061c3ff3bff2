//! Writes the requests of a proxy. One with all that a proxy has takes 1.5 MB: it is written once, into a buffer of its
//! size.

use bytes::{Bytes, BytesMut};
use test_harness::run::Protocol;

use crate::facts::TYPES;
use crate::texts::{Id, Reader};
use crate::wire;

/// The most bytes of the tags and lengths of a request, without its names.
const TAGS: usize = 32;

/// A subscription or an acknowledgement.
pub(crate) struct Request<'a> {
    pub(crate) kind: usize,
    /// The node message of the first request of a stream.
    pub(crate) node: &'a [u8],
    /// The names of the subscription (SotW), or those that are new (delta).
    pub(crate) names: &'a [Id],
    /// The names and versions of the resources that the proxy has, in the first request of a stream (delta).
    pub(crate) had: &'a [(Id, Id)],
    /// The version that is acknowledged (SotW).
    pub(crate) version: &'a [u8],
    pub(crate) nonce: &'a [u8],
    /// The reason for which the response is rejected (delta); empty if it is not.
    pub(crate) error: &'a [u8],
}

impl Request<'_> {
    /// The request in a frame.
    pub(crate) fn encoded(&self, protocol: Protocol) -> Bytes {
        let texts = Reader::new();
        let (url, put) = (TYPES[self.kind].as_bytes(), wire::put);
        let mut out = wire::begun(self.size(&texts));
        let put_names = |out: &mut BytesMut| self.names.iter().for_each(|name| put(out, 3, texts.text(*name)));
        match protocol {
            Protocol::Delta => {
                if !self.node.is_empty() {
                    put(&mut out, 1, self.node);
                }
                put(&mut out, 2, url);
                put_names(&mut out);
                for (name, version) in self.had {
                    wire::put_pair(&mut out, 5, [texts.text(*name), texts.text(*version)]);
                }
                put(&mut out, 6, self.nonce);
                if !self.error.is_empty() {
                    let mut status = BytesMut::new();
                    put(&mut status, 2, self.error);
                    put(&mut out, 7, &status);
                }
            }
            Protocol::Sotw => {
                put(&mut out, 1, self.version);
                if !self.node.is_empty() {
                    put(&mut out, 2, self.node);
                }
                put_names(&mut out);
                put(&mut out, 4, url);
                put(&mut out, 5, self.nonce);
            }
        }
        wire::ended(out)
    }

    /// The bytes of the request, or a few more.
    fn size(&self, texts: &Reader) -> usize {
        let names = self.names.iter().map(|name| wire::size(3, texts.text(*name).len()));
        let had = self.had.iter().map(|(name, version)| {
            let pair = [texts.text(*name), texts.text(*version)];
            wire::size(5, wire::pair_size(pair))
        });
        let other = [self.node, self.version, self.nonce, self.error, TYPES[self.kind].as_bytes()];
        TAGS + names.chain(had).sum::<usize>() + other.iter().map(|text| text.len()).sum::<usize>()
    }
}
