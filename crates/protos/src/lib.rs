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
pub mod wire;

pub use any::{Any, any, encode};
pub use generated::{envoy, etcdserverpb, google, istio, opentelemetry, stats, udpa, xds};
pub use reflect::{JsonError, descriptor_pool, from_json, json, pack_json, plain_json};

pub use prost::{DecodeError, Message, Name};
pub use prost_types::{Duration, Struct, Timestamp, Value, value};

/// The longest duration that Envoy takes, in seconds: what fits in 64 bits of nanoseconds, 292 years.
const MAX_SECONDS: u64 = 9_223_372_035;

/// A duration as protobuf has it, and as Envoy takes it: longer ones are cut to 292 years.
pub fn duration(duration: std::time::Duration) -> Duration {
    let duration = duration.min(std::time::Duration::from_secs(MAX_SECONDS));
    Duration {
        seconds: duration.as_secs().cast_signed(),
        nanos: duration.subsec_nanos().cast_signed(),
    }
}

// Generated code answers to its generator's style, not to ours.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, rustdoc::all)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/mod.rs"));
}
