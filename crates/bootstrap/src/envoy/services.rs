//! Services that the proxy sends traces, metrics and access logs to.

use config::istio::{ClientTlsMode, ClientTlsSettings, TcpKeepalive};
use config::mesh::RemoteService;
use serde_json::{Map, Value, json};

use super::url;
use crate::diagnostic::Diagnostics;
use crate::node::Node;

/// A service, as parts of its cluster.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Service {
    /// `{"address": HOST, "port_value": PORT}`.
    pub(crate) address: Value,
    pub(crate) tls: Option<Value>,
    pub(crate) keepalive: Option<Value>,
}

/// Splits `HOST:PORT`. The host `$(HOST_IP)` stands for the address of the node.
pub(crate) fn address(field: &str, text: &str, node: &Node, diagnostics: &mut Diagnostics) -> Option<Value> {
    let parts = text.rsplit_once(':').and_then(|(host, port)| {
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = bracketed.or_else(|| (!host.contains(':')).then_some(host))?;
        Some((host, port.parse::<u16>().ok()?))
    });
    let Some((host, port)) = parts else {
        diagnostics.add(field, format_args!("{text:?} is not an address; give HOST:PORT"));
        return None;
    };
    let host = match node.options.host_ip.as_str() {
        host_ip if host == "$(HOST_IP)" && !host_ip.is_empty() => host_ip,
        _ => host,
    };
    Some(json!({"address": host, "port_value": port}))
}

/// A service of the settings; none if it has no address. `name` is the default server name.
pub(super) fn remote(
    field: &str,
    service: &RemoteService,
    name: &str,
    node: &Node,
    diagnostics: &mut Diagnostics,
) -> Option<Service> {
    if service.address.is_empty() {
        return None;
    }
    Some(Service {
        address: address(field, &service.address, node, diagnostics)?,
        tls: service.tls_settings.as_ref().and_then(|tls| transport_socket(tls, name, node, true)),
        keepalive: service.tcp_keepalive.as_ref().map(keepalive),
    })
}

fn keepalive(settings: &TcpKeepalive) -> Value {
    let whole = |duration: Option<std::time::Duration>| duration.map_or(0, |duration| duration.as_secs());
    let fields = [
        ("keepalive_probes", u64::from(settings.probes)),
        ("keepalive_time", whole(settings.time)),
        ("keepalive_interval", whole(settings.interval)),
    ];
    let set = fields.into_iter().filter(|(_, value)| *value > 0).map(|(name, value)| (name.to_owned(), value.into()));
    json!({"tcp_keepalive": set.collect::<Map<_, _>>()})
}

/// The transport socket of a connection with TLS; none without TLS. Secrets come from the agent.
pub(super) fn transport_socket(tls: &ClientTlsSettings, name: &str, node: &Node, http2: bool) -> Option<Value> {
    let file = |key: &str, setting: &str| match node.text(key) {
        "" => setting.to_owned(),
        path => path.to_owned(),
    };
    let root = || file("TLS_CLIENT_ROOT_CERT", &tls.ca_certificates);
    let (certificate, root, protocols, sni) = match tls.mode {
        ClientTlsMode::Disable => return None,
        ClientTlsMode::Simple => (String::new(), root(), &["h2"][..], &*tls.sni),
        ClientTlsMode::Mutual => {
            let chain = file("TLS_CLIENT_CERT_CHAIN", &tls.client_certificate);
            let key = file("TLS_CLIENT_KEY", &tls.private_key);
            let both = !chain.is_empty() && !key.is_empty();
            (if both { format!("file-cert:{chain}~{key}") } else { String::new() }, root(), &["h2"][..], &*tls.sni)
        }
        ClientTlsMode::IstioMutual => {
            let sni = if tls.sni.is_empty() { name } else { &*tls.sni };
            ("default".to_owned(), "ROOTCA".to_owned(), &["istio", "h2"][..], sni)
        }
    };
    let root = match root.as_str() {
        "" | "ROOTCA" => root,
        path => format!("file-root:{path}"),
    };
    let names: Vec<Value> = tls.subject_alt_names.iter().map(|name| json!({"exact": &**name})).collect();
    let mut validation = Map::new();
    if !names.is_empty() {
        validation.insert("match_subject_alt_names".to_owned(), names.into());
    }
    let mut common = Map::new();
    if !certificate.is_empty() {
        common.insert("tls_certificate_sds_secret_configs".to_owned(), json!([secret(&certificate)]));
    }
    if root.is_empty() {
        common.insert("validation_context".to_owned(), validation.into());
    } else {
        let combined = json!({
            "default_validation_context": validation, "validation_context_sds_secret_config": secret(&root),
        });
        common.insert("combined_validation_context".to_owned(), combined);
    }
    if http2 {
        common.insert("alpn_protocols".to_owned(), json!(protocols));
    }
    let context = url("envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext");
    let mut config = json!({"@type": context, "common_tls_context": common});
    if !sni.is_empty() {
        config["sni"] = sni.into();
    }
    Some(json!({"name": "envoy.transport_sockets.tls", "typed_config": config}))
}

/// The configuration of a secret that the agent serves.
pub(super) fn secret(name: &str) -> Value {
    let mut source = json!({
        "api_config_source": {
            "api_type": "GRPC",
            "grpc_services": [{"envoy_grpc": {"cluster_name": "sds-grpc"}}],
            "set_node_on_first_message_only": true,
            "transport_api_version": "V3",
        },
        "resource_api_version": "V3",
    });
    if name == "default" || name == "ROOTCA" {
        source["initial_fetch_timeout"] = "0s".into();
    }
    json!({"name": name, "sds_config": source})
}
