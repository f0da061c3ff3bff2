//! The interface between a controller and the tasks that run it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::{AnyObject, Kind, MeshConfig, StringMap};
use inject::Injector;
use model::kube::GatewayRefusal;
use model::service::ObjectId;
use serde_json::Value;

use crate::{Controller, PublishedRoots, Resource, Write};

/// Feeds a controller with watch events while this replica leads.
pub trait Driver: Send + 'static {
    /// The objects to watch.
    fn watched(&self) -> Vec<Watched>;
    /// Handles an object of the watch at index `place` of [`Driver::watched`]; `there` is false if it was deleted.
    fn see(&mut self, place: usize, object: &Value, there: bool);
    /// Handles a change of the mesh configuration.
    fn mesh(&mut self, _mesh: &MeshConfig) {}
    /// Handles a change of what the certificate authority publishes.
    fn roots(&mut self, _published: &PublishedRoots) {}
    /// The kinds of configuration that the driver is given, as they are in effect.
    fn kinds(&self) -> &'static [Kind] {
        &[]
    }
    /// Handles a change of one of these kinds. `objects` are all of its objects.
    fn configuration(&mut self, _kind: Kind, _objects: Vec<AnyObject>) {}
    /// Handles a change of the injection configuration; `None` if it is not known.
    fn injector(&mut self, _injector: Option<&Arc<Injector>>) {}
    /// Handles a change of the names that this revision and its tags have in labels, and of whether objects without a revision
    /// belong to it.
    fn revisions(&mut self, _names: &BTreeSet<Arc<str>>, _is_default: bool) {}
    /// The machine that plans. It is restarted after a relist, before which events may have been missed.
    fn machine(&mut self) -> &mut dyn Controller;
    /// The Gateways of the Gateway API that cannot be deployed for a reason of their own.
    fn refusals(&self) -> BTreeMap<ObjectId, GatewayRefusal> {
        BTreeMap::new()
    }
    /// The writes that are needed. Called once all watches are synced, and after each change.
    fn plan(&mut self) -> Vec<Write> {
        self.machine().plan()
    }
}

/// The API server of a watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Origin {
    /// The cluster that the controller writes to.
    #[default]
    Here,
    /// The cluster that holds the configuration.
    Home,
    /// The cluster that holds the Secrets of this replica.
    Own,
}

/// A watch.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The resource.
    pub resource: Resource,
    /// The namespace; `None` for all namespaces.
    pub namespace: Option<String>,
    /// The label selector.
    pub labels: Option<String>,
    /// The field selector.
    pub fields: Option<String>,
    /// The API server.
    pub origin: Origin,
}

impl Watched {
    /// All objects of a resource.
    pub fn all(resource: Resource) -> Watched {
        Watched { resource, namespace: None, labels: None, fields: None, origin: Origin::default() }
    }

    /// Sets the API server.
    pub fn of(self, origin: Origin) -> Watched {
        Watched { origin, ..self }
    }

    /// Limits the watch to a namespace.
    pub fn within(self, namespace: &str) -> Watched {
        Watched { namespace: Some(namespace.to_owned()), ..self }
    }

    /// Limits the watch to a name.
    pub fn named(self, name: &str) -> Watched {
        Watched { fields: Some(format!("metadata.name={name}")), ..self }
    }

    /// Limits the watch to a label selector.
    pub fn labelled(self, labels: &str) -> Watched {
        Watched { labels: Some(labels.to_owned()), ..self }
    }
}

/// The namespace and the name of an object.
pub(crate) fn id(object: &Value) -> (&str, &str) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}

pub(crate) fn labels(object: &Value) -> StringMap {
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    labels.filter_map(|(name, value)| Some((name.as_str().into(), value.as_str()?.into()))).collect()
}
