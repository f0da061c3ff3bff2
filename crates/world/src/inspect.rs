//! Debug pages of the world, as JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::Object;
use config::mesh::{NamespaceProxyConfigs, PROXY_CONFIG_ANNOTATION};
use flow::Relation as _;
use model::mtls::MtlsModes;
use model::proxy::{Locality, Proxy};
use model::service::{EndpointAddress, ExportTo, Health, Registry, Resolution};
use registry::inputs::{
    AuthorizationPolicies, DestinationRules, EnvoyFilters, Mesh, PeerAuthentications, ProxyConfigs,
    RequestAuthentications, RoutingObject, RoutingObjects, ServiceObject, ServiceObjects, Sidecars, WorkloadGroups,
    WorkloadObject, WorkloadObjects,
};
use registry::{ServiceEndpoints, Services};
use security::peers::WorkloadPeers;
use serde_json::{Map, Value, json};
use traffic::audience::pod_key;
use traffic::proxy_config::{EffectiveProxyConfigs, ProxyConfigTarget, id_of};

use crate::World;

impl World {
    /// All configuration objects as written (`/debug/configz`), by kind, namespace and name.
    pub fn configz(&self) -> Value {
        let mut all = Vec::new();
        for (_, object) in self.engine.iter::<ServiceObjects>() {
            if let ServiceObject::Entry(o) = object {
                all.push(written(o));
            }
        }
        for (_, object) in self.engine.iter::<WorkloadObjects>() {
            if let WorkloadObject::Entry(o) = object {
                all.push(written(o));
            }
        }
        all.extend(self.engine.iter::<WorkloadGroups>().map(|(_, o)| written(o)));
        for (_, object) in self.engine.iter::<RoutingObjects>() {
            match object {
                RoutingObject::VirtualService(o) => all.push(written(o)),
                RoutingObject::Gateway(o) => all.push(written(o)),
                // An Ingress is not an Istio object.
                RoutingObject::Ingress(_) => {}
            }
        }
        all.extend(self.engine.iter::<DestinationRules>().map(|(_, o)| written(o)));
        all.extend(self.engine.iter::<Sidecars>().map(|(_, o)| written(o)));
        all.extend(self.engine.iter::<EnvoyFilters>().map(|(_, o)| written(o)));
        all.extend(self.engine.iter::<ProxyConfigs>().map(|(_, o)| written(o)));
        all.extend(self.engine.iter::<PeerAuthentications>().map(|(_, o)| written(o)));
        all.extend(self.engine.iter::<RequestAuthentications>().map(|(_, o)| written(o)));
        all.extend(self.engine.iter::<AuthorizationPolicies>().map(|(_, o)| written(o)));
        let order = |v: &Value| {
            let text = |pointer: &str| v.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            (text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
        };
        all.sort_by_cached_key(order);
        Value::Array(all)
    }

    /// All services (`/debug/registryz`), by hostname.
    pub fn registryz(&self) -> Value {
        let services = self.engine.iter::<Services>().map(|(_, s)| {
            let ports =
                s.ports.iter().map(|p| json!({"name": &*p.name, "port": p.number, "protocol": p.protocol.to_string()}));
            json!({
                "hostname": s.key.hostname.as_str(),
                "namespace": &*s.key.namespace,
                "registry": registry_name(s.registry),
                "object": s.object.to_string(),
                "ports": ports.collect::<Vec<_>>(),
                "assignedAddresses": s.assigned.iter().map(|net| net.addr().to_string()).collect::<Vec<_>>(),
                "addresses": s.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "resolution": resolution_name(s.resolution),
                "meshExternal": s.external,
                "exportTo": export_names(&s.export_to),
            })
        });
        Value::Array(services.collect())
    }

    /// Endpoints per service (`/debug/endpointz`).
    pub fn endpointz(&self) -> Value {
        let services = self.engine.iter::<ServiceEndpoints>().map(|(key, row)| {
            let endpoints = row.iter().map(|e| {
                let ports: Map<String, Value> = e.ports.iter().map(|(k, v)| (k.to_string(), (*v).into())).collect();
                json!({
                    "address": address_text(&e.address),
                    "ports": ports,
                    "labels": e.labels.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>(),
                    "locality": locality_text(&e.locality),
                    "weight": e.weight,
                    "health": health_name(e.health),
                    "cluster": &*e.cluster,
                    "network": &*e.network,
                    "workload": e.workload.as_ref().map(ToString::to_string),
                })
            });
            json!({
                "service": key.hostname.as_str(),
                "namespace": &*key.namespace,
                "endpoints": endpoints.collect::<Vec<_>>(),
            })
        });
        Value::Array(services.collect())
    }

    /// The proxy settings of a workload and its mutual TLS modes (`/debug/proxyconfigz`), derived on demand.
    pub fn proxy_config(&self, target: ProxyConfigTarget) -> Value {
        let mut asked = self.engine.fork();
        let peers = asked.subscribe::<WorkloadPeers>((target.namespace.clone(), target.labels.clone()));
        let cell = asked.subscribe::<EffectiveProxyConfigs>(target);
        let Some(found) = asked.row::<EffectiveProxyConfigs>(cell) else {
            return Value::Null;
        };
        let mut page = json!({
            "settings": found.settings.to_json(),
            "proxyConfigs": found.objects.iter().map(ToString::to_string).collect::<Vec<_>>(),
        });
        if let Some(modes) = asked.row::<WorkloadPeers>(peers) {
            page["mutualTls"] = mutual_tls(&modes);
        }
        if let Some(problem) = &found.bad_annotation {
            page["annotationRefused"] = problem.as_str().into();
        }
        page
    }

    /// ProxyConfigs without a selector that have no effect because an older one in their namespace has no selector
    /// either.
    pub fn shadowed_proxy_configs(&self) -> Vec<String> {
        let mut by_namespace: BTreeMap<Arc<str>, Vec<_>> = BTreeMap::new();
        for (id, object) in self.engine.iter::<ProxyConfigs>() {
            by_namespace.entry(id.namespace.clone()).or_default().push(object.clone());
        }
        let shadowed = by_namespace.into_values().flat_map(|all| NamespaceProxyConfigs::of(all).shadowed);
        shadowed.map(|object| id_of(&object).to_string()).collect()
    }

    /// The facts that determine the settings of a connected proxy: the labels and the annotation of its pod, if known.
    pub fn proxy_config_target(&self, proxy: &Proxy) -> ProxyConfigTarget {
        let mesh = self.engine.get::<Mesh>(&());
        let key = mesh.and_then(|mesh| pod_key(proxy, &mesh));
        let pod = key.and_then(|key| self.engine.get::<WorkloadObjects>(&key));
        let pod = match pod.as_deref() {
            Some(WorkloadObject::Pod(pod)) => Some(&pod.meta),
            _ => None,
        };
        ProxyConfigTarget {
            namespace: proxy.namespace.clone(),
            labels: pod.map_or(&proxy.labels, |meta| &meta.labels).clone(),
            annotation: pod.and_then(|meta| meta.annotation(PROXY_CONFIG_ANNOTATION)).map(Arc::from),
        }
    }

    /// The number of services.
    pub fn services(&self) -> usize {
        self.engine.stats().relation(Services::NAME).map_or(0, |r| r.cells)
    }

    /// The mesh configuration in force (`/debug/mesh`).
    pub fn mesh(&self) -> Value {
        self.engine.get::<Mesh>(&()).map_or(Value::Null, |mesh| mesh.config.to_json())
    }

    /// Cells, edges, runs and panics per relation (`/debug/worldz`).
    pub fn worldz(&self) -> Value {
        let stats = self.engine.stats();
        let relations = stats.relations.iter().map(|r| {
            json!({"relation": r.name, "cells": r.cells, "edges": r.edges, "runs": r.runs, "equal": r.cut_offs, "panics": r.panics})
        });
        Value::Array(relations.collect())
    }
}

/// The mutual TLS modes of a workload.
fn mutual_tls(modes: &MtlsModes) -> Value {
    let ports = modes.exceptions();
    let ports: Map<String, Value> = ports.map(|(port, mode)| (port.to_string(), mode.name().into())).collect();
    json!({ "mode": modes.default_mode().name(), "ports": ports })
}

fn written<S>(object: &Object<S>) -> Value {
    object.raw.as_ref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null)
}

fn registry_name(registry: Registry) -> &'static str {
    match registry {
        Registry::Kubernetes | Registry::Import | Registry::Pool => "Kubernetes",
        Registry::ServiceEntry => "External",
    }
}

fn resolution_name(resolution: Resolution) -> &'static str {
    match resolution {
        Resolution::Endpoints => "ClientSideLB",
        Resolution::Dns => "DNSLB",
        Resolution::DnsRace => "DNSLB",
        Resolution::DnsRoundRobin => "DNSRoundRobinLB",
        Resolution::DynamicDns => "DynamicDNS",
        Resolution::Passthrough => "Passthrough",
        Resolution::Alias => "Alias",
    }
}

fn export_names(export: &ExportTo) -> Value {
    match export {
        ExportTo::All => json!(["*"]),
        ExportTo::Namespaces(names) if names.is_empty() => json!(["~"]),
        ExportTo::Namespaces(names) => names.iter().map(|n| Value::from(&**n)).collect(),
    }
}

fn address_text(address: &EndpointAddress) -> String {
    match address {
        EndpointAddress::Ip(ip) => ip.to_string(),
        EndpointAddress::Hostname(name) => name.to_string(),
        EndpointAddress::Unix(path) => format!("unix://{path}"),
    }
}

fn health_name(health: Health) -> &'static str {
    match health {
        Health::Healthy => "healthy",
        Health::Unhealthy => "unhealthy",
        Health::Draining => "draining",
    }
}

/// `region/zone/subzone`, without unknown trailing parts.
fn locality_text(locality: &Locality) -> String {
    let all = format!("{}/{}/{}", locality.region, locality.zone, locality.sub_zone);
    all.trim_end_matches('/').to_owned()
}
