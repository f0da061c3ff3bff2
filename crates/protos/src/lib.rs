//! Protobuf messages of Envoy, Istio, gRPC and etcd, generated from `.proto` files.
//!
//! ```text
//! .proto ──build.rs──► messages (prost) ──encode──► bytes ──► Any
//! |                  └─► descriptors ──► json, from_json, dynamic
//! ```
//!
//! [`json`] converts any known message to canonical JSON. [`dynamic`] reads, checks and writes messages whose type is
//! known only at run time. [`wire`] reads and writes fields without generated types.
//!
//! Maps are ordered, so that equal messages have equal bytes; `bytes` fields are shared buffers. The crate adds only
//! encoding to the messages.

mod any;
pub mod dynamic;
mod go_bool;
mod go_duration;
mod reflect;
pub mod wire;

pub use any::{Any, any, encode};
pub use generated::{envoy, etcdserverpb, google, istio, opentelemetry, stats, udpa, xds};
pub use reflect::{JsonError, descriptor_pool, from_json, json, pack_json, plain_json};

pub use go_bool::parse_bool;
pub use go_duration::parse_duration;
pub use prost::{DecodeError, Message, Name};
pub use prost_types::{Duration, Struct, Timestamp, Value, value};

/// The longest duration that Envoy accepts, in seconds: 64 bits of nanoseconds, 292 years.
const MAX_SECONDS: u64 = 9_223_372_035;

/// Converts a duration to protobuf, limited to the 292 years that Envoy accepts.
pub fn duration(duration: std::time::Duration) -> Duration {
    let duration = duration.min(std::time::Duration::from_secs(MAX_SECONDS));
    Duration { seconds: duration.as_secs().cast_signed(), nanos: duration.subsec_nanos().cast_signed() }
}

// Generated code has its own style.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, rustdoc::all)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/mod.rs"));
}
