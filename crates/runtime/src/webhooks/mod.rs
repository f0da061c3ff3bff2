//! The injection and validation webhooks.

mod counters;

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use admission::webhook::{Answer, Call, Verdict, answer_to_nothing, judge};
use anyhow::{Context, Result};
use async_trait::async_trait;
use bytes::Bytes;
use config::mesh::{NamespaceProxyConfigs, PROXY_CONFIG_ANNOTATION, ProxyConfigLayer, ProxyConfigLayers};
use config::{MeshConfig, StringMap};
use http::StatusCode;
use inject::{Injector, Surroundings, difference, parameters, potential_name};
use serde_json::Value;
use server::{Configuration, Server, WebhookPort, WorldHandle};
use settings::{NativeSidecars, Settings};
use tokio::sync::{Semaphore, watch};

use super::bindable;
use super::secure::Secure;
use counters::Counters;

/// The facts that injection reads from a cluster. They are replaced as a whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct Injection {
    /// The configuration.
    pub(crate) injector: Option<Arc<Injector>>,
    /// Why there is no configuration, or why the newest one is not in effect.
    pub(crate) problem: Option<String>,
    /// Whether the nodes support native sidecars. The second part has those that differ, by name.
    pub(crate) native: (bool, BTreeMap<String, bool>),
    /// Namespaces with ranges of users, by name.
    pub(crate) namespaces: BTreeMap<String, Value>,
}

/// Serves the webhooks, if the settings and the certificate allow it; returns whether they are served.
///
/// # Errors
/// The address cannot be used.
pub(super) async fn start(
    settings: &Settings,
    pilot: &WorldHandle,
    secure: &Secure,
    server: &mut Server,
    injection: watch::Receiver<Arc<Injection>>,
) -> Result<bool> {
    let (Some(address), Some(port)) = (settings.https_addr.0, &secure.security.port) else {
        if settings.https_addr.0.is_some() {
            tracing::info!("the webhooks are off: there is no certificate for their port");
        }
        return Ok(false);
    };
    let webhooks = Handlers {
        injection,
        mesh: pilot.mesh(),
        configuration: pilot.configuration(),
        revision: settings.revision.as_str().to_owned(),
        native: settings.native_sidecars,
        openshift: settings.platform.as_str() == "openshift",
        compliance_policy: settings.compliance_policy.as_str().to_owned(),
        environment: environment(),
        counters: Arc::default(),
        places: Arc::new(Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from))),
    };
    let counters = webhooks.counters.clone();
    server.serving_status().provide(move || counters.metrics());
    let port = WebhookPort { address: bindable(&address), certificate: port.certificate.clone() };
    let at = server.serve_webhooks(port, Arc::new(webhooks)).await.context("--https-addr")?;
    tracing::info!(address = %at, "serving webhooks");
    Ok(true)
}

/// The environment that templates may read.
pub(crate) fn environment() -> BTreeMap<String, String> {
    std::env::vars().filter(|(name, _)| !is_secret(name)).collect()
}

/// Whether a variable must not be readable by templates.
fn is_secret(name: &str) -> bool {
    let name = name.to_uppercase();
    ["TOKEN", "SECRET", "PASSWORD", "KEY", "CREDENTIAL"].iter().any(|part| name.contains(part))
}

/// Answers the calls. Cheap to clone.
#[derive(Clone)]
struct Handlers {
    injection: watch::Receiver<Arc<Injection>>,
    mesh: watch::Receiver<Arc<MeshConfig>>,
    configuration: Configuration,
    revision: String,
    native: NativeSidecars,
    openshift: bool,
    compliance_policy: String,
    environment: BTreeMap<String, String>,
    counters: Arc<Counters>,
    /// Calls that are worked on at the same time.
    places: Arc<Semaphore>,
}

#[async_trait]
impl server::Webhooks for Handlers {
    async fn answer(&self, path: &str, body: Bytes) -> Option<Bytes> {
        let within = |root: &str| path == root || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'));
        let injects = within("/inject");
        if !injects && !within("/validate") {
            return None;
        }
        let (handlers, path) = (self.clone(), path.to_owned());
        let place = self.places.clone().acquire_owned().await.ok()?;
        let work = move || {
            let answer = if injects { handlers.inject(&path, &body) } else { handlers.validate(&body) };
            drop(place);
            answer
        };
        let answer = tokio::task::spawn_blocking(work).await.ok()?;
        Some(answer.to_string().into_bytes().into())
    }

    fn refused(&self, path: &str, status: StatusCode) {
        match path.starts_with("/inject") {
            true => self.counters.refused_injection(),
            false => self.counters.validation_http_error(status.as_u16()),
        }
    }
}

impl Handlers {
    fn inject(&self, path: &str, body: &[u8]) -> Value {
        let begin = Instant::now();
        let call = match Call::decode(body) {
            Ok(call) => call,
            Err(error) => {
                tracing::error!(%error, "an injection call could not be decoded");
                self.counters.injected(counters::Injected::Failed, begin.elapsed());
                return answer_to_nothing(&error);
            }
        };
        let pod = potential_name(&call.object);
        let (outcome, answer) = catch_unwind(AssertUnwindSafe(|| self.sidecar(path, &call)))
            .unwrap_or_else(|_| (counters::Injected::Failed, Answer::refuse("the injection failed unexpectedly")));
        self.counters.injected(outcome, begin.elapsed());
        match &answer.message {
            Some(message) => tracing::error!(namespace = call.namespace, pod, message, "injection failed"),
            None => {
                tracing::info!(namespace = call.namespace, pod, outcome = outcome.as_str(), took = ?begin.elapsed(), "injection")
            }
        }
        call.answer(&answer)
    }

    fn sidecar(&self, path: &str, call: &Call) -> (counters::Injected, Answer) {
        let fail = |message: String| (counters::Injected::Failed, Answer::refuse(message));
        let injection = self.injection.borrow().clone();
        let Some(injector) = &injection.injector else {
            let problem = injection.problem.as_deref().unwrap_or("it has not been read yet");
            return fail(format!("there is no injection configuration: {problem}"));
        };
        if !call.object.is_object() {
            return fail("the call has no pod".to_owned());
        }
        let mut pod = call.object.clone();
        // They may be large and do not matter for the sidecar.
        if let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        let decision = injector.decide(&pod, &call.namespace);
        if !decision.inject {
            tracing::debug!(namespace = call.namespace, pod = potential_name(&pod), reason = %decision.reason, "no sidecar");
            return (counters::Injected::Skipped, Answer::allow(Vec::new()));
        }
        let has_namespace = pod["metadata"]["namespace"].as_str().is_some_and(|namespace| !namespace.is_empty());
        if !has_namespace && pod["metadata"].is_object() {
            pod["metadata"]["namespace"] = call.namespace.as_str().into();
        }
        let mesh = self.mesh.borrow().clone();
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let native = match self.native {
            NativeSidecars::Enabled => true,
            NativeSidecars::Disabled => false,
            NativeSidecars::Auto => {
                let of_node = pod["spec"]["nodeName"].as_str().and_then(|node| injection.native.1.get(node));
                of_node.copied().unwrap_or(injection.native.0)
            }
        };
        let around = Surroundings {
            mesh: &mesh,
            proxy_config: &self.proxy_config(&pod, namespace, &mesh),
            revision: &self.revision,
            parameters: &parameters(path),
            native_sidecars: native,
            namespace: injection.namespaces.get(namespace),
            openshift: self.openshift,
            compliance_policy: &self.compliance_policy,
            environment: &self.environment,
            now: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs().cast_signed()),
            // The keys of a new hasher are random.
            seed: RandomState::new().hash_one(0),
        };
        match injector.inject(&pod, &around) {
            Ok(injected) => (counters::Injected::Done, Answer::change(difference(&pod, &injected))),
            Err(error) => fail(error.to_string()),
        }
    }

    /// The effective settings of the sidecar of a pod.
    fn proxy_config(&self, pod: &Value, namespace: &str, mesh: &MeshConfig) -> config::mesh::ProxyConfig {
        let of = |namespace: &str| NamespaceProxyConfigs::of(self.configuration.proxy_configs(namespace));
        let labels = pod["metadata"]["labels"].as_object().into_iter().flatten();
        let labels: StringMap =
            labels.filter_map(|(name, value)| Some((name.as_str().into(), value.as_str()?.into()))).collect();
        let layer =
            |object: &Arc<config::Object<config::istio::ProxyConfig>>| ProxyConfigLayer::from_object(&object.spec);
        let (root, own) = (of(&mesh.root_namespace), of(namespace));
        let annotation = pod["metadata"]["annotations"][PROXY_CONFIG_ANNOTATION].as_str();
        let layers = ProxyConfigLayers {
            mesh: root.common.as_ref().map(layer),
            namespace: own.common.as_ref().map(layer).filter(|_| namespace != &*mesh.root_namespace),
            // An annotation that is not valid is an error of the injection.
            annotation: annotation.and_then(|text| ProxyConfigLayer::parse(text).ok()),
            workload: own.selecting(&labels).map(layer),
        };
        layers.over(&mesh.default_config)
    }

    fn validate(&self, body: &[u8]) -> Value {
        let call = match Call::decode(body) {
            Ok(call) => call,
            Err(error) => {
                tracing::warn!(%error, "a validation call could not be decoded");
                self.counters.validation_http_error(StatusCode::BAD_REQUEST.as_u16());
                return answer_to_nothing(&error);
            }
        };
        let name = call.object["metadata"]["name"].as_str().unwrap_or_default();
        let verdict = catch_unwind(AssertUnwindSafe(|| judge(&call))).unwrap_or_else(|_| Verdict::Failed {
            reason: "invalid_resource",
            message: "the validation failed unexpectedly".to_owned(),
            on_purpose: false,
        });
        self.counters.validated(&call, &verdict);
        let answer = match verdict {
            Verdict::Passed(warnings) => Answer::allow(warnings),
            Verdict::Unjudged => Answer::allow(Vec::new()),
            Verdict::Failed { message, on_purpose, .. } => {
                if !on_purpose {
                    tracing::info!(
                        resource = call.resource[2],
                        namespace = call.namespace,
                        name,
                        dry_run = call.dry_run,
                        message,
                        "refused"
                    );
                }
                Answer::refuse(message)
            }
        };
        call.answer(&answer)
    }
}
