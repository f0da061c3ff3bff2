//! Asks a real Envoy whether it accepts resources: thousands at once, in two processes.
//!
//! The resources are passed as discovery files (Envoy's way to read them from disk), because Envoy then answers for
//! each resource separately and continues after a rejection. Clusters and listeners are passed as they are, except for
//! unique names and unused addresses; route configurations inside a generated listener, endpoints inside a generated
//! cluster. Files that users name are replaced by test files. Other types (name tables) are only decoded.

mod envoy;
mod files;
mod piece;

use ::envoy::types;
use std::collections::BTreeMap;
use std::fmt;

use model::xds::{Resource, ResourceType, Version};

use crate::state::Holdings;

/// Resources without repetitions, and the first proxy that had each.
#[derive(Default, Debug)]
pub struct Evidence {
    exhibits: BTreeMap<(ResourceType, Version), Exhibit>,
}

/// A resource to be judged.
#[derive(Clone, Debug)]
pub struct Exhibit {
    /// Its type.
    pub kind: ResourceType,
    /// The resource.
    pub resource: Resource,
    /// Its origin, for messages.
    pub origin: String,
    /// Whether only proxies that report Istio's extensions have it.
    pub istio: bool,
}

/// A resource that Envoy rejects.
#[derive(Debug)]
pub struct Refusal {
    /// The resource.
    pub exhibit: Exhibit,
    /// Envoy's message.
    pub message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (exhibit, kind) = (&self.exhibit, self.exhibit.kind.short_name);
        let (origin, name) = (&exhibit.origin, exhibit.resource.name());
        writeln!(f, "{origin}: {kind} {name}: {}", self.message)?;
        match crate::state::json(exhibit.kind, &exhibit.resource) {
            Ok(json) => write!(f, "{json}"),
            Err(error) => write!(f, "{error:#}"),
        }
    }
}

impl Evidence {
    /// Adds the resources of a proxy; `istio`: it reports Istio's extensions.
    pub fn add(&mut self, origin: &str, istio: bool, holdings: &Holdings) {
        for ((kind, _), resource) in holdings {
            let exhibit = self.exhibits.entry((*kind, resource.version())).or_insert_with(|| Exhibit {
                kind: *kind,
                resource: resource.clone(),
                origin: origin.to_owned(),
                istio,
            });
            if exhibit.istio && !istio {
                (exhibit.istio, exhibit.origin) = (false, origin.to_owned());
            }
        }
    }

    /// Adds the resources of another collection.
    pub fn join(&mut self, other: Evidence) {
        for (key, exhibit) in other.exhibits {
            let mine = self.exhibits.entry(key).or_insert_with(|| exhibit.clone());
            if mine.istio && !exhibit.istio {
                *mine = exhibit;
            }
        }
    }

    /// The number of resources.
    pub fn len(&self) -> usize {
        self.exhibits.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.exhibits.is_empty()
    }

    /// All resources that Envoy rejects, or that cannot be decoded.
    ///
    /// # Errors
    /// There is no Envoy, or its output is not understood.
    pub async fn judge(self) -> anyhow::Result<Vec<Refusal>> {
        let exhibits: Vec<Exhibit> = self.exhibits.into_values().collect();
        let files = files::Files::new()?;
        let mut refusals = Vec::new();
        let (mut clusters, mut listeners) = (Vec::new(), Vec::new());
        for (index, exhibit) in exhibits.iter().enumerate() {
            match piece::of(exhibit, index, &files) {
                Ok(Some(piece::Piece::Cluster(bytes))) => clusters.push((index, bytes)),
                Ok(Some(piece::Piece::Listener(bytes, wants))) => listeners.push((index, bytes, wants)),
                Ok(None) => {}
                Err(error) => refusals.push((index, format!("{error:#}"))),
            }
        }
        let binary = test_harness::envoy(&mut |line| eprintln!("{line}"))?;
        let wanted: std::collections::BTreeSet<String> =
            listeners.iter().flat_map(|(_, _, wants)| wants.iter().cloned()).collect();
        let listeners: Vec<_> = listeners.into_iter().map(|(index, bytes, _)| (index, bytes)).collect();
        let none = std::collections::BTreeSet::new();
        let (of_clusters, of_listeners) = tokio::join!(
            envoy::refused(&binary, types::CLUSTER, clusters, &none),
            envoy::refused(&binary, types::LISTENER, listeners, &wanted),
        );
        refusals.extend(of_clusters?);
        refusals.extend(of_listeners?);
        refusals.sort();
        Ok(refusals.into_iter().map(|(index, message)| Refusal { exhibit: exhibits[index].clone(), message }).collect())
    }
}
