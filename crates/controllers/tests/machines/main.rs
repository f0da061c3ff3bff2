//! Controllers against a simulated API server. Planned writes are applied, observed late or lost, and other clients
//! interfere. In the end the desired state is reached without unnecessary writes.

#![allow(clippy::unwrap_used)]

mod addresses;
mod gateways;
mod ingress;
mod registration;
mod root_certificate;
mod service_exports;
mod untaint;
