//! The CNI plugin and its node agent: interception without privileges in the pod.
//!
//! [`plugin`] is the program that the container runtime starts for each pod. It asks the Kubernetes API for the pod and makes
//! the rules of [`interception`] in the pod's network namespace. [`node`] is the agent that runs once on each node: it installs
//! the plugin and keeps it installed, and repairs pods that were started before it was there. Both follow Istio's CNI in
//! sidecar mode: the names of files, settings, annotations and metrics are the same.

mod conflist;
#[cfg(test)]
mod fake_api;
mod install;
mod kubernetes;
mod netns;
pub mod node;
pub mod plugin;
pub mod pod;
mod repair;
pub mod settings;
mod web;

pub use settings::Settings;
