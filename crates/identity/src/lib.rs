//! The workload's identity: keys, certificate requests, rotation, trust roots, files, and the SDS server.

mod key;
mod name;
mod pem;
mod sds;
mod secret;
mod settings;
mod wanted;

pub use settings::{CertificateFiles, KeyKind, Settings};
