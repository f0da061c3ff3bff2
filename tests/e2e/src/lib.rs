//! End-to-end tests with real components: the control plane as users start it, real Envoys, real HTTP services.
//!
//! The tests link no code of Rutter except the messages of Envoy's protocol: the tests use the flags and pages of the binary,
//! and the objects that operators write. Most tests must succeed with both variants of the protocol;
//! [`both_protocols!`] makes two of each.

mod agent;
mod binary;
mod certified;
pub mod client;
pub mod cluster;
mod collector;
mod command;
pub mod grpc;
pub mod guarded;
pub mod home;
pub mod issued;
pub mod machine;
mod mesh;
mod namespace;
pub mod objects;
pub mod observer;
mod pair;
mod picker;
mod pod;
pub mod script;
pub mod secured;
mod shop;
pub mod steady;
pub mod tls;

pub use agent::{Agent, Table};
pub use binary::{agent_binary, cni_binary, demo_binary, envoy_binary, kubectl_binary, rutter_binary};
pub use certified::certified;
pub use collector::{Collector, Told};
pub use command::{done, rutter};
pub use mesh::{Mesh, PATIENCE};
pub use namespace::Namespace;
pub use pair::Pair;
pub use picker::Picker;
pub use pod::Pod;
pub use shop::{HOST, Shop, shop_service, virtual_service};
pub use test_agent::{client as secure, issuer};

/// Generates two tests from a function of the protocol: one with state of the world, one with delta.
#[macro_export]
macro_rules! both_protocols {
    ($( $(#[$meta:meta])* async fn $name:ident($protocol:ident) $body:block )+) => {
        $(
            $(#[$meta])*
            mod $name {
                #[allow(unused_imports)]
                use super::*;

                async fn test($protocol: test_harness::run::Protocol) -> test_harness::run::Result<()> {
                    $body
                    Ok(())
                }

                // Errors contain logs of several lines, which only `Display` prints as lines.
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn sotw() {
                    test(test_harness::run::Protocol::Sotw).await.unwrap_or_else(|error| panic!("{error}"));
                }

                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn delta() {
                    test(test_harness::run::Protocol::Delta).await.unwrap_or_else(|error| panic!("{error}"));
                }
            }
        )+
    };
}
