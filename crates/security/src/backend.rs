//! Services of extension providers.

use std::sync::Arc;

use config::Diagnostic;
use flow::Reads;
use model::service::{Resolution, Service, ServiceKey};
use names::{ClusterName, Hostname, Protocol};
use registry::{Services, ServicesByHost};

/// Diagnostic code of a service that exists but cannot be used.
pub(crate) const UNSUPPORTED: &str = "unsupported";
/// Maximum number of chained aliases.
const ALIASES: usize = 8;

/// A port of a service that proxies call themselves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Backend {
    /// The service.
    pub service: ServiceKey,
    /// Its port.
    pub port: u16,
    /// The `Host` header of requests to it.
    pub authority: Arc<str>,
}

impl Backend {
    /// The name of its cluster.
    pub fn cluster(&self) -> String {
        ClusterName::outbound(self.port, "", self.service.hostname.as_str()).to_string()
    }
}

/// Why a provider has no effect.
#[derive(PartialEq, Debug)]
pub struct Flaw {
    /// The code of the diagnostic.
    pub code: &'static str,
    /// The field of the provider; empty for the provider as a whole.
    pub field: &'static str,
    /// The problem.
    pub message: String,
    /// The remedy.
    pub hint: &'static str,
}

impl Flaw {
    /// The service of a provider that speaks gRPC does not declare HTTP/2.
    pub(crate) fn no_grpc(service: &str, port: u32) -> Flaw {
        Flaw {
            code: UNSUPPORTED,
            field: "port",
            message: format!("gRPC is spoken to port {port} of {service}, which is not declared to speak it"),
            hint: "call the port of the service grpc, or set its appProtocol",
        }
    }

    /// `, FIELD` for messages; empty for the provider as a whole.
    pub fn place(&self) -> String {
        match self.field {
            "" => String::new(),
            field => format!(", {field}"),
        }
    }
}

/// The service of a provider (`[NAMESPACE/]HOST`, port) and the port's protocol. As in Istio, visibility is ignored,
/// and a host without a namespace must exist in one namespace only.
pub(crate) fn find(cx: &Reads<'_>, name: &str, port: u32) -> Result<(Backend, Protocol), Flaw> {
    let (namespace, host) = match name.split_once('/') {
        Some((namespace, host)) => (Some(namespace), host),
        None => (None, name),
    };
    let (key, service) = by_host(cx, namespace, host)?;
    let number = u16::try_from(port).ok();
    let found = number.and_then(|number| service.port(number)).filter(|found| found.protocol != Protocol::Udp);
    let Some(found) = found else {
        let numbers: Vec<String> = service.ports.iter().map(|port| port.number.to_string()).collect();
        return Err(Flaw {
            code: Diagnostic::MISSING_REFERENCE,
            field: "port",
            message: format!("the service {name} has no TCP port {port}; its ports are {}", numbers.join(", ")),
            hint: "name a port of the service, not of its pods",
        });
    };
    let backend = Backend { authority: key.hostname.as_arc().clone(), service: key, port: found.number };
    Ok((backend, found.protocol))
}

fn by_host(cx: &Reads<'_>, namespace: Option<&str>, host: &str) -> Result<(ServiceKey, Arc<Service>), Flaw> {
    let missing = |host: &str| Flaw {
        code: Diagnostic::MISSING_REFERENCE,
        field: "service",
        message: format!("there is no service {host}"),
        hint: "the name has the form HOST or NAMESPACE/HOST, with the whole name of the host: name.namespace.svc.cluster.local",
    };
    let mut wanted = Hostname::parse(host).map_err(|_| missing(host))?;
    let mut namespace = namespace;
    for _ in 0..ALIASES {
        let all = cx.get::<ServicesByHost>(&wanted);
        let all = all.iter().flat_map(|all| all.iter());
        let found: Vec<&ServiceKey> =
            all.filter(|key| namespace.is_none_or(|wanted| *key.namespace == *wanted)).collect();
        let key = match found[..] {
            [] => return Err(missing(wanted.as_str())),
            [key] => key.clone(),
            [..] => {
                let namespaces: Vec<&str> = found.iter().map(|key| &*key.namespace).collect();
                return Err(Flaw {
                    code: "ambiguous",
                    field: "service",
                    message: format!("several namespaces have a service {wanted}: {}", namespaces.join(", ")),
                    hint: "say which one is meant: NAMESPACE/HOST",
                });
            }
        };
        let Some(service) = cx.get::<Services>(&key) else {
            return Err(missing(wanted.as_str()));
        };
        match (&service.resolution, &service.alias_of) {
            (Resolution::Alias, Some(other)) => {
                (wanted, namespace) = (other.clone(), None);
            }
            (Resolution::DynamicDns, _) => {
                return Err(Flaw {
                    code: UNSUPPORTED,
                    field: "service",
                    message: format!("{wanted} stands for many hosts"),
                    hint: "name a service with one host",
                });
            }
            _ => return Ok((key, (*service).clone())),
        }
    }
    Err(missing(host))
}
