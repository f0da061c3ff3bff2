//! Extension providers of the mesh, and the defaults among them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value as Json;

use crate::diagnostic::{Diagnostic, FieldPath};
use crate::mesh::{
    ExtensionProvider, HttpExporter, LogFormat, MeshConfig, OpenTelemetryProvider, OtelLogFormat, Provider,
    ProviderHeader, Sampler, default_extension_providers,
};
use crate::validate::{Report, common, headers, hosts};

/// Linux' limits of the name of a file, and of a path to one, in bytes.
const LONGEST_FILE_NAME: usize = 255;
const LONGEST_PATH: usize = 4095;

/// What a mesh can use a provider for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Tracing,
    Metrics,
    AccessLogging,
}

pub(super) fn check(r: &mut Report, path: &FieldPath, mesh: &MeshConfig) {
    let all = path.field("extensionProviders");
    let mut names = BTreeSet::new();
    for (index, provider) in written(&mesh.extension_providers).iter().enumerate() {
        let at = all.index(index);
        if provider.name.is_empty() {
            r.error(&at.field("name"), "missing-field", "a provider needs a name");
        } else if !names.insert(&provider.name) {
            let message = format!("there are two providers {:?}", &*provider.name);
            r.error(&at.field("name"), "duplicate", message);
        }
        one(r, &at, provider);
    }
    let defaults = &mesh.default_providers;
    for (field, list, purpose) in [
        ("tracing", &defaults.tracing, Use::Tracing),
        ("metrics", &defaults.metrics, Use::Metrics),
        ("accessLogging", &defaults.access_logging, Use::AccessLogging),
    ] {
        let at = path.field("defaultProviders").field(field);
        for (index, name) in list.iter().enumerate() {
            chosen(r, &at.index(index), mesh, name, purpose);
        }
        if purpose == Use::Tracing && list.len() > 1 {
            r.warning(
                &at,
                "unsupported",
                "several tracers are not supported, and only the first counts",
            );
        }
    }
}

/// A file that Envoy is to open and write lines to; where that cannot be, it refuses every listener that logs.
fn log_file(r: &mut Report, at: &FieldPath, path: &str) {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    let long = |name: &str| name.len() > LONGEST_FILE_NAME;
    let message = if !path.is_empty() && ["", ".", ".."].contains(&name) {
        format!("{path:?} is a directory, no file")
    } else if path.len() > LONGEST_PATH || long(name) || directory.split('/').any(long) {
        let length = path.len();
        format!("no file has a path of {length} bytes, or names of more than {LONGEST_FILE_NAME} in it")
    } else if path.contains('\0') {
        "no path has a zero byte in it".to_owned()
    } else {
        return;
    };
    r.error_with(at, "bad-value", message, "name a file, such as /dev/stdout");
}

/// The file of an access log (`accessLogFile`).
pub(super) fn mesh_log_file(r: &mut Report, path: &FieldPath, mesh: &MeshConfig) {
    log_file(r, &path.field("accessLogFile"), &mesh.access_log_file);
}

/// The format of an access log, whose texts are those of MeshConfig (`accessLogFormat`).
pub(super) fn mesh_log_format(r: &mut Report, path: &FieldPath, mesh: &MeshConfig) {
    let at = path.field("accessLogFormat");
    match serde_json::from_str::<Json>(&mesh.access_log_format) {
        _ if mesh.access_log_format.is_empty() => {}
        Ok(fields @ Json::Object(_)) if mesh.access_log_encoding == crate::mesh::AccessLogEncoding::Json => {
            labels(r, &at, &fields);
        }
        _ if mesh.access_log_encoding == crate::mesh::AccessLogEncoding::Json => {
            let message = "the format is no JSON object: Istio's fields are logged instead";
            r.warning(&at, "bad-value", message);
        }
        _ => text(r, &at, &mesh.access_log_format),
    }
}

/// The providers that somebody wrote: those that are always there go before them, unless they are written anew.
fn written(all: &[ExtensionProvider]) -> &[ExtensionProvider] {
    let mut built_in = default_extension_providers().into_iter();
    let there = all
        .iter()
        .take_while(|provider| built_in.any(|default| default == **provider));
    &all[there.count()..]
}

fn chosen(r: &mut Report, path: &FieldPath, mesh: &MeshConfig, name: &Arc<str>, purpose: Use) {
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
        r.warning_with(
            path,
            "unsupported",
            message,
            format!("name a provider of the sort {kinds}"),
        );
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

fn one(r: &mut Report, path: &FieldPath, provider: &ExtensionProvider) {
    let Some(kind) = &provider.provider else {
        let message = "a provider needs to say what it is, such as opentelemetry or envoyFileAccessLog";
        return r.error(path, "missing-field", message);
    };
    match kind {
        Provider::EnvoyExtAuthzHttp(authz) => {
            let at = path.field("envoyExtAuthzHttp");
            service(r, &at, &authz.service, authz.port);
            status(r, &at, &authz.status_on_error);
            timeout(r, &at, authz.timeout);
            if !authz.path_prefix.is_empty() && !authz.path_prefix.starts_with('/') {
                r.error(
                    &at.field("pathPrefix"),
                    "bad-value",
                    "the prefix of the path must begin with a slash",
                );
            }
        }
        Provider::EnvoyExtAuthzGrpc(authz) => {
            let at = path.field("envoyExtAuthzGrpc");
            service(r, &at, &authz.service, authz.port);
            status(r, &at, &authz.status_on_error);
            timeout(r, &at, authz.timeout);
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
                r.error(&at.field("accessToken"), "missing-field", "the token is needed");
            }
            gone(r, &at, "Lightstep");
        }
        Provider::Opencensus(opencensus) => {
            let at = path.field("opencensus");
            service(r, &at, &opencensus.service, opencensus.port);
            gone(r, &at, "OpenCensus");
        }
        Provider::Datadog(datadog) => service(r, &path.field("datadog"), &datadog.service, datadog.port),
        Provider::Skywalking(sky) => service(r, &path.field("skywalking"), &sky.service, sky.port),
        Provider::Opentelemetry(otel) => opentelemetry(r, &path.field("opentelemetry"), otel),
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
            header_names(
                r,
                &at.field("additionalRequestHeadersToLog"),
                &als.additional_request_headers_to_log,
            );
            header_names(
                r,
                &at.field("additionalResponseHeadersToLog"),
                &als.additional_response_headers_to_log,
            );
            let trailers = &als.additional_response_trailers_to_log;
            header_names(r, &at.field("additionalResponseTrailersToLog"), trailers);
        }
        Provider::EnvoyTcpAls(als) => service(r, &path.field("envoyTcpAls"), &als.service, als.port),
        Provider::EnvoyOtelAls(als) => {
            let at = path.field("envoyOtelAls");
            service(r, &at, &als.service, als.port);
            if let Some(OtelLogFormat {
                text: body,
                labels: attributes,
            }) = &als.log_format
            {
                text(r, &at.field("logFormat").field("text"), body);
                if let Some(attributes) = attributes {
                    labels(r, &at.field("logFormat").field("labels"), attributes);
                }
            }
        }
        Provider::Sds(_) => {
            let message = "servers of secrets cannot be providers; Istio refuses them, too";
            r.error(&path.field("sds"), "unsupported", message);
        }
        Provider::Prometheus(_) | Provider::Stackdriver(_) => {}
    }
}

fn opentelemetry(r: &mut Report, path: &FieldPath, otel: &OpenTelemetryProvider) {
    service(r, path, &otel.service, otel.port);
    if otel.http.is_some() && otel.grpc.is_some() {
        r.error(
            path,
            "exclusive-fields",
            "spans are sent over http or over grpc, not over both",
        );
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
                let message =
                    "the sampler asks the host that spans are sent to over HTTP, and they are not: nothing is traced";
                r.warning_with(&at, "missing-field", message, "set httpService, or export over http");
            }
            None => {}
        }
    }
}

fn exporter(r: &mut Report, path: &FieldPath, http: &HttpExporter) {
    timeout(r, path, http.timeout);
    provider_headers(r, &path.field("headers"), &http.headers);
}

/// `[NAMESPACE/]HOST`, or an address, and a port.
fn service(r: &mut Report, path: &FieldPath, name: &str, port: u32) {
    let at = path.field("service");
    match name.split_once('/') {
        None if name.is_empty() => r.error(
            &at,
            "missing-field",
            "a provider needs a service: HOST or NAMESPACE/HOST",
        ),
        None if name.parse::<IpAddr>().is_ok() => {}
        None => hosts::fqdn(r, &at, name),
        Some((namespace, host)) => {
            if !hosts::is_label(namespace) {
                r.error(&at, "bad-value", format!("{namespace:?} is not a namespace"));
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
            let message = format!("{:?} is not the name of a header", &*header.name);
            r.error(&at.field("name"), "bad-header", message);
        }
        match &header.value {
            None => r.warning(&at, "missing-field", "a header without value or envName is not sent"),
            Some(crate::mesh::ProviderHeaderValue::Value(value)) => {
                if let Some(problem) = headers::value_problem(value) {
                    r.error(
                        &at.field("value"),
                        "bad-header",
                        format!("not the value of a header: {problem}"),
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
            let message = format!("{:?} is not the name of a header", &**name);
            r.error(&path.index(index), "bad-header", message);
        }
    }
}

/// A status of HTTP that Envoy can answer with.
fn status(r: &mut Report, path: &FieldPath, text: &str) {
    let known = |code: u16| {
        matches!(code, 100 | 200..=208 | 226 | 300..=305 | 307 | 308 | 400..=417 | 421..=424 | 426 | 428 | 429 | 431
            | 500..=508 | 510 | 511)
    };
    if !text.is_empty() && !text.parse().is_ok_and(known) {
        r.error(
            &path.field("statusOnError"),
            "bad-value",
            format!("{text:?} is not a status of HTTP, such as 403 or 503"),
        );
    }
}

fn gone(r: &mut Report, path: &FieldPath, name: &str) {
    let message = format!("Envoy has no tracer for {name} any more: this provider has no effect");
    r.warning_with(path, "unsupported", message, "use opentelemetry");
}

fn text(r: &mut Report, path: &FieldPath, format: &str) {
    if let Some(problem) = headers::variable_problem(format) {
        r.error(path, "bad-value", format!("Envoy would refuse the format: {problem}"));
    }
}

/// The texts in the fields of a log in JSON.
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
