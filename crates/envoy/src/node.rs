//! Parses the node message of a client's first request.
//!
//! The id is `TYPE~IP~ID~DOMAIN`. Istio's agent writes the metadata; it encodes booleans as JSON booleans or as the string
//! "true", and lists as comma-separated strings.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use model::proxy::{Capabilities, InterceptionMode, Labels, Locality, Proxy, ProxyKind, STATIC_PORTS, SpanNames};
use names::{NameError, NodeId, NodeType};
use protos::envoy::config::core::v3::node::UserAgentVersionType;
use protos::envoy::config::core::v3::{Extension, Node};
use protos::envoy::r#type::v3::SemanticVersion;
use protos::{Message, Struct, Value, value::Kind};

/// The reason why a client cannot be served.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NodeError {
    /// The bytes are not a node message.
    #[error("the node is not a node message: {0}")]
    Malformed(String),
    /// The first request of a stream has no node.
    #[error("the first request has no node")]
    Missing,
    /// The id is malformed.
    #[error("node id {0}")]
    Id(#[from] NameError),
    /// A type of client that is not supported.
    #[error("clients of type {0} are not served")]
    Unsupported(&'static str),
    /// Neither the ID nor the metadata contain an address.
    #[error("the node has no IP address, neither in its id nor in INSTANCE_IPS")]
    NoAddress,
    /// Neither the metadata nor the ID contain a namespace.
    #[error("the node has no namespace, neither in NAMESPACE nor in the domain of its id")]
    NoNamespace,
    /// A metadata value is invalid.
    #[error("node metadata {key} {reason}")]
    Metadata {
        /// The metadata key.
        key: &'static str,
        /// The problem.
        reason: String,
    },
}

/// The maximum length of a text of a node, in bytes.
const TEXT: usize = 1024;
/// The maximum length of the list of ports, in bytes.
const POD_PORTS: usize = 64 << 10;
/// The default DNS address of Istio's agent.
const AGENT_DNS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 15053);
/// The settings of the proxy that affect its resources. Agents report all other settings too.
const SETTINGS: [&str; 5] = ["proxyHeaders", "gatewayTopology", "connectionSettings", "tracing", "privateKeyProvider"];
/// The annotation that names a pod's service in traces.
const SPAN_NAME: &str = "resource.opentelemetry.io/service.name";
/// The maximum length of the settings, in bytes.
const SETTINGS_TEXT: usize = 16 << 10;
/// The maximum nesting of values in settings.
const DEPTH: usize = 16;
/// The first Envoy version that supports VHDS over an aggregated stream.
const VHDS: (u32, u32) = (1, 37);
/// The maximum number of labels.
const LABELS: usize = 1024;
/// The maximum number of metadata texts that patches can match.
const TEXTS: usize = 256;
/// The maximum number of addresses.
const ADDRESSES: usize = 64;

/// Decodes a node message.
///
/// # Errors
/// The message is malformed, or [`parse_node`] rejects it.
pub fn decode_node(node: Bytes) -> Result<Proxy, NodeError> {
    parse_node(&Node::decode(node).map_err(|error| NodeError::Malformed(error.to_string()))?)
}

/// Parses the facts in a node message.
///
/// # Errors
/// A required field is missing, or this type of client is not supported.
pub fn parse_node(node: &Node) -> Result<Proxy, NodeError> {
    let id = NodeId::parse(&node.id)?;
    let metadata = Metadata(node.metadata.as_ref());
    let kind = match id.kind {
        NodeType::Sidecar => match metadata.text("GENERATOR")? {
            "" => ProxyKind::Sidecar,
            "grpc" => ProxyKind::Grpc,
            _ => return Err(metadata_error("GENERATOR", "is neither grpc nor absent")),
        },
        NodeType::Router => ProxyKind::Router,
        other => return Err(NodeError::Unsupported(other.name())),
    };
    let namespace = match metadata.text("NAMESPACE")? {
        "" => id.namespace().ok_or(NodeError::NoNamespace)?,
        namespace => namespace,
    };
    let domain = if id.domain.is_empty() { format!("{namespace}.svc.cluster.local").into() } else { id.domain.clone() };
    Ok(Proxy {
        kind,
        id: id.id.clone(),
        namespace: namespace.into(),
        dns_domain: domain,
        addresses: addresses(id.ip, &metadata)?,
        labels: metadata.labels()?,
        locality: locality(node)?,
        network: metadata.text("NETWORK")?.into(),
        network_view: network_view(&metadata)?,
        node: metadata.text("NODE_NAME")?.into(),
        cluster_id: metadata.text("CLUSTER_ID")?.into(),
        service_account: metadata.text("SERVICE_ACCOUNT")?.into(),
        interception: interception(&metadata)?,
        capabilities: capabilities(&node.extensions),
        accepts_http10: metadata.text("HTTP10")? == "1",
        static_ports: [
            metadata.port("ENVOY_STATUS_PORT").unwrap_or(STATIC_PORTS[0]),
            metadata.port("ENVOY_PROMETHEUS_PORT").unwrap_or(STATIC_PORTS[1]),
        ],
        unprivileged: metadata.flag("UNPRIVILEGED_POD")?,
        ports: ports(&metadata),
        vhds: is_envoy_since(node, VHDS),
        secrets: Default::default(),
        resolver: resolver(&metadata)?,
        own_workload: match metadata.flag("ENABLE_SELF_DISCOVERY")? {
            true => Some(metadata.text("WORKLOAD_NAME")?.into()),
            false => None,
        },
        settings: settings(&metadata)?,
        version: metadata.text("ISTIO_VERSION")?.into(),
        span_names: SpanNames {
            cluster: bounded("cluster", &node.cluster)?.into(),
            annotated: span_name(&metadata).into(),
        },
        metadata: Arc::new(metadata.texts()),
    })
}

/// The service name for traces from the pod's annotation; empty if there is no valid one.
fn span_name<'a>(metadata: &Metadata<'a>) -> &'a str {
    let Some(Kind::StructValue(annotations)) = metadata.get("ANNOTATIONS") else {
        return "";
    };
    match annotations.fields.get(SPAN_NAME).and_then(|value| value.kind.as_ref()) {
        Some(Kind::StringValue(name)) if name.len() <= TEXT => name,
        _ => "",
    }
}

fn addresses(primary: Option<IpAddr>, metadata: &Metadata<'_>) -> Result<Vec<IpAddr>, NodeError> {
    let mut addresses: Vec<IpAddr> = primary.into_iter().collect();
    for text in metadata.text("INSTANCE_IPS")?.split(',').map(str::trim) {
        // Istio's agent lists the addresses of all interfaces; invalid ones are skipped, as in istiod.
        if let Ok(address) = text.parse()
            && !addresses.contains(&address)
        {
            addresses.push(address);
        }
        if addresses.len() > ADDRESSES {
            return Err(metadata_error("INSTANCE_IPS", format!("has more than {ADDRESSES} addresses")));
        }
    }
    if addresses.is_empty() { Err(NodeError::NoAddress) } else { Ok(addresses) }
}

/// The named ports in `POD_PORTS`, a JSON list as text. They are only used to resolve port names, and Istio's agent
/// writes the list, so an invalid list counts as empty.
fn ports(metadata: &Metadata<'_>) -> BTreeMap<Arc<str>, u16> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Port {
        #[serde(default)]
        name: String,
        container_port: u16,
    }
    let text = match metadata.get("POD_PORTS") {
        Some(Kind::StringValue(text)) if text.len() <= POD_PORTS => text,
        _ => return BTreeMap::new(),
    };
    let ports: Vec<Port> = serde_json::from_str(text).unwrap_or_default();
    let named = ports.into_iter().filter(|port| !port.name.is_empty());
    named.map(|port| (port.name.into(), port.container_port)).collect()
}

/// The DNS address of the agent. An invalid value counts as the default.
fn resolver(metadata: &Metadata<'_>) -> Result<Option<SocketAddr>, NodeError> {
    if !metadata.flag("DNS_CAPTURE")? {
        return Ok(None);
    }
    let text = metadata.text("DNS_PROXY_ADDR")?;
    let text = text.strip_prefix("localhost:").map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    Ok(Some(text.parse().unwrap_or(AGENT_DNS)))
}

/// The settings of the proxy. An agent that reports settings reports all, so missing ones are unset.
fn settings(metadata: &Metadata<'_>) -> Result<Option<Arc<str>>, NodeError> {
    const KEY: &str = "PROXY_CONFIG";
    let Some(Kind::StructValue(all)) = metadata.get(KEY) else {
        return Ok(None);
    };
    let shaping = all.fields.iter().filter(|(name, _)| SETTINGS.contains(&name.as_str()));
    let fields: Option<serde_json::Map<_, _>> =
        shaping.map(|(name, value)| Some((name.clone(), json(value, DEPTH)?))).collect();
    let text =
        serde_json::Value::Object(fields.ok_or_else(|| metadata_error(KEY, "is nested too deeply"))?).to_string();
    match text.len() <= SETTINGS_TEXT {
        true => Ok(Some(text.into())),
        false => Err(metadata_error(KEY, format!("has more than {SETTINGS_TEXT} bytes of settings"))),
    }
}

/// A value as JSON; `None` if it is nested too deeply.
fn json(value: &Value, depth: usize) -> Option<serde_json::Value> {
    use serde_json::Value as Json;
    let below = depth.checked_sub(1)?;
    Some(match &value.kind {
        None | Some(Kind::NullValue(_)) => Json::Null,
        Some(Kind::BoolValue(flag)) => Json::Bool(*flag),
        // Protobuf numbers are floats, but settings have integers.
        Some(Kind::NumberValue(number)) if number.fract() == 0.0 && number.abs() < 9e15 => Json::from(*number as i64),
        Some(Kind::NumberValue(number)) => Json::from(*number),
        Some(Kind::StringValue(text)) => Json::from(text.as_str()),
        Some(Kind::ListValue(list)) => Json::Array(list.values.iter().map(|v| json(v, below)).collect::<Option<_>>()?),
        Some(Kind::StructValue(object)) => {
            let fields = object.fields.iter().map(|(name, v)| Some((name.clone(), json(v, below)?)));
            Json::Object(fields.collect::<Option<_>>()?)
        }
    })
}

fn network_view(metadata: &Metadata<'_>) -> Result<Vec<Arc<str>>, NodeError> {
    let text = metadata.text("REQUESTED_NETWORK_VIEW")?;
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let mut names: Vec<Arc<str>> = names.map(Arc::from).collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

fn locality(node: &Node) -> Result<Locality, NodeError> {
    let Some(locality) = &node.locality else {
        return Ok(Locality::default());
    };
    let part = |text: &str| -> Result<Arc<str>, NodeError> { Ok(bounded("locality", text)?.into()) };
    Ok(Locality { region: part(&locality.region)?, zone: part(&locality.zone)?, sub_zone: part(&locality.sub_zone)? })
}

fn interception(metadata: &Metadata<'_>) -> Result<InterceptionMode, NodeError> {
    match metadata.text("INTERCEPTION_MODE")? {
        "" | "REDIRECT" => Ok(InterceptionMode::Redirect),
        "TPROXY" => Ok(InterceptionMode::Tproxy),
        "NONE" => Ok(InterceptionMode::None),
        other => {
            let shown: String = other.chars().take(40).collect();
            Err(metadata_error("INTERCEPTION_MODE", format!("is {shown:?}, not REDIRECT, TPROXY or NONE")))
        }
    }
}

/// The extensions of the client's build. A filter is identified by its name or by the type of its configuration.
fn capabilities(extensions: &[Extension]) -> Capabilities {
    let has = |name: &str, message: &str| {
        let named = |url: &String| url.rsplit('/').next() == Some(message);
        extensions.iter().any(|one| !one.disabled && (one.name == name || one.type_urls.iter().any(named)))
    };
    Capabilities {
        istio_alpn: has("istio.alpn", "istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig"),
        istio_stats: has("istio.stats", "stats.PluginConfig"),
        cryptomb: has(
            "cryptomb",
            "envoy.extensions.private_key_providers.cryptomb.v3alpha.CryptoMbPrivateKeyMethodConfig",
        ),
        qat: has("qat", "envoy.extensions.private_key_providers.qat.v3alpha.QatPrivateKeyMethodConfig"),
    }
}

/// Whether the client is an Envoy of at least this version.
fn is_envoy_since(node: &Node, since: (u32, u32)) -> bool {
    let version = match &node.user_agent_version_type {
        Some(UserAgentVersionType::UserAgentBuildVersion(build)) => build.version.as_ref(),
        _ => None,
    };
    let new_enough = |v: &SemanticVersion| (v.major_number, v.minor_number) >= since;
    node.user_agent_name == "envoy" && version.is_some_and(new_enough)
}

struct Metadata<'a>(Option<&'a Struct>);

impl<'a> Metadata<'a> {
    /// A text; empty if it is missing.
    fn text(&self, key: &'static str) -> Result<&'a str, NodeError> {
        match self.get(key) {
            None | Some(Kind::NullValue(_)) => Ok(""),
            Some(Kind::StringValue(text)) => bounded(key, text),
            Some(_) => Err(metadata_error(key, "is not a text")),
        }
    }

    /// A boolean, also as text; false if it is missing.
    fn flag(&self, key: &'static str) -> Result<bool, NodeError> {
        match self.get(key) {
            Some(Kind::BoolValue(flag)) => Ok(*flag),
            _ => Ok(self.text(key)?.eq_ignore_ascii_case("true")),
        }
    }

    /// A port, also as text; `None` if it is missing or invalid.
    fn port(&self, key: &'static str) -> Option<u16> {
        let port = match self.get(key)? {
            Kind::NumberValue(number) if number.fract() == 0.0 && (1.0..=65535.0).contains(number) => *number as u16,
            Kind::StringValue(text) => text.parse().ok()?,
            _ => return None,
        };
        (port != 0).then_some(port)
    }

    /// All texts, except long ones and those above the limit.
    fn texts(&self) -> model::proxy::Metadata {
        let fields = self.0.into_iter().flat_map(|fields| &fields.fields);
        let texts = fields.filter_map(|(key, value)| match &value.kind {
            Some(Kind::StringValue(text)) if key.len() <= TEXT && text.len() <= TEXT => {
                Some((key.as_str().into(), text.as_str().into()))
            }
            _ => None,
        });
        texts.take(TEXTS).collect()
    }

    fn labels(&self) -> Result<Labels, NodeError> {
        const KEY: &str = "LABELS";
        let labels = match self.get(KEY) {
            None | Some(Kind::NullValue(_)) => return Ok(Labels::new()),
            Some(Kind::StructValue(labels)) => labels,
            Some(_) => return Err(metadata_error(KEY, "is not an object")),
        };
        if labels.fields.len() > LABELS {
            return Err(metadata_error(KEY, format!("has more than {LABELS} entries")));
        }
        let one = |(name, value): (&String, &Value)| {
            let Some(Kind::StringValue(value)) = &value.kind else {
                return Err(metadata_error(KEY, "has a value that is not a text"));
            };
            Ok((bounded(KEY, name)?.into(), bounded(KEY, value)?.into()))
        };
        labels.fields.iter().map(one).collect()
    }

    fn get(&self, key: &str) -> Option<&'a Kind> {
        self.0?.fields.get(key)?.kind.as_ref()
    }
}

fn bounded<'a>(key: &'static str, text: &'a str) -> Result<&'a str, NodeError> {
    if text.len() > TEXT {
        return Err(metadata_error(key, format!("is longer than {TEXT} bytes")));
    }
    Ok(text)
}

fn metadata_error(key: &'static str, reason: impl Into<String>) -> NodeError {
    NodeError::Metadata { key, reason: reason.into() }
}

#[cfg(test)]
mod tests;
