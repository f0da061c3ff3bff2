//! Access log and tracer of an extension provider.

use std::sync::Arc;

use config::MeshConfig;
use config::mesh::{ExtensionProvider, LogFormat, OpenTelemetryProvider, Provider, Sampler};
use flow::Reads;
use registry::inputs::Environment;

use super::{Backend, FileLog, Log, Tracer, mesh_log};
use crate::backend::{Flaw, UNSUPPORTED, find};

/// The built-in provider, which uses the mesh's log format.
const BUILT_IN_LOG: &str = "envoy";
/// The default log file.
const STANDARD_OUTPUT: &str = "/dev/stdout";

/// The provider of a name. As in Istio, case is ignored.
pub(super) fn named<'m>(mesh: &'m MeshConfig, name: &str) -> Option<&'m ExtensionProvider> {
    let mut all = mesh.extension_providers.iter();
    all.find(|provider| provider.name.eq_ignore_ascii_case(name))
}

/// The access log of a provider.
pub(super) fn log(cx: &Reads<'_>, mesh: &MeshConfig, provider: &ExtensionProvider) -> Result<Log, Flaw> {
    let to = |service: &str, port| find(cx, service, port).map(|(to, _)| to);
    match provider.provider.as_ref() {
        Some(Provider::EnvoyFileAccessLog(file)) => {
            let path = match file.path.is_empty() {
                true => STANDARD_OUTPUT.into(),
                false => file.path.clone(),
            };
            let format = file.log_format.clone().unwrap_or(LogFormat::Default);
            let plain = format == LogFormat::Default && !file.omit_empty_values;
            if plain && &*provider.name == BUILT_IN_LOG {
                return Ok(Log::File(mesh_log(mesh, &path)));
            }
            Ok(Log::File(FileLog { path, format, omit_empty_values: file.omit_empty_values }))
        }
        Some(Provider::EnvoyHttpAls(als)) => Ok(Log::Http(als.clone(), to(&als.service, als.port)?)),
        Some(Provider::EnvoyTcpAls(als)) => Ok(Log::Tcp(als.clone(), to(&als.service, als.port)?)),
        Some(Provider::EnvoyOtelAls(als)) => Ok(Log::OpenTelemetry(als.clone(), to(&als.service, als.port)?)),
        _ => Err(unfit("access logs", "use envoyFileAccessLog, envoyHttpAls, envoyTcpAls or envoyOtelAls")),
    }
}

/// The tracer of a provider.
pub(super) fn tracer(cx: &Reads<'_>, provider: &ExtensionProvider) -> Result<Tracer, Flaw> {
    let found = |name: &Arc<str>| {
        let value = cx.get::<Environment>(name)?;
        std::str::from_utf8(value.bytes()).ok().map(Arc::from)
    };
    let to = |service: &str, port| find(cx, service, port).map(|(to, _)| to);
    match provider.with_environment(found).provider.as_ref() {
        Some(Provider::Zipkin(zipkin)) => Ok(Tracer::Zipkin(zipkin.clone(), to(&zipkin.service, zipkin.port)?)),
        Some(Provider::Datadog(datadog)) => Ok(Tracer::Datadog(datadog.clone(), to(&datadog.service, datadog.port)?)),
        Some(Provider::Skywalking(skywalking)) => {
            Ok(Tracer::SkyWalking(skywalking.clone(), to(&skywalking.service, skywalking.port)?))
        }
        Some(Provider::Opentelemetry(otel)) => {
            Ok(Tracer::OpenTelemetry(otel.clone(), to(&otel.service, otel.port)?, sampler(cx, otel)?))
        }
        _ => Err(unfit("traces", "use opentelemetry, zipkin, skywalking or datadog")),
    }
}

/// The API that decides sampling, if it is not the collector itself.
fn sampler(cx: &Reads<'_>, otel: &OpenTelemetryProvider) -> Result<Option<Backend>, Flaw> {
    let Some(Sampler::Dynatrace(sampler)) = &otel.sampling else {
        return Ok(None);
    };
    match (&sampler.http_service, &otel.http) {
        (Some(api), _) => match find(cx, &api.service, api.port) {
            Ok((to, _)) => Ok(Some(to)),
            Err(flaw) => Err(Flaw { field: "dynatraceSampler", ..flaw }),
        },
        (None, Some(_)) => Ok(None),
        (None, None) => Err(Flaw {
            code: UNSUPPORTED,
            field: "dynatraceSampler",
            message: "the sampler has no service, and the exporter is not over HTTP".to_owned(),
            hint: "set httpService, or export over http",
        }),
    }
}

/// Reports a provider's port whose protocol is wrong: gRPC needs HTTP/2.
pub(super) fn port_flaw(cx: &Reads<'_>, provider: &ExtensionProvider) -> Option<Flaw> {
    let (service, port) = match provider.provider.as_ref()? {
        Provider::EnvoyHttpAls(als) => (&als.service, als.port),
        Provider::EnvoyTcpAls(als) => (&als.service, als.port),
        Provider::EnvoyOtelAls(als) => (&als.service, als.port),
        Provider::Skywalking(skywalking) => (&skywalking.service, skywalking.port),
        Provider::Opentelemetry(otel) if otel.http.is_none() => (&otel.service, otel.port),
        _ => return None,
    };
    let (_, protocol) = find(cx, service, port).ok()?;
    (!protocol.is_http2()).then(|| Flaw::no_grpc(service, port))
}

fn unfit(what: &str, hint: &'static str) -> Flaw {
    Flaw {
        code: UNSUPPORTED,
        field: "",
        message: format!("a provider of this sort makes no {what} with the Envoy of today"),
        hint,
    }
}
