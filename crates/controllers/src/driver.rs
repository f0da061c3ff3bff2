//! The interface between a controller and the tasks that run it.

use config::{MeshConfig, StringMap};
use serde_json::Value;

use crate::Write;

/// A controller for as long as this replica leads.
pub trait Driver: Send + 'static {
    /// What it watches.
    fn watched(&self) -> Vec<Watched>;
    /// An object of one of [`Driver::watched`], by its place there, is so or is gone.
    fn see(&mut self, place: usize, object: &Value, there: bool);
    /// The mesh configuration is this now.
    fn mesh(&mut self, mesh: &MeshConfig);
    /// Everything was read anew: changes may have been missed, and undone.
    fn restart(&mut self);
    /// What is to be written. It is asked when all that is watched has been read, and after changes.
    fn plan(&mut self) -> Vec<Write>;
}

/// Which API is watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Origin {
    /// The one that is written to.
    #[default]
    Here,
    /// That of the configuration.
    Home,
    /// That of the cluster in which this replica keeps its Secrets.
    Own,
}

/// What is watched.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// Group, version, kind.
    pub kind: (&'static str, &'static str, &'static str),
    /// The plural of the kind, as in paths.
    pub plural: &'static str,
    /// In this namespace; none: in all of them.
    pub namespace: Option<String>,
    /// With these labels, as a selector.
    pub labels: Option<String>,
    /// With these fields, as a selector.
    pub fields: Option<String>,
    /// Where.
    pub origin: Origin,
}

impl Watched {
    /// All objects of a kind.
    pub fn all(group: &'static str, kind: &'static str, plural: &'static str) -> Watched {
        Watched {
            kind: (group, "v1", kind),
            plural,
            ..Watched::default()
        }
    }

    /// The same, read in this version.
    pub fn at(self, version: &'static str) -> Watched {
        Watched {
            kind: (self.kind.0, version, self.kind.2),
            ..self
        }
    }

    /// The same in this cluster.
    pub fn of(self, origin: Origin) -> Watched {
        Watched { origin, ..self }
    }

    /// Those of a namespace.
    pub fn within(self, namespace: &str) -> Watched {
        Watched {
            namespace: Some(namespace.to_owned()),
            ..self
        }
    }

    /// Those of a name.
    pub fn named(self, name: &str) -> Watched {
        Watched {
            fields: Some(format!("metadata.name={name}")),
            ..self
        }
    }

    /// Those with labels.
    pub fn labelled(self, labels: &str) -> Watched {
        Watched {
            labels: Some(labels.to_owned()),
            ..self
        }
    }
}

/// The namespace and the name of an object.
pub(crate) fn id(object: &Value) -> (&str, &str) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}

/// The labels of an object.
pub(crate) fn labels(object: &Value) -> StringMap {
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    labels
        .filter_map(|(name, value)| Some((name.as_str().into(), value.as_str()?.into())))
        .collect()
}
