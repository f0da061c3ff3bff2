//! Services that decide about requests: extension providers of the mesh, to which policies with the action `CUSTOM`
//! refer.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::istio::AuthorizationPolicy;
use config::istio::authorization_policy::AuthorizationAction;
use config::mesh::{ExtAuthzHttpProvider, ExtAuthzRequestBody, Provider};
use config::{Diagnostic, Object};
use flow::Reads;
use model::authorization::{ExternalService, ExternalSettings};
use model::service::{ObjectId, ServiceKey};
use registry::inputs::{AuthorizationPolicies, Mesh};

use crate::backend::{Backend, Flaw, UNSUPPORTED, find};

flow::index! {
    /// AuthorizationPolicies by the provider that decides about their requests.
    pub PoliciesByProvider: Arc<str> => members of AuthorizationPolicies = "authorization policies by provider", policies_by_provider_keys;
}

fn policies_by_provider_keys(_: &ObjectId, row: &Arc<Object<AuthorizationPolicy>>) -> Vec<Arc<str>> {
    let provider = row.spec.provider.iter().filter(|_| row.spec.action == AuthorizationAction::Custom);
    provider.map(|provider| provider.name.clone()).collect()
}

flow::rule! {
    /// The service of each provider, or why it cannot be used.
    pub ExternalServices: Arc<str> => Arc<Result<Found, Flaw>> = "authorization services by provider", derive_external_service;
    /// The services that proxies ask, with their ports, ascending. Proxies have clusters for them whatever their `Sidecar`
    /// imports. None if there are none.
    pub AuthorizationServices: () => Arc<[(ServiceKey, u16)]> = "services for authorization", derive_authorization_services;
}

/// The service of a provider.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// The service and its port.
    pub backend: Backend,
    /// What proxies need to know.
    pub service: Arc<ExternalService>,
    /// A problem that does not keep the proxies from asking, but may keep the service from answering.
    pub doubt: Option<Arc<Flaw>>,
}

fn derive_external_service(cx: &Reads<'_>, name: &Arc<str>) -> Option<Arc<Result<Found, Flaw>>> {
    Some(Arc::new(found(cx, name)))
}

fn found(cx: &Reads<'_>, name: &Arc<str>) -> Result<Found, Flaw> {
    let missing = || Flaw {
        code: Diagnostic::MISSING_REFERENCE,
        field: "",
        message: format!("the mesh has no extension provider {name:?} for authorization"),
        hint: "add it to extensionProviders of the mesh configuration, with envoyExtAuthzHttp or envoyExtAuthzGrpc",
    };
    let mesh = cx.get::<Mesh>(&()).ok_or_else(missing)?;
    let mut named = mesh.config.extension_providers.iter().filter(|provider| provider.name == *name);
    let provider = named.next().ok_or_else(missing)?;
    let (service, port, settings) = match &provider.provider {
        Some(Provider::EnvoyExtAuthzHttp(http)) => {
            headers(http)?;
            common(&http.status_on_error, http.include_request_body_in_check.as_ref())?;
            if !http.path_prefix.is_empty() && !http.path_prefix.starts_with('/') {
                return Err(unsupported("pathPrefix", "the path prefix must start with a slash", "add the slash"));
            }
            (&http.service, http.port, ExternalSettings::Http(Box::new(http.clone())))
        }
        Some(Provider::EnvoyExtAuthzGrpc(grpc)) => {
            common(&grpc.status_on_error, grpc.include_request_body_in_check.as_ref())?;
            (&grpc.service, grpc.port, ExternalSettings::Grpc(Box::new(grpc.clone())))
        }
        _ => {
            let message = format!("the extension provider {name:?} is not for authorization");
            return Err(unsupported("", &message, "use envoyExtAuthzHttp or envoyExtAuthzGrpc"));
        }
    };
    let (backend, protocol) = find(cx, service, port)?;
    let grpc = matches!(settings, ExternalSettings::Grpc(_));
    let doubt = (grpc && !protocol.is_http2()).then(|| Arc::new(Flaw::no_grpc(service, port)));
    let service = ExternalService { cluster: backend.cluster().into(), authority: backend.authority.clone(), settings };
    Ok(Found { backend, service: Arc::new(service), doubt })
}

fn unsupported(field: &'static str, message: &str, hint: &'static str) -> Flaw {
    Flaw { code: UNSUPPORTED, field, message: message.to_owned(), hint }
}

/// Checks the settings that both protocols have.
fn common(status: &str, body: Option<&ExtAuthzRequestBody>) -> Result<(), Flaw> {
    if !status.is_empty() && !status.parse::<i32>().is_ok_and(|status| (100..600).contains(&status)) {
        return Err(unsupported("statusOnError", &format!("{status:?} is not an HTTP status"), "use one such as 503"));
    }
    match body {
        Some(body) if body.max_request_bytes == 0 => Err(unsupported(
            "includeRequestBodyInCheck",
            "the maximum number of bytes of the body is 0",
            "set maxRequestBytes, or omit includeRequestBodyInCheck",
        )),
        _ => Ok(()),
    }
}

/// Checks the names of headers.
fn headers(http: &ExtAuthzHttpProvider) -> Result<(), Flaw> {
    let lists = [
        ("includeHeadersInCheck", &http.include_headers_in_check),
        ("includeRequestHeadersInCheck", &http.include_request_headers_in_check),
        ("headersToUpstreamOnAllow", &http.headers_to_upstream_on_allow),
        ("headersToDownstreamOnDeny", &http.headers_to_downstream_on_deny),
        ("headersToDownstreamOnAllow", &http.headers_to_downstream_on_allow),
    ];
    for (field, names) in lists {
        if names.iter().any(|name| &**name == "*") {
            let message = "* alone is not supported";
            return Err(unsupported(field, message, "name the headers, or use a prefix such as x-*"));
        }
    }
    let mut added = http.include_additional_headers_in_check.iter();
    match added.find(|(name, value)| !config::is_header_name(name) || value.contains(['\0', '\r', '\n'])) {
        Some((name, _)) => {
            let message = format!("{name:?} is not a valid header");
            Err(unsupported("includeAdditionalHeadersInCheck", &message, "correct its name or value"))
        }
        None => Ok(()),
    }
}

fn derive_authorization_services(cx: &Reads<'_>, (): &()) -> Option<Arc<[(ServiceKey, u16)]>> {
    let mesh = cx.get::<Mesh>(&())?;
    let external = mesh.config.extension_providers.iter().filter(|provider| {
        matches!(provider.provider, Some(Provider::EnvoyExtAuthzHttp(_) | Provider::EnvoyExtAuthzGrpc(_)))
    });
    let used = external.filter(|provider| cx.contains::<PoliciesByProvider>(&provider.name));
    let found = used.filter_map(|provider| {
        let found = cx.get::<ExternalServices>(&provider.name)?;
        let backend = &(**found).as_ref().ok()?.backend;
        Some((backend.service.clone(), backend.port))
    });
    let all: BTreeSet<(ServiceKey, u16)> = found.collect();
    (!all.is_empty()).then(|| all.into_iter().collect())
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.index::<PoliciesByProvider>();
    b.view::<ExternalServices>();
    b.view::<AuthorizationServices>();
}
