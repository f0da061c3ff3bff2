//! What debug pages show of the world, as JSON.

use flow::Relation as _;
use model::proxy::Locality;
use model::service::{EndpointAddress, ExportTo, Health, Registry, Resolution};
use registry::inputs::{
    DestinationRules, EnvoyFilters, Mesh, RoutingObject, RoutingObjects, ServiceObject, ServiceObjects, Sidecars,
    WorkloadGroups, WorkloadObject, WorkloadObjects,
};
use registry::{ServiceEndpoints, Services};
use resources::Object;
use serde_json::{Map, Value, json};

use crate::World;

impl World {
    /// All configuration objects as they were written (`/debug/configz`), by kind, then namespace and name.
    pub fn configz(&self) -> Value {
        let mut all = Vec::new();
        for (_, object) in self.engine.iter::<ServiceObjects>() {
            if let ServiceObject::Entry(o) = &**object {
                all.push(written(o));
            }
        }
        for (_, object) in self.engine.iter::<WorkloadObjects>() {
            if let WorkloadObject::Entry(o) = &**object {
                all.push(written(o));
            }
        }
        all.extend(self.engine.iter::<WorkloadGroups>().map(|(_, o)| written(o)));
        for (_, object) in self.engine.iter::<RoutingObjects>() {
            match &**object {
                RoutingObject::VirtualService(o) => all.push(written(o)),
                RoutingObject::Gateway(o) => all.push(written(o)),
                // An Ingress is no object of the mesh's own API; what it stands for is shown by what is served.
                RoutingObject::Ingress(_) => {}
            }
        }
        all.extend(self.engine.iter::<DestinationRules>().map(|(_, o)| written(o)));
        all.extend(self.engine.iter::<Sidecars>().map(|(_, o)| written(o)));
        all.extend(self.engine.iter::<EnvoyFilters>().map(|(_, o)| written(o)));
        let order = |v: &Value| {
            let text = |pointer: &str| {
                v.pointer(pointer)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            (text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
        };
        all.sort_by_cached_key(order);
        Value::Array(all)
    }

    /// All services (`/debug/registryz`), by hostname.
    pub fn registryz(&self) -> Value {
        let services = self.engine.iter::<Services>().map(|(_, s)| {
            let ports = s
                .ports
                .iter()
                .map(|p| json!({"name": &*p.name, "port": p.number, "protocol": p.protocol.to_string()}));
            json!({
                "hostname": s.key.hostname.as_str(),
                "namespace": &*s.key.namespace,
                "registry": registry_name(s.registry),
                "object": s.object.to_string(),
                "ports": ports.collect::<Vec<_>>(),
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

    /// How many services there are.
    pub fn services(&self) -> usize {
        self.engine.stats().relation(Services::NAME).map_or(0, |r| r.cells)
    }

    /// The mesh configuration in force (`/debug/mesh`).
    pub fn mesh(&self) -> Value {
        self.engine
            .get::<Mesh>(&())
            .map_or(Value::Null, |mesh| mesh.config.to_json())
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

fn written<S>(object: &Object<S>) -> Value {
    object
        .raw
        .as_ref()
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or(Value::Null)
}

fn registry_name(registry: Registry) -> &'static str {
    match registry {
        Registry::Kubernetes | Registry::Import => "Kubernetes",
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

/// `region/zone/subzone` as far as it is known.
fn locality_text(locality: &Locality) -> String {
    let all = format!("{}/{}/{}", locality.region, locality.zone, locality.sub_zone);
    all.trim_end_matches('/').to_owned()
}
