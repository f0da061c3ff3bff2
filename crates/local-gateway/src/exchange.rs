//! The settings, and the values that [`Fleet`](crate::Fleet), its Envoys and its caller exchange.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::Xds;
use crate::gateway::Id;
use crate::mesh::TokenRequest;

/// The settings of all Envoys.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The Envoy program.
    pub envoy: PathBuf,
    /// The control plane.
    pub xds: Xds,
    /// The addresses of Gateways without addresses of their own; empty for all of the machine.
    pub addresses: Vec<IpAddr>,
    /// The names of the Gateways that run here; empty for all.
    pub names: BTreeSet<String>,
    /// The DNS domain of the cluster.
    pub domain: String,
    /// The id of the cluster.
    pub cluster: String,
    /// The namespace whose ProxyConfigs are for all.
    pub root_namespace: String,
    /// The time in which open requests may end when an Envoy is stopped.
    pub drain: Duration,
    /// The number of worker threads of an Envoy; 0 for one per processor.
    pub concurrency: u32,
    /// The level of Envoy's log.
    pub log_level: String,
}

/// Addresses that should be written into the annotation of a Gateway, [`model::standing::PROXY_ADDRESSES`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Publication {
    /// The Gateway.
    pub id: Id,
    /// The addresses, separated by commas.
    pub addresses: String,
}

/// An action that the caller takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Write addresses into an annotation.
    Publish(Publication),
    /// Write a token into a file.
    Token(TokenRequest),
}

/// An event in the life of an Envoy.
#[derive(Debug)]
pub(crate) enum Event {
    /// It does not listen at ports that it acknowledged.
    Lost(BTreeSet<u16>),
    /// It has no certificate.
    NeedsToken(TokenRequest),
}
