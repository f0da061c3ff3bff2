//! A real Envoy says whether it would run resources: thousands at once, in two processes.
//!
//! The resources are handed over as files of discovery (Envoy's own way to read them from a disk), because so Envoy answers
//! for each resource apart and goes on after a refusal. A cluster and a listener are handed over as they are, but for names
//! that are made unique, and for addresses on which nobody else listens; route configurations inside a listener that is
//! made for them, endpoints inside a cluster that is; certificates that users name are files of the judge's. What does not fit in either (name tables) is only decoded.

mod envoy;
mod files;
mod piece;

use ::envoy::types;
use std::collections::BTreeMap;
use std::fmt;

use model::xds::{Resource, ResourceType, Version};

use crate::state::Holdings;

/// Resources, each once, and who had it first.
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
    /// Where it came from, for people.
    pub origin: String,
    /// Whether only proxies have it that say that they have Istio's extensions.
    pub istio: bool,
}

/// A resource that Envoy refuses.
#[derive(Debug)]
pub struct Refusal {
    /// The resource.
    pub exhibit: Exhibit,
    /// Envoy's words.
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
    /// Adds what a proxy has; `istio`: it says that it has Istio's extensions.
    pub fn add(&mut self, origin: &str, istio: bool, holdings: &Holdings) {
        for ((kind, _), resource) in holdings {
            let exhibit = self
                .exhibits
                .entry((*kind, resource.version()))
                .or_insert_with(|| Exhibit {
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

    /// Adds what another collection has.
    pub fn join(&mut self, other: Evidence) {
        for (key, exhibit) in other.exhibits {
            let mine = self.exhibits.entry(key).or_insert_with(|| exhibit.clone());
            if mine.istio && !exhibit.istio {
                *mine = exhibit;
            }
        }
    }

    /// How many resources there are.
    pub fn len(&self) -> usize {
        self.exhibits.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.exhibits.is_empty()
    }

    /// All that Envoy refuses, or cannot be decoded.
    ///
    /// # Errors
    /// There is no Envoy, or it says something that is not understood.
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
        let wanted: std::collections::BTreeSet<String> = listeners
            .iter()
            .flat_map(|(_, _, wants)| wants.iter().cloned())
            .collect();
        let listeners: Vec<_> = listeners.into_iter().map(|(index, bytes, _)| (index, bytes)).collect();
        let none = std::collections::BTreeSet::new();
        let (of_clusters, of_listeners) = tokio::join!(
            envoy::refused(&binary, types::CLUSTER, clusters, &none),
            envoy::refused(&binary, types::LISTENER, listeners, &wanted),
        );
        refusals.extend(of_clusters?);
        refusals.extend(of_listeners?);
        refusals.sort();
        Ok(refusals
            .into_iter()
            .map(|(index, message)| Refusal {
                exhibit: exhibits[index].clone(),
                message,
            })
            .collect())
    }
}
