//! Validation of the mesh's extension providers and of the default providers.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value as Json;

use crate::diagnostic::{Diagnostic, FieldPath};
use crate::mesh::{
    ExtensionProvider, HttpExporter, LogFormat, MeshConfig, OpenTelemetryProvider, Provider, ProviderHeader, Sampler,
    default_extension_providers,
};
use crate::validate::{Report, common, headers, hosts};

/// Maximum lengths of a file name and of a path in Linux, in bytes.
const MAX_FILE_NAME: usize = 255;
const MAX_PATH: usize = 4095;

/// Purpose of a provider.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Tracing,
    Metrics,
    AccessLogging,
}

pub(super) fn check(r: &mut Report, path: &FieldPath, mesh: &MeshConfig) {
    let all = path.field("extensionProviders");
    let mut names = BTreeSet::new();
    for (index, provider) in user_providers(&mesh.extension_providers).iter().enumerate() {
        let at = all.index(index);
        if provider.name.is_empty() {
            r.error(&at.field("name"), "missing-field", "a provider requires a name");
        } else if !names.insert(&provider.name) {
            let message = format!("duplicate provider {:?}", &*provider.name);
            r.error(&at.field("name"), "duplicate", message);
        }
        check_provider(r, &at, provider);
    }
    let defaults = &mesh.default_providers;
    for (field, list, purpose) in [
        ("tracing", &defaults.tracing, Use::Tracing),
        ("metrics", &defaults.metrics, Use::Metrics),
        ("accessLogging", &defaults.access_logging, Use::AccessLogging),
    ] {
        let at = path.field("defaultProviders").field(field);
        for (index, name) in list.iter().enumerate() {
            default_provider(r, &at.index(index), mesh, name, purpose);
        }
        if purpose == Use::Tracing && list.len() > 1 {
            r.warning(
                &at,
                "unsupported",
                "multiple tracing providers are not supported; only the first is used",
            );
        }
    }
}

/// Checks the path of a file that Envoy writes logs to. If Envoy cannot open it, it rejects every listener that logs to
/// it.
fn log_file(r: &mut Report, at: &FieldPath, path: &str) {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    let long = |name: &str| name.len() > MAX_FILE_NAME;
    let message = if !path.is_empty() && ["", ".", ".."].contains(&name) {
        format!("{path:?} is a directory, not a file")
    } else if path.len() > MAX_PATH || long(name) || directory.split('/').any(long) {
        format!("the path must not exceed {MAX_PATH} bytes, and each name in it must not exceed {MAX_FILE_NAME} bytes")
    } else if path.contains('\0') {
        "the path must not contain NUL characters".to_owned()
    } else {
        return;
    };
    r.error_with(at, "bad-value", message, "set the path of a file, such as /dev/stdout");
}

/// Checks the access log file of the mesh configuration (`accessLogFile`).
pub(super) fn mesh_log_file(r: &mut Report, path: &FieldPath, mesh: &MeshConfig) {
    log_file(r, &path.field("accessLogFile"), &mesh.access_log_file);
}

/// Checks the access log format of the mesh configuration (`accessLogFormat`).
pub(super) fn mesh_log_format(r: &mut Report, path: &FieldPath, mesh: &MeshConfig) {
    let at = path.field("accessLogFormat");
    match serde_json::from_str::<Json>(&mesh.access_log_format) {
        _ if mesh.access_log_format.is_empty() => {}
        Ok(fields @ Json::Object(_)) if mesh.access_log_encoding == crate::mesh::AccessLogEncoding::Json => {
            labels(r, &at, &fields);
        }
        _ if mesh.access_log_encoding == crate::mesh::AccessLogEncoding::Json => {
            let message = "the format is not a JSON object: Istio's default fields are logged instead";
            r.warning(&at, "bad-value", message);
        }
        _ => text(r, &at, &mesh.access_log_format),
    }
}

/// Returns the providers that the user configured, without the default providers that precede them.
fn user_providers(all: &[ExtensionProvider]) -> &[ExtensionProvider] {
    let mut built_in = default_extension_providers().into_iter();
    let defaults = all
        .iter()
        .take_while(|provider| built_in.any(|default| default == **provider));
    &all[defaults.count()..]
}

fn default_provider(r: &mut Report, path: &FieldPath, mesh: &MeshConfig, name: &Arc<str>, purpose: Use) {
    let mut all = mesh.extension_providers.iter();
    let Some(provider) = all.find(|provider| provider.name.eq_ignore_ascii_case(name)) else {
        let known: Vec<&str> = mesh.extension_providers.iter().map(|p| &*p.name).collect();
        let message = format!("there is no extension provider {:?}", &**name);
        let hint = format!("the providers are {}", known.join(", "));
        return r.warning_with(path, Diagnostic::MISSING_REFERENCE, message, hint);
    };
    let kind = provider.provider.as_ref();
    let (fits, kinds) = match purpose {
        Use::Tracing => (kind.is_some_and(traces), "opentelemetry, zipkin, skywalking or datadog"),
        Use::Metrics => (matches!(kind, Some(Provider::Prometheus(_))), "prometheus"),
        Use::AccessLogging => (
            kind.is_some_and(logs),
            "envoyFileAccessLog, envoyHttpAls, envoyTcpAls or envoyOtelAls",
        ),
    };
    if !fits {
        let message = format!("the extension provider {:?} has no effect here", &**name);
        r.warning_with(path, "unsupported", message, format!("use a provider of type {kinds}"));
    }
}

fn traces(provider: &Provider) -> bool {
    use Provider::{Datadog, Opentelemetry, Skywalking, Zipkin};
    matches!(provider, Zipkin(_) | Datadog(_) | Skywalking(_) | Opentelemetry(_))
}

fn logs(provider: &Provider) -> bool {
    use Provider::{EnvoyFileAccessLog, EnvoyHttpAls, EnvoyOtelAls, EnvoyTcpAls};
    matches!(
        provider,
        EnvoyFileAccessLog(_) | EnvoyHttpAls(_) | EnvoyTcpAls(_) | EnvoyOtelAls(_)
    )
}

fn check_provider(r: &mut Report, path: &FieldPath, provider: &ExtensionProvider) {
    let Some(kind) = &provider.provider else {
        let message = "a provider requires a type, such as opentelemetry or envoyFileAccessLog";
        return r.error(path, "missing-field", message);
    };
    match kind {
        Provider::EnvoyExtAuthzHttp(authz) => {
            let at = path.field("envoyExtAuthzHttp");
            ext_authz(
                r,
                &at,
                &authz.service,
                authz.port,
                &authz.status_on_error,
                authz.timeout,
            );
            if !authz.path_prefix.is_empty() && !authz.path_prefix.starts_with('/') {
                let message = "the path prefix must start with a slash";
                r.error(&at.field("pathPrefix"), "bad-value", message);
            }
        }
        Provider::EnvoyExtAuthzGrpc(authz) => {
            let at = path.field("envoyExtAuthzGrpc");
            ext_authz(
                r,
                &at,
                &authz.service,
                authz.port,
                &authz.status_on_error,
                authz.timeout,
            );
        }
        Provider::Zipkin(zipkin) => {
            let at = path.field("zipkin");
            service(r, &at, &zipkin.service, zipkin.port);
            timeout(r, &at, zipkin.timeout);
            provider_headers(r, &at.field("headers"), &zipkin.headers);
        }
        Provider::Lightstep(lightstep) => {
            let at = path.field("lightstep");
            service(r, &at, &lightstep.service, lightstep.port);
            if lightstep.access_token.is_empty() {
                r.error(&at.field("accessToken"), "missing-field", "accessToken is required");
            }
            unsupported_tracer(r, &at, "Lightstep");
        }
        Provider::Opencensus(opencensus) => {
            let at = path.field("opencensus");
            service(r, &at, &opencensus.service, opencensus.port);
            unsupported_tracer(r, &at, "OpenCensus");
        }
        Provider::Datadog(datadog) => service(r, &path.field("datadog"), &datadog.service, datadog.port),
        Provider::Skywalking(sky) => service(r, &path.field("skywalking"), &sky.service, sky.port),
        Provider::Opentelemetry(otel) => opentelemetry(r, &path.field("opentelemetry"), otel),
        Provider::Sds(_) => {
            let message = "sds providers are not supported, as in Istio";
            r.error(&path.field("sds"), "unsupported", message);
        }
        Provider::EnvoyFileAccessLog(_)
        | Provider::EnvoyHttpAls(_)
        | Provider::EnvoyTcpAls(_)
        | Provider::EnvoyOtelAls(_) => access_log(r, path, kind),
        Provider::Prometheus(_) | Provider::Stackdriver(_) => {}
    }
}

/// Checks the fields that both external authorization providers have.
fn ext_authz(r: &mut Report, at: &FieldPath, host: &str, port: u32, on_error: &str, limit: Option<Duration>) {
    service(r, at, host, port);
    status(r, at, on_error);
    timeout(r, at, limit);
}

/// Checks an access log provider.
fn access_log(r: &mut Report, path: &FieldPath, provider: &Provider) {
    match provider {
        Provider::EnvoyFileAccessLog(file) => {
            let at = path.field("envoyFileAccessLog");
            log_file(r, &at.field("path"), &file.path);
            let at = at.field("logFormat");
            match &file.log_format {
                None | Some(LogFormat::Default) => {}
                Some(LogFormat::Text(format)) => text(r, &at.field("text"), format),
                Some(LogFormat::Labels(fields)) => labels(r, &at.field("labels"), fields),
            }
        }
        Provider::EnvoyHttpAls(als) => {
            let at = path.field("envoyHttpAls");
            service(r, &at, &als.service, als.port);
            for (field, names) in [
                ("additionalRequestHeadersToLog", &als.additional_request_headers_to_log),
                (
                    "additionalResponseHeadersToLog",
                    &als.additional_response_headers_to_log,
                ),
                (
                    "additionalResponseTrailersToLog",
                    &als.additional_response_trailers_to_log,
                ),
            ] {
                header_names(r, &at.field(field), names);
            }
        }
        Provider::EnvoyTcpAls(als) => service(r, &path.field("envoyTcpAls"), &als.service, als.port),
        Provider::EnvoyOtelAls(als) => {
            let at = path.field("envoyOtelAls");
            service(r, &at, &als.service, als.port);
            if let Some(format) = &als.log_format {
                text(r, &at.field("logFormat").field("text"), &format.text);
                if let Some(attributes) = &format.labels {
                    labels(r, &at.field("logFormat").field("labels"), attributes);
                }
            }
        }
        _ => {}
    }
}

fn opentelemetry(r: &mut Report, path: &FieldPath, otel: &OpenTelemetryProvider) {
    service(r, path, &otel.service, otel.port);
    if otel.http.is_some() && otel.grpc.is_some() {
        r.error(path, "exclusive-fields", "only one of http and grpc may be set");
    }
    if let Some(http) = &otel.http {
        exporter(r, &path.field("http"), http);
    }
    if let Some(grpc) = &otel.grpc {
        timeout(r, &path.field("grpc"), grpc.timeout);
        provider_headers(r, &path.field("grpc").field("initialMetadata"), &grpc.initial_metadata);
    }
    if let Some(Sampler::Dynatrace(sampler)) = &otel.sampling {
        let at = path.field("dynatraceSampler");
        match &sampler.http_service {
            Some(api) => {
                service(r, &at.field("httpService"), &api.service, api.port);
                if let Some(http) = &api.http {
                    exporter(r, &at.field("httpService").field("http"), http);
                }
            }
            None if otel.http.is_none() => {
                let message = "nothing is traced: without httpService, the sampler uses the HTTP exporter, which is not configured";
                r.warning_with(&at, "missing-field", message, "set httpService or http");
            }
            None => {}
        }
    }
}

fn exporter(r: &mut Report, path: &FieldPath, http: &HttpExporter) {
    timeout(r, path, http.timeout);
    provider_headers(r, &path.field("headers"), &http.headers);
}

/// Checks a service, `[NAMESPACE/]HOST` or an IP address, and its port.
fn service(r: &mut Report, path: &FieldPath, name: &str, port: u32) {
    let at = path.field("service");
    match name.split_once('/') {
        None if name.is_empty() => r.error(
            &at,
            "missing-field",
            "a provider requires a service, as HOST or NAMESPACE/HOST",
        ),
        None if name.parse::<IpAddr>().is_ok() => {}
        None => hosts::fqdn(r, &at, name),
        Some((namespace, host)) => {
            if !hosts::is_label(namespace) {
                r.error(&at, "bad-value", format!("{namespace:?} is not a valid namespace name"));
            }
            hosts::fqdn(r, &at, host);
        }
    }
    common::port(r, &path.field("port"), port);
}

fn timeout(r: &mut Report, path: &FieldPath, timeout: Option<Duration>) {
    common::duration(r, &path.field("timeout"), timeout);
}

fn provider_headers(r: &mut Report, path: &FieldPath, all: &[ProviderHeader]) {
    for (index, header) in all.iter().enumerate() {
        let at = path.index(index);
        if !headers::is_name(&header.name) {
            let message = format!("{:?} is not a valid header name", &*header.name);
            r.error(&at.field("name"), "bad-header", message);
        }
        match &header.value {
            None => r.warning(
                &at,
                "missing-field",
                "the header is not sent: it requires value or envName",
            ),
            Some(crate::mesh::ProviderHeaderValue::Value(value)) => {
                if let Some(problem) = headers::value_problem(value) {
                    r.error(
                        &at.field("value"),
                        "bad-header",
                        format!("not a valid header value: {problem}"),
                    );
                }
            }
            Some(crate::mesh::ProviderHeaderValue::EnvName(_)) => {}
        }
    }
}

fn header_names(r: &mut Report, path: &FieldPath, names: &[Arc<str>]) {
    for (index, name) in names.iter().enumerate() {
        if !headers::is_name(name.trim_start_matches(':')) {
            let message = format!("{:?} is not a valid header name", &**name);
            r.error(&path.index(index), "bad-header", message);
        }
    }
}

/// Checks an HTTP status code that Envoy can respond with.
fn status(r: &mut Report, path: &FieldPath, text: &str) {
    let known = |code: u16| {
        matches!(code, 100 | 200..=208 | 226 | 300..=305 | 307 | 308 | 400..=417 | 421..=424 | 426 | 428 | 429 | 431
            | 500..=508 | 510 | 511)
    };
    if !text.is_empty() && !text.parse().is_ok_and(known) {
        r.error(
            &path.field("statusOnError"),
            "bad-value",
            format!("{text:?} is not an HTTP status code such as 403 or 503"),
        );
    }
}

fn unsupported_tracer(r: &mut Report, path: &FieldPath, name: &str) {
    let message = format!("Envoy no longer supports {name}: the provider has no effect");
    r.warning_with(path, "unsupported", message, "use opentelemetry");
}

fn text(r: &mut Report, path: &FieldPath, format: &str) {
    if let Some(problem) = headers::format_problem(format) {
        r.error(path, "bad-value", format!("invalid format: {problem}"));
    }
}

/// Checks the format strings in the fields of a JSON log.
fn labels(r: &mut Report, path: &FieldPath, value: &Json) {
    match value {
        Json::String(format) => text(r, path, format),
        Json::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(index, item)| labels(r, &path.index(index), item)),
        Json::Object(fields) => fields
            .iter()
            .for_each(|(name, field)| labels(r, &path.key(name.as_str()), field)),
        _ => {}
    }
}
