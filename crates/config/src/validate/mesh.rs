//! MeshConfig, with the settings of proxies and extension providers, and MeshNetworks.

use std::sync::Arc;
use std::time::Duration;

use crate::decode::{Relations, Report};
use crate::diagnostic::Diagnostic;
use crate::form;
use crate::istio::HttpRetry;
use crate::mesh::{
    AccessLogEncoding, AuthenticationPolicy, CustomTag, ExtensionProvider, MeshConfig, NetworkEndpoints,
    NetworkMembers, OpenTelemetryProvider, Provider, ProviderHeader, ProxyClusterName, ProxyConfig, Sampler, Tracing,
};
use crate::problem::FieldPath;
use crate::validate::common::{self, ExportScope};
use crate::validate::traffic_policy;

impl Relations for MeshConfig {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        if self.connect_timeout > Duration::from_secs(30) {
            let message = "connectTimeout must not exceed 30s";
            r.error(&path.field("connectTimeout"), "out-of-range", message);
        }
        // `.` refers to the namespace of the object that the default applies to, so it equals no name.
        let mut export_to = |field: &'static str, list: &[Arc<str>], scope| {
            common::export_to(r, &path.field(field), ".", list, scope);
        };
        let services = &self.default_service_export_to;
        export_to("defaultServiceExportTo", services, ExportScope::Services);
        let routes = &self.default_virtual_service_export_to;
        export_to("defaultVirtualServiceExportTo", routes, ExportScope::Routes);
        let rules = &self.default_destination_rule_export_to;
        export_to("defaultDestinationRuleExportTo", rules, ExportScope::Routes);
        if self.mesh_mtls.as_ref().is_some_and(|tls| !tls.ecdh_curves.is_empty()) {
            let message = "ecdhCurves is not supported for connections within the mesh";
            r.error(&path.field("meshMTLS").field("ecdhCurves"), "unsupported", message);
        }
        if !self.access_log_format.is_empty() {
            let format = match self.access_log_encoding {
                AccessLogEncoding::Text => form::log_format,
                AccessLogEncoding::Json => form::log_fields,
            };
            r.form(&path.field("accessLogFormat"), format, &self.access_log_format);
        }
        inbound_retries(
            r,
            &path.field("defaultInboundHttpRetryPolicy"),
            self.default_inbound_http_retry_policy.as_ref(),
        );
        default_providers(r, &path.field("defaultProviders"), self);
    }
}

/// Reports settings that have no effect on inbound routes, which have one destination.
fn inbound_retries(r: &mut Report, path: &FieldPath, retry: Option<&HttpRetry>) {
    let Some(retry) = retry else { return };
    if retry.attempts == 0 && retry.backoff.is_some() {
        let message = "attempts is 0, which disables retries, so backoff must not be set";
        r.error(&path.field("backoff"), "exclusive-fields", message);
    }
    let ignored = [
        ("perTryTimeout", retry.per_try_timeout.is_some()),
        ("retryRemoteLocalities", retry.retry_remote_localities.is_some()),
        ("retryIgnorePreviousHosts", retry.retry_ignore_previous_hosts.is_some()),
    ];
    for (field, _) in ignored.into_iter().filter(|(_, set)| *set) {
        r.warning(&path.field(field), "no-effect", "the field has no effect on inbound routes");
    }
}

/// Checks that the default providers exist and have the right type.
fn default_providers(r: &mut Report, path: &FieldPath, mesh: &MeshConfig) {
    let defaults = &mesh.default_providers;
    let mut all = mesh.clone();
    all.keep_default_providers();
    type Fits = fn(&Provider) -> bool;
    let lists: [(&str, &[Arc<str>], Fits, &str); 3] = [
        ("tracing", &defaults.tracing, traces, "opentelemetry, zipkin, skywalking or datadog"),
        ("metrics", &defaults.metrics, counts, "prometheus"),
        (
            "accessLogging",
            &defaults.access_logging,
            logs,
            "envoyFileAccessLog, envoyHttpAls, envoyTcpAls or envoyOtelAls",
        ),
    ];
    for (field, names, fits, kinds) in lists {
        for (index, name) in names.iter().enumerate() {
            let at = path.field(field).index(index);
            default_provider(r, &at, &all.extension_providers, name, (fits, kinds));
        }
    }
    if defaults.tracing.len() > 1 {
        let message = "multiple tracing providers are not supported; only the first is used";
        r.warning(&path.field("tracing"), "unsupported", message);
    }
}

fn default_provider(
    r: &mut Report,
    path: &FieldPath,
    all: &[ExtensionProvider],
    name: &str,
    (fits, kinds): (fn(&Provider) -> bool, &str),
) {
    match all.iter().find(|provider| provider.name.eq_ignore_ascii_case(name)) {
        None => {
            let known: Vec<&str> = all.iter().map(|p| &*p.name).collect();
            let message = format!("there is no extension provider {name:?}");
            let hint = format!("the providers are {}", known.join(", "));
            r.warning_with(path, Diagnostic::MISSING_REFERENCE, message, hint);
        }
        Some(provider) if !provider.provider.as_ref().is_some_and(fits) => {
            let message = format!("the extension provider {name:?} has no effect here");
            r.warning_with(path, "unsupported", message, format!("use a provider of type {kinds}"));
        }
        Some(_) => {}
    }
}

fn traces(provider: &Provider) -> bool {
    use Provider::{Datadog, Opentelemetry, Skywalking, Zipkin};
    matches!(provider, Zipkin(_) | Datadog(_) | Skywalking(_) | Opentelemetry(_))
}

fn counts(provider: &Provider) -> bool {
    matches!(provider, Provider::Prometheus(_))
}

fn logs(provider: &Provider) -> bool {
    use Provider::{EnvoyFileAccessLog, EnvoyHttpAls, EnvoyOtelAls, EnvoyTcpAls};
    matches!(provider, EnvoyFileAccessLog(_) | EnvoyHttpAls(_) | EnvoyTcpAls(_) | EnvoyOtelAls(_))
}

impl Relations for OpenTelemetryProvider {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        if let Some(Sampler::Dynatrace(sampler)) = &self.sampling
            && sampler.http_service.is_none()
            && self.http.is_none()
        {
            let message =
                "nothing is traced: without httpService, the sampler uses the HTTP exporter, which is not configured";
            let at = path.field("dynatraceSampler");
            r.warning_with(&at, "missing-field", message, "set httpService or http");
        }
    }
}

impl Relations for ProviderHeader {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        if self.value.is_none() {
            let message = "the header is not sent: it requires value or envName";
            r.warning(path, "missing-field", message);
        }
    }
}

impl Relations for ProxyConfig {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        let needed = [
            ("configPath", self.config_path.is_empty()),
            ("binaryPath", self.binary_path.is_empty()),
            ("discoveryAddress", self.discovery_address.is_empty()),
        ];
        r.none_of(path, &needed, "missing-field", |field| format!("{field} must not be empty"));
        if matches!(&self.cluster_name, Some(ProxyClusterName::ServiceCluster(name)) if name.is_empty()) {
            r.error(&path.field("serviceCluster"), "missing-field", "serviceCluster must not be empty");
        }
        if self.control_plane_auth_policy == AuthenticationPolicy::Inherit {
            let message = "INHERIT is not supported: there is no parent configuration";
            r.error(&path.field("controlPlaneAuthPolicy"), "bad-value", message);
        }
    }
}

impl Relations for Tracing {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        traffic_policy::config_map(r, &path.field("tlsSettings"), "", self.tls_settings.as_ref());
        for (name, tag) in &self.custom_tags {
            let empty = match tag {
                CustomTag::Nothing => true,
                CustomTag::Literal(tag) => tag.value.is_empty(),
                CustomTag::Environment(tag) => tag.name.is_empty(),
                CustomTag::Header(tag) => form::header_name(&tag.name).is_err(),
            };
            if empty || name.is_empty() {
                let message = "the tag is ignored: it requires a name and one of literal.value, environment.name and \
                               header.name";
                r.warning(&path.field("customTags").key(name.clone()), "bad-value", message);
            }
        }
    }
}

impl Relations for NetworkEndpoints {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        if matches!(&self.members, Some(NetworkMembers::FromRegistry(cluster)) if cluster.is_empty()) {
            let message = "the name of the cluster must not be empty";
            r.error(&path.field("fromRegistry"), "bad-value", message);
        }
    }
}
