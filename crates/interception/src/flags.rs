//! The table of flags and environment variables, with the names, defaults and meanings of `istio-iptables`.

use crate::config::{Binary, Config, ConfigError, Mode};
use crate::values::{Included, interface, list, mark, number, port, range, short, switch};

/// The form of a flag's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A boolean. The flag without a value is true.
    Switch,
    /// Any other value.
    Text,
}

/// A setting: its flag, its environment variables and its meaning.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// The long name. A setting without one has a variable only.
    pub name: Option<&'static str>,
    /// The short name.
    pub short: Option<char>,
    /// The variable.
    pub environment: Option<&'static str>,
    /// A second variable, which wins over the first.
    pub environment_too: Option<&'static str>,
    /// The form of the value.
    pub kind: Kind,
    /// The default, as it is written.
    pub default: &'static str,
    /// The meaning, for the help text.
    pub help: &'static str,
    set: fn(&mut Config, &str) -> Result<(), String>,
}

impl Flag {
    /// Sets the value. The name is for the error. An empty value of a flag that has a default is ignored.
    pub(crate) fn assign(&self, config: &mut Config, value: &str, name: &str) -> Result<(), ConfigError> {
        if value.is_empty() && (self.kind == Kind::Switch || !(self.default.is_empty() || self.default == "*")) {
            return Ok(());
        }
        (self.set)(config, value).map_err(|reason| ConfigError::Value { name: name.to_owned(), reason })
    }
}

/// Rows of the table: a long name, a short name, variables, a default, and the field with the parser of its value.
macro_rules! flags {
    ($($kind:ident $name:expr, $short:expr, $environment:expr, $too:expr, $default:literal, $set:expr, $help:literal;)*) => {
        /// All settings, in the order of the help text.
        pub const FLAGS: &[Flag] = &[$(Flag {
            name: $name,
            short: $short,
            environment: $environment,
            environment_too: $too,
            kind: Kind::$kind,
            default: $default,
            help: $help,
            set: $set,
        }),*];
    };
}

/// A setter of a field.
macro_rules! to {
    ($field:ident, $parse:expr) => {
        |config, value| {
            config.$field = $parse(value)?;
            Ok(())
        }
    };
}

flags! {
    Text Some("envoy-port"), Some('p'), None, None, "15001", to!(proxy_port, port),
        "The port of the proxy that outbound TCP connections are redirected to";
    Text Some("inbound-capture-port"), Some('z'), Some("INBOUND_CAPTURE_PORT"), None, "15006", to!(inbound_capture_port, port),
        "The port of the proxy that inbound TCP connections are redirected to";
    Text Some("inbound-tunnel-port"), Some('e'), Some("INBOUND_TUNNEL_PORT"), None, "15008", to!(inbound_tunnel_port, port),
        "The port of the proxy for HBONE tunnels. Connections to it are not redirected";
    Text Some("proxy-uid"), Some('u'), Some("PROXY_UID"), None, "", to!(proxy_users, |v| list(v, str::parse)),
        "The user of the proxy, whose connections are not redirected: a number, or several separated by commas. \
         Default: the user named by ENVOY_USER (istio-proxy), else 1337";
    Text Some("proxy-gid"), Some('g'), Some("PROXY_GID"), None, "", to!(proxy_groups, |v| list(v, str::parse)),
        "The group of the proxy, whose connections are not redirected. Default: the number of the user";
    Text Some("istio-inbound-interception-mode"), Some('m'), Some("ISTIO_INBOUND_INTERCEPTION_MODE"), None, "",
        to!(mode, mode),
        "How inbound connections reach the proxy: REDIRECT, or TPROXY, which lets the proxy keep the source address";
    Text Some("istio-inbound-ports"), Some('b'), Some("ISTIO_INBOUND_PORTS"), None, "",
        to!(inbound_ports, |v| Included::parse(v, str::parse)),
        "The inbound ports that are redirected, separated by commas. * redirects all, an empty list none";
    Text Some("istio-local-exclude-ports"), Some('d'), Some("ISTIO_LOCAL_EXCLUDE_PORTS"), None, "",
        to!(inbound_ports_exclude, |v| list(v, str::parse)),
        "The inbound ports that are not redirected. Only if all others are (*)";
    Text Some("istio-exclude-interfaces"), Some('c'), Some("ISTIO_EXCLUDE_INTERFACES"), None, "",
        to!(exclude_interfaces, |v| list(v, interface)),
        "The network interfaces whose traffic is not redirected, in both directions";
    Text Some("istio-service-cidr"), Some('i'), Some("ISTIO_SERVICE_CIDR"), None, "",
        to!(outbound_ranges, |v| Included::parse(v, range)),
        "The ranges of destination addresses that are redirected, separated by commas. * redirects all, an empty list none";
    Text Some("istio-service-exclude-cidr"), Some('x'), Some("ISTIO_SERVICE_EXCLUDE_CIDR"), None, "",
        to!(outbound_ranges_exclude, |v| list(v, range)),
        "The ranges of destination addresses that are not redirected";
    Text Some("istio-outbound-ports"), Some('q'), Some("ISTIO_OUTBOUND_PORTS"), None, "",
        to!(outbound_ports, |v| list(v, str::parse)),
        "The outbound ports that are redirected whatever their address is";
    Text Some("istio-local-outbound-ports-exclude"), Some('o'), Some("ISTIO_LOCAL_OUTBOUND_PORTS_EXCLUDE"), None, "",
        to!(outbound_ports_exclude, |v| list(v, str::parse)),
        "The outbound ports that are not redirected";
    Text Some("kube-virt-interfaces"), Some('k'), Some("KUBE_VIRT_INTERFACES"), None, "",
        to!(reroute_interfaces, |v| list(v, interface)),
        "The virtual interfaces whose inbound traffic, of a virtual machine, is treated as outbound";
    Text Some("istio-inbound-tproxy-mark"), Some('t'), Some("ISTIO_INBOUND_TPROXY_MARK"), None, "1337",
        to!(tproxy_mark, mark),
        "The mark of packets that are routed to the proxy in mode TPROXY";
    Text Some("istio-inbound-tproxy-route-table"), Some('r'), Some("ISTIO_INBOUND_TPROXY_ROUTE_TABLE"), None, "133",
        to!(tproxy_route_table, number),
        "The number of the routing table for marked packets in mode TPROXY";
    Switch Some("dry-run"), Some('n'), Some("DRY_RUN"), None, "false", to!(dry_run, switch),
        "Print the rules and commands, and run none";
    Text Some("iptables-probe-port"), None, Some("IPTABLES_PROBE_PORT"), None, "15002", to!(probe_port, port),
        "The port that --run-validation connects to";
    Text Some("probe-timeout"), None, Some("PROBE_TIMEOUT"), None, "5s", to!(probe_timeout, duration),
        "How long --run-validation waits for a redirected connection";
    Switch Some("skip-rule-apply"), None, Some("SKIP_RULE_APPLY"), None, "false", to!(skip_rule_apply, switch),
        "Make no rules. With --run-validation, it only checks the rules that are there";
    Switch Some("run-validation"), None, Some("RUN_VALIDATION"), None, "false", to!(run_validation, switch),
        "Check that a connection is redirected. If not, exit with code 126";
    Switch Some("redirect-dns"), None, Some("REDIRECT_DNS"), Some("ISTIO_META_DNS_CAPTURE"), "false",
        to!(redirect_dns, switch),
        "Redirect DNS requests to the agent";
    Switch Some("drop-invalid"), None, Some("DROP_INVALID"), Some("INVALID_DROP"), "false", to!(drop_invalid, switch),
        "Drop packets that belong to no known connection, instead of answering with a reset";
    Switch Some("dual-stack"), None, Some("DUAL_STACK"), Some("ISTIO_DUAL_STACK"), "false", to!(dual_stack, switch),
        "Redirect IPv6 as well if the first address of the host is an IPv4 address";
    Switch Some("capture-all-dns"), None, Some("CAPTURE_ALL_DNS"), None, "false", to!(capture_all_dns, switch),
        "With --redirect-dns, redirect all traffic to port 53, and not only that to the servers of /etc/resolv.conf";
    Text Some("network-namespace"), None, Some("NETWORK_NAMESPACE"), None, "", to!(network_namespace, namespace),
        "The path of the network namespace in which the rules are made. Default: the one of this process";
    Switch Some("cni-mode"), None, Some("CNI_MODE"), None, "false", to!(cni_mode, switch),
        "Run as a CNI plugin: with the programs of the host in the network namespace of a pod";
    Switch Some("reconcile"), None, Some("RECONCILE"), None, "false", to!(reconcile, switch),
        "Replace rules of another configuration instead of failing";
    Switch Some("cleanup-only"), None, Some("CLEANUP_ONLY"), None, "false", to!(cleanup_only, switch),
        "Remove all rules, routes and addresses, and make none";
    Switch Some("force-apply"), None, Some("FORCE_APPLY"), None, "false", to!(force_apply, switch),
        "Make the rules again even if they are there";
    Switch Some("native-nftables"), None, Some("NATIVE_NFTABLES"), None, "false", to!(native_nftables, switch),
        "Use nft instead of iptables";
    Text Some("force-iptables-binary"), None, Some("FORCE_IPTABLES_BINARY"), None, "", to!(force_binary, binary),
        "The variant of iptables to use: legacy or nft. Default: legacy if it has rules, else nft";
    Text None, None, Some("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR"), None, "127.0.0.1/32", Config::set_loopback,
        "The destinations on the loopback interface that are meant for the application";
    Text None, None, Some("ISTIO_OUTBOUND_OWNER_GROUPS"), None, "*",
        to!(owner_groups, |v| Included::parse(v, str::parse)),
        "The groups whose outbound traffic is redirected, by number or name. * stands for all";
    Text None, None, Some("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE"), None, "",
        to!(owner_groups_exclude, |v| list(v, str::parse)),
        "The groups whose outbound traffic is not redirected. Only if that of all others is";
}

/// Istio captures in the same way as with REDIRECT if the value is NONE: whoever wants no capture does not run the program.
fn mode(text: &str) -> Result<Mode, String> {
    match text {
        "TPROXY" => Ok(Mode::Tproxy),
        "" | "REDIRECT" | "NONE" => Ok(Mode::Redirect),
        _ => Err(format!("{:?} is not a mode; give REDIRECT or TPROXY", short(text))),
    }
}

fn binary(text: &str) -> Result<Option<Binary>, String> {
    match text {
        "" => Ok(None),
        "legacy" => Ok(Some(Binary::Legacy)),
        "nft" => Ok(Some(Binary::Nft)),
        _ => Err(format!("{:?} is not a variant of iptables; give legacy or nft", short(text))),
    }
}

fn duration(text: &str) -> Result<std::time::Duration, String> {
    protos::parse_duration(text).ok_or_else(|| format!("{:?} is not a duration; give one like 5s", short(text)))
}

fn namespace(text: &str) -> Result<String, String> {
    match text.is_empty() || text.starts_with('/') && !text.contains(char::is_control) {
        true => Ok(text.to_owned()),
        false => Err(format!("{:?} is not the path of a network namespace", short(text))),
    }
}
