//! A small world for tests: objects as YAML, clients as audiences, rows as short texts.
#![allow(dead_code)] // Each test file uses its own part.

use std::sync::Arc;

use config::{Kind, MeshConfig, ObjectKey, ParseOptions, parse_documents};
use flow::{Batch, Delta, Engine};
use model::audience::{
    ClusterAudience, GatewayClusterFacts, IpFamilies, ProxyClass, RouteAudience, RoutesKey, Scope, Section,
    SidecarClusterFacts, Source, VirtualHostContent, VirtualHostSpec,
};
use model::proxy::{Labels, ProxyKind};
use model::service::ObjectId;
use registry::inputs::*;
use registry::objects;
use traffic::clusters::ClusterCatalogue;
use traffic::routes::RouteTables;
use traffic::scope::{ScopeServices, Visible};

/// An engine with the rules of `registry` and `traffic`.
pub(crate) struct World {
    pub(crate) engine: Engine,
}

impl World {
    /// A world with these objects and a default mesh.
    pub(crate) fn new(yaml: &str) -> World {
        let mut builder = Engine::builder();
        registry::register(&mut builder);
        gateway_api::register(&mut builder);
        security::register(&mut builder);
        traffic::register(&mut builder);
        let mut world = World { engine: builder.build() };
        let mut batch = Batch::new();
        batch.put::<MeshDefaults>((), mesh(MeshConfig::default()));
        world.engine.commit(batch);
        world.apply(yaml);
        world
    }

    /// Adds or replaces objects, in one commit.
    pub(crate) fn apply(&mut self, yaml: &str) -> Delta {
        let parsed = parse_documents(yaml.as_bytes(), "test.yaml", &ParseOptions::default());
        assert!(parsed.is_whole(), "{:#?}", parsed.diagnostics);
        let mut batch = Batch::new();
        parsed.objects.into_iter().for_each(|object| objects::put(&mut batch, object));
        let delta = self.engine.commit(batch);
        assert_eq!(delta.panics(), []);
        delta
    }

    /// Adds or replaces objects, but for those that make no sense.
    pub(crate) fn apply_valid(&mut self, yaml: &str) {
        let parsed = parse_documents(yaml.as_bytes(), "test.yaml", &ParseOptions::default());
        let mut batch = Batch::new();
        parsed.objects.into_iter().for_each(|object| objects::put(&mut batch, object));
        assert_eq!(self.engine.commit(batch).panics(), []);
    }

    /// Removes a VirtualService.
    pub(crate) fn remove_virtual_service(&mut self, namespace: &str, name: &str) {
        let mut batch = Batch::new();
        objects::remove(&mut batch, &ObjectKey::new(Kind::VirtualService, namespace, name));
        self.engine.commit(batch);
    }

    pub(crate) fn visible(&mut self, scope: &Arc<Scope>) -> Arc<Visible> {
        let cell = self.engine.subscribe::<ScopeServices>(scope.clone());
        (*self.engine.row::<ScopeServices>(cell).expect("every scope sees something")).clone()
    }

    /// The services that a scope sees: `host@namespace`, with ports where not all are seen.
    pub(crate) fn services(&mut self, scope: &Arc<Scope>) -> Vec<String> {
        let visible = self.visible(scope);
        let text = |s: &traffic::scope::VisibleService| match &s.ports {
            traffic::scope::Ports::All => format!("{}@{}", s.key.hostname, s.key.namespace),
            traffic::scope::Ports::Only(ports) => format!("{}@{} {ports:?}", s.key.hostname, s.key.namespace),
        };
        visible.services.iter().map(text).collect()
    }

    /// A route table of a sidecar, a line for each virtual host: `NAME [DOMAINS] ROUTES`.
    pub(crate) fn table(&mut self, audience: &Arc<RouteAudience>, name: &str) -> Vec<String> {
        let cell = self.engine.subscribe::<RouteTables>((audience.clone(), name.into()));
        let table = self.engine.row::<RouteTables>(cell).expect("a sidecar has every table");
        table.virtual_hosts.iter().map(|host| describe(host)).collect()
    }

    /// The names of the clusters of an audience.
    pub(crate) fn clusters(&mut self, audience: &Arc<ClusterAudience>) -> Vec<String> {
        let cell = self.engine.subscribe::<ClusterCatalogue>((Section::All, audience.clone()));
        let catalogue = self.engine.row::<ClusterCatalogue>(cell).expect("every audience has clusters");
        catalogue.entries.iter().map(|(name, _)| name.to_string()).collect()
    }
}

fn mesh(config: MeshConfig) -> Arc<MeshSettings> {
    Arc::new(MeshSettings { config, ..MeshSettings::default() })
}

pub(crate) fn id(namespace: &str, name: &str) -> ObjectId {
    ObjectId { namespace: namespace.into(), name: name.into() }
}

pub(crate) fn scope(namespace: &str, sidecar: Option<&str>) -> Arc<Scope> {
    let sidecar = sidecar.map(|name| id(namespace, name));
    Arc::new(Scope {
        namespace: namespace.into(),
        sidecar,
        selected_rules: Vec::new(),
        cluster: "".into(),
        assigned: false,
    })
}

pub(crate) fn routes_of(scope: &Arc<Scope>, labels: &[(&str, &str)]) -> Arc<RouteAudience> {
    let labels: Labels = labels.iter().map(|(k, v)| (Arc::from(*k), Arc::from(*v))).collect();
    let source = Arc::new(Source { namespace: scope.namespace.clone(), labels, regex_limit: None });
    Arc::new(RouteAudience {
        scope: scope.clone(),
        class: ProxyClass::Sidecar(()),
        source,
        filters: Default::default(),
        overrides: None,
    })
}

pub(crate) fn clusters_of(scope: &Arc<Scope>, kind: ProxyKind) -> Arc<ClusterAudience> {
    let class = match kind {
        ProxyKind::Sidecar => ProxyClass::Sidecar(SidecarClusterFacts { inbound: Arc::from([]), resolver: None }),
        ProxyKind::Router => {
            ProxyClass::Gateway(GatewayClusterFacts { sni_passthrough: false, client_certificate: None })
        }
        ProxyKind::Grpc => ProxyClass::Grpc,
    };
    Arc::new(ClusterAudience {
        agent: false,
        scope: scope.clone(),
        class,
        ip: IpFamilies::V4,
        location: Default::default(),
        filters: Default::default(),
        overrides: None,
    })
}

/// A core `Service` with one HTTP port 80 and ClusterIP 10.0.0.N.
pub(crate) fn service(namespace: &str, name: &str, ip: u8) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         spec: {{clusterIP: 10.0.0.{ip}, ports: [{{name: http, port: 80}}]}}\n"
    )
}

/// A ServiceEntry of one host with these ports (`NAME:NUMBER:PROTOCOL`).
pub(crate) fn entry(namespace: &str, name: &str, host: &str, ports: &[&str]) -> String {
    let port = |text: &&str| {
        let parts: Vec<&str> = text.split(':').collect();
        format!("{{name: {}, number: {}, protocol: {}}}", parts[0], parts[1], parts[2])
    };
    let ports: Vec<String> = ports.iter().map(port).collect();
    format!(
        "---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         spec: {{hosts: ['{host}'], resolution: STATIC, ports: [{}]}}\n",
        ports.join(", ")
    )
}

/// An object of `networking.istio.io` whose `spec` is given as YAML in one line.
pub(crate) fn istio(kind: &str, namespace: &str, name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: networking.istio.io/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         spec: {spec}\n"
    )
}

fn describe(host: &VirtualHostSpec) -> String {
    let content = match &host.content {
        VirtualHostContent::Routes(keys) => keys.iter().map(|key| routes(key)).collect::<Vec<_>>().join(" + "),
        other => format!("{other:?}"),
    };
    format!("{} [{}] {content}", host.name, host.domains.join(" "))
}

fn routes(key: &RoutesKey) -> String {
    let mut out = key.virtual_service.as_ref().map_or("default".to_owned(), ToString::to_string);
    if !key.source.namespace.is_empty() || !key.source.labels.is_empty() {
        out += &format!(" for {}{:?}", key.source.namespace, key.source.labels);
    }
    for (host, meant) in key.destinations.iter().filter(|(host, _)| *host != key.host) {
        out += &format!(" -> {host}@{}", meant.service.as_ref().map_or("?", |s| &s.namespace));
    }
    for (_, meant) in &*key.destinations {
        out += &meant.policy.as_ref().map_or(String::new(), |policy| format!(" by {policy:?}"));
    }
    out
}
