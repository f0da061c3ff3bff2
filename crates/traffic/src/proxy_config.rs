//! Effective settings of a workload's proxy, merged from the mesh, ProxyConfigs and the pod's annotation.
//!
//! Served resources do not depend on them: the injector passes them to the proxy, which reports them when it connects.

use std::sync::Arc;

use config::Object;
use config::istio::ProxyConfig;
use config::mesh::{NamespaceProxyConfigs, ProxyConfigLayer, ProxyConfigLayers};
use flow::Reads;
use model::proxy::Labels;
use model::service::ObjectId;
use registry::inputs::{Mesh, ProxyConfigs};

flow::index! {
    /// ProxyConfigs by their namespace.
    pub ProxyConfigsByNamespace: Arc<str> => members of ProxyConfigs = "proxy configs by namespace", proxy_configs_by_namespace_keys;
}

fn proxy_configs_by_namespace_keys(key: &ObjectId, _: &Arc<Object<ProxyConfig>>) -> Vec<Arc<str>> {
    vec![key.namespace.clone()]
}

flow::rule! {
    /// The ProxyConfigs of a namespace: the default and those with selectors.
    pub ProxyConfigsOfNamespace: Arc<str> => NamespaceProxyConfigs = "proxy configs of a namespace", derive_proxy_configs_of_namespace;
}

fn derive_proxy_configs_of_namespace(cx: &Reads<'_>, namespace: &Arc<str>) -> Option<NamespaceProxyConfigs> {
    let ids = cx.get::<ProxyConfigsByNamespace>(namespace)?;
    let objects = ids.iter().filter_map(|id| cx.get::<ProxyConfigs>(id));
    let objects = objects.map(|object| (*object).clone());
    Some(NamespaceProxyConfigs::of(objects.collect()))
}

flow::rule! {
    /// Effective settings of workloads' proxies.
    pub EffectiveProxyConfigs: ProxyConfigTarget => EffectiveProxyConfig = "effective proxy configs", derive_effective_proxy_configs;
}

/// A workload, by the facts that decide its proxy's settings.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ProxyConfigTarget {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its labels.
    pub labels: Labels,
    /// Its annotation `proxy.istio.io/config`, if it has one.
    pub annotation: Option<Arc<str>>,
}

/// The settings of a workload's proxy and their sources.
#[derive(Clone, PartialEq, Debug)]
pub struct EffectiveProxyConfig {
    /// The settings.
    pub settings: config::mesh::ProxyConfig,
    /// The ProxyConfigs that contributed: of the mesh, of the namespace, of the workload.
    pub objects: Vec<ObjectId>,
    /// The reason why the annotation is ignored.
    pub bad_annotation: Option<String>,
}

fn derive_effective_proxy_configs(cx: &Reads<'_>, target: &ProxyConfigTarget) -> Option<EffectiveProxyConfig> {
    let mesh = cx.get::<Mesh>(&())?;
    let root = &mesh.config.root_namespace;
    let of_root = cx.get::<ProxyConfigsOfNamespace>(root).filter(|_| !root.is_empty());
    let of_mesh = of_root.as_ref().and_then(|of| of.common.clone());
    let own = cx.get::<ProxyConfigsOfNamespace>(&target.namespace);
    let of_namespace = own.as_ref().filter(|_| target.namespace != *root);
    let of_namespace = of_namespace.and_then(|of| of.common.clone());
    let of_workload = own.as_ref().and_then(|of| of.selecting(&target.labels).cloned());
    let annotation = target.annotation.as_ref().map(|text| ProxyConfigLayer::parse(text));
    let (annotation, bad_annotation) = match annotation {
        None => (None, None),
        Some(Ok(layer)) => (Some(layer), None),
        Some(Err(problem)) => (None, Some(problem.to_string())),
    };
    let layer = |object: &Option<Arc<Object<ProxyConfig>>>| {
        object.as_ref().map(|object| ProxyConfigLayer::from_object(&object.spec))
    };
    let layers = ProxyConfigLayers {
        mesh: layer(&of_mesh),
        namespace: layer(&of_namespace),
        annotation,
        workload: layer(&of_workload),
    };
    let objects = [of_mesh, of_namespace, of_workload].into_iter().flatten();
    Some(EffectiveProxyConfig {
        settings: layers.over(&mesh.config.default_config),
        objects: objects.map(|object| id_of(&object)).collect(),
        bad_annotation,
    })
}

/// Namespace and name of an object.
pub fn id_of(object: &Object<ProxyConfig>) -> ObjectId {
    ObjectId { namespace: object.meta.namespace.clone(), name: object.meta.name.clone() }
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.index::<ProxyConfigsByNamespace>();
    b.view::<ProxyConfigsOfNamespace>();
    b.view::<EffectiveProxyConfigs>();
}
