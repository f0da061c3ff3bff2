//! Protobuf messages of Envoy, Istio, gRPC and etcd, generated from their descriptions.
//!
//! Maps are ordered, so that equal messages have equal bytes; `bytes` fields are shared buffers. The descriptors are
//! embedded, too: [`json`] turns any known message into its canonical JSON form, and [`dynamic`] reads, checks and writes
//! messages that are known at run time only.
//!
//! This crate knows nothing of meshes: it adds no behaviour to the messages but encoding.

mod any;
pub mod dynamic;
mod reflect;

pub use any::{Any, any, encode};
pub use generated::{envoy, etcdserverpb, google, istio, udpa, xds};
pub use reflect::{JsonError, descriptor_pool, from_json, json, pack_json, plain_json};

pub use prost::{DecodeError, Message, Name};
pub use prost_types::{Duration, Struct, Timestamp, Value, value};

/// A duration as protobuf has it. Durations beyond 292 billion years are cut to that.
pub fn duration(duration: std::time::Duration) -> Duration {
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Duration {
        seconds,
        nanos: duration.subsec_nanos().cast_signed(),
    }
}

// Generated code answers to its generator's style, not to ours.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, rustdoc::all)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/mod.rs"));
}
