//! Gateways of the Gateway API and the objects that they get. A file in `cases` has the objects that exist, and the wanted
//! writes.

mod cases;
mod life;

use std::collections::BTreeMap;
use std::sync::Arc;

use config::{AnyObject, Kind, Limits, MeshConfig, ParseOptions, parse_yaml_json, read_object};
use controllers::Driver;
use controllers::gateways::{DeploymentDriver, Options};
use inject::Injector;
use serde_json::{Value, json};

/// A template that shows what it is given.
const TEMPLATE: &str = r#"
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .ServiceAccount }}
  namespace: {{ .Namespace }}
  labels: {{ toJsonMap .InfrastructureLabels }}
  annotations: {{ toJsonMap .InfrastructureAnnotations }}
  ownerReferences: [{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, name: {{ .Name }}, uid: {{ .UID }}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .DeploymentName }}, namespace: {{ .Namespace }}}
spec:
  selector: {matchLabels: { {{- .GatewayNameLabel }}: {{ .Name -}} }}
  template:
    metadata: {labels: { {{- .GatewayNameLabel }}: {{ .Name -}} }}
    spec:
      containers:
      - name: istio-proxy
        image: {{ .ProxyImage }}
        env:
        - {name: CLUSTER, value: {{ .ClusterID }}}
        - {name: USER, value: {{ .ProxyUID | quote }}}
---
apiVersion: v1
kind: Service
metadata: {name: {{ .DeploymentName }}, namespace: {{ .Namespace }}}
spec:
  type: {{ .ServiceType }}
  {{- with .Spec.Addresses }}
  loadBalancerIP: {{ (first .).Value }}
  {{- end }}
  ports:
  {{- range .Ports }}
  - {name: {{ .Name }}, port: {{ .Port }}, protocol: {{ .Protocol }}, appProtocol: {{ .AppProtocol }}}
  {{- end }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: {{ .DeploymentName }}, namespace: {{ .Namespace }}}
spec: {maxReplicas: 1}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: {{ .DeploymentName }}, namespace: {{ .Namespace }}}
spec: {}
"#;

/// The injection configuration with a template for gateways.
fn injector(template: &str) -> Arc<Injector> {
    let values = json!({"global": {"hub": "hub", "tag": "1", "proxy": {"image": "proxyv2"}}});
    let config = json!({"templates": {"kube-gateway": template}});
    Arc::new(Injector::parse(&config.to_string(), &values.to_string()).unwrap())
}

fn options() -> Options {
    Options {
        namespace: "istio-system".into(),
        cluster: "east".into(),
        default_class: "istio".into(),
        copies_metadata: true,
        ..Options::default()
    }
}

/// A machine and the objects of a cluster.
struct Cluster {
    driver: DeploymentDriver,
    /// The configuration, by kind, namespace and name.
    configuration: BTreeMap<(Kind, Arc<str>, Arc<str>), AnyObject>,
}

impl Cluster {
    fn new(options: Options, template: &str) -> Cluster {
        let mut driver = DeploymentDriver::new(options);
        driver.mesh(&MeshConfig::default());
        driver.injector(Some(&injector(template)));
        driver.revisions(&["default".into()].into(), true);
        Cluster { driver, configuration: BTreeMap::new() }
    }

    /// Adds or replaces an object.
    fn put(&mut self, object: &Value) {
        self.see(object, true);
    }

    fn delete(&mut self, object: &Value) {
        self.see(object, false);
    }

    fn see(&mut self, object: &Value, there: bool) {
        let places = self.driver.watched();
        let watch = places.iter().position(|watched| {
            watched.resource.kind == object["kind"] && object["apiVersion"] == watched.resource.api_version().as_str()
        });
        if let Some(place) = watch {
            let selected = match &places[place].labels {
                Some(label) => object["metadata"]["labels"].get(label).is_some(),
                None => true,
            };
            return self.driver.see(place, object, there && selected);
        }
        let read = read_object(object, &ParseOptions::default());
        let Some(found) = read.object else { panic!("{object}: {:?}", read.diagnostics) };
        let (kind, meta) = (found.kind(), found.meta());
        let key = (kind, meta.namespace.clone(), meta.name.clone());
        match there {
            true => drop(self.configuration.insert(key, found)),
            false => drop(self.configuration.remove(&key)),
        }
        let all = self.configuration.iter().filter(|((of, ..), _)| *of == kind).map(|(_, object)| object.clone());
        self.driver.configuration(kind, all.collect());
    }
}

fn documents(text: &str) -> Vec<Value> {
    let parsed = parse_yaml_json(text.as_bytes(), "", &Limits::default());
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    parsed.documents.into_iter().map(|document| document.value).collect()
}

fn problems(driver: &DeploymentDriver) -> BTreeMap<String, String> {
    let shown = driver.deployments().problems().iter().map(|((namespace, name), problem)| {
        let reason = problem.accepted_reason().map(|reason| format!("{reason}: ")).unwrap_or_default();
        (format!("{namespace}/{name}"), format!("{reason}{problem}"))
    });
    shown.collect()
}
