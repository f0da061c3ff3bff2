//! A small world with connected proxies.

use std::sync::Arc;

use config::{MeshConfig, ParseOptions, parse_documents};
use flow::{Batch, Delta, Engine, Relation};
use model::audience::{ResourceKey, Section};
use model::listener::ListenerSpec;
use model::proxy::{Capabilities, InterceptionMode, Proxy, ProxyKind};
use registry::inputs::*;
use registry::objects;
use traffic::audience::{Audiences, ProxyAudiences};
use traffic::listeners::ListenerCatalogue;

pub(crate) struct World {
    pub(crate) engine: Engine,
    next: u64,
}

impl World {
    pub(crate) fn new(yaml: &str) -> World {
        let mut builder = Engine::builder();
        registry::register(&mut builder);
        gateway_api::register(&mut builder);
        security::register(&mut builder);
        traffic::register(&mut builder);
        let mut world = World { engine: builder.build(), next: 0 };
        let mut batch = Batch::new();
        batch.put::<MeshDefaults>((), mesh(MeshConfig::default()));
        world.engine.commit(batch);
        world.apply(yaml);
        world
    }

    /// Adds or replaces objects in one commit. Objects that parsing refuses are left out.
    pub(crate) fn apply(&mut self, yaml: &str) -> Delta {
        let parsed = parse_documents(yaml.as_bytes(), "test.yaml", &ParseOptions::default());
        let mut batch = Batch::new();
        parsed.objects.into_iter().for_each(|object| objects::put(&mut batch, object));
        self.commit(batch)
    }

    pub(crate) fn commit(&mut self, batch: Batch) -> Delta {
        let delta = self.engine.commit(batch);
        assert_eq!(delta.panics(), []);
        delta
    }

    /// Connects a proxy and subscribes to its listeners.
    pub(crate) fn connect(&mut self, proxy: Proxy) -> ProxyToken {
        self.next += 1;
        let token = ProxyToken(self.next);
        let mut batch = Batch::new();
        batch.put::<Proxies>(token, Arc::new(proxy));
        self.commit(batch);
        let audience = self.audiences(token).listener.clone();
        self.engine.subscribe::<ListenerCatalogue>((Section::All, audience));
        token
    }

    pub(crate) fn audiences(&self, token: ProxyToken) -> Arc<ProxyAudiences> {
        self.engine.get::<Audiences>(&token).expect("a connected proxy has audiences")
    }

    /// The listeners of a proxy, by name.
    pub(crate) fn listeners(&mut self, token: ProxyToken) -> Vec<Arc<ListenerSpec>> {
        let cell = self.engine.subscribe::<ListenerCatalogue>((Section::All, self.audiences(token).listener.clone()));
        let catalogue = self.engine.row::<ListenerCatalogue>(cell).expect("every audience has a catalogue");
        let spec = |(name, key): &(Arc<str>, ResourceKey)| match key {
            ResourceKey::Listener(spec) if spec.name == *name => spec.clone(),
            other => panic!("{name} is {other:?}"),
        };
        catalogue.entries.iter().map(spec).collect()
    }

    pub(crate) fn names(&mut self, token: ProxyToken) -> Vec<String> {
        self.listeners(token).iter().map(|l| l.name.to_string()).collect()
    }

    pub(crate) fn listener(&mut self, token: ProxyToken, name: &str) -> Arc<ListenerSpec> {
        let found = self.listeners(token).into_iter().find(|l| &*l.name == name);
        found.unwrap_or_else(|| panic!("no listener {name}"))
    }
}

/// How often the rules of a relation ran in a commit.
pub(crate) fn runs<R: Relation>(delta: &Delta) -> usize {
    delta.runs_of::<R>().runs
}

pub(crate) fn sidecar(ip: &str) -> Proxy {
    Proxy {
        kind: ProxyKind::Sidecar,
        id: "pod.default".into(),
        namespace: "default".into(),
        dns_domain: "default.svc.cluster.local".into(),
        vhds: false,
        addresses: vec![ip.parse().expect("an address")],
        labels: Default::default(),
        locality: Default::default(),
        network: "".into(),
        network_view: Vec::new(),
        node: "".into(),
        cluster_id: "Kubernetes".into(),
        service_account: "".into(),
        interception: InterceptionMode::Redirect,
        capabilities: Capabilities::default(),
        accepts_http10: false,
        static_ports: model::proxy::STATIC_PORTS,
        unprivileged: false,
        own_workload: None,
        settings: None,
        resolver: None,
        ports: std::collections::BTreeMap::new(),
        secrets: Default::default(),
        version: "".into(),
        span_names: Default::default(),
        metadata: Default::default(),
    }
}

pub(crate) fn labelled(mut proxy: Proxy, labels: &[(&str, &str)]) -> Proxy {
    proxy.labels = labels.iter().map(|(k, v)| (Arc::from(*k), Arc::from(*v))).collect();
    proxy
}

pub(crate) fn gateway() -> Proxy {
    labelled(Proxy { kind: ProxyKind::Router, ..sidecar("10.1.0.100") }, &[("istio", "gw")])
}

/// A core `Service` with these ports (`NAME:NUMBER`); headless where `ip` is 0.
pub(crate) fn service(name: &str, ip: u8, ports: &[&str]) -> String {
    let address = if ip == 0 { "None".to_owned() } else { format!("10.96.0.{ip}") };
    let port = |text: &&str| {
        let (name, number) = text.split_once(':').expect("NAME:NUMBER");
        format!("{{name: {name}, port: {number}}}")
    };
    let ports: Vec<String> = ports.iter().map(port).collect();
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: default}}\n\
         spec: {{clusterIP: {address}, ports: [{}]}}\n",
        ports.join(", ")
    )
}

/// The endpoints of a service: ports as `NAME:NUMBER`.
pub(crate) fn slice(service: &str, ports: &[&str], addresses: &[&str]) -> String {
    let port = |text: &&str| {
        let (name, number) = text.split_once(':').expect("NAME:NUMBER");
        format!("{{name: {name}, port: {number}}}")
    };
    let ports: Vec<String> = ports.iter().map(port).collect();
    let endpoints: Vec<String> = addresses.iter().map(|a| format!("{{addresses: [{a}]}}")).collect();
    format!(
        "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {service}-1, namespace: default, \
         labels: {{kubernetes.io/service-name: {service}}}}}\naddressType: IPv4\nports: [{}]\nendpoints: [{}]\n",
        ports.join(", "),
        endpoints.join(", ")
    )
}

/// An object of `networking.istio.io` whose `spec` is YAML in one line.
pub(crate) fn istio(kind: &str, name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: networking.istio.io/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: default}}\n\
         spec: {spec}\n"
    )
}

fn mesh(config: MeshConfig) -> Arc<MeshSettings> {
    Arc::new(MeshSettings { config, ..MeshSettings::default() })
}
