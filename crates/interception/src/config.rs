//! The settings of the capture, and the facts of the host that complete them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};

use crate::flags::FLAGS;
use crate::values::{Included, Owner, Ports, loopback, short};

/// The most groups whose traffic alone is captured: one rule names them all.
const MAX_GROUPS: usize = 64;

/// A setting that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// The value of a flag or variable is not valid.
    #[error("{name}: {reason}")]
    Value {
        /// The flag, as `--name`, or the variable.
        name: String,
        /// The value and a remedy.
        reason: String,
    },
    /// No flag has this name.
    #[error("there is no flag --{0}")]
    Unknown(String),
    /// The host has no address from which the family of addresses could be known.
    #[error("no interface has an address other than loopback and link-local ones; set up the network first")]
    NoAddress,
    /// The name of a user or group has no number.
    #[error("there is no user or group {0:?}; give its number")]
    UnknownOwner(String),
}

/// The way in which inbound connections reach the proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// The destination is rewritten to the proxy's port. The application sees the proxy's address.
    #[default]
    Redirect,
    /// The connection is delivered to the proxy as it is, and the proxy can keep the source address.
    Tproxy,
}

/// The variant of iptables to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Binary {
    /// `iptables-legacy`.
    Legacy,
    /// `iptables-nft`.
    Nft,
}

/// The settings of the capture. [`FLAGS`] describes each.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the help text of the flag of the same meaning describes the field")]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Config {
    pub proxy_port: u16,
    pub inbound_capture_port: u16,
    pub inbound_tunnel_port: u16,
    /// The users of the proxy. If empty, the user that [`Host::proxy_user`] has, else 1337.
    pub proxy_users: Vec<Owner>,
    /// The groups of the proxy. If empty, those with the numbers of the users.
    pub proxy_groups: Vec<Owner>,
    pub mode: Mode,
    pub inbound_ports: Included<Ports>,
    pub inbound_ports_exclude: Vec<Ports>,
    pub exclude_interfaces: Vec<String>,
    pub outbound_ranges: Included<IpNet>,
    pub outbound_ranges_exclude: Vec<IpNet>,
    pub outbound_ports: Vec<Ports>,
    pub outbound_ports_exclude: Vec<Ports>,
    pub reroute_interfaces: Vec<String>,
    pub tproxy_mark: u32,
    pub tproxy_route_table: u32,
    pub dry_run: bool,
    pub probe_port: u16,
    pub probe_timeout: Duration,
    pub skip_rule_apply: bool,
    pub run_validation: bool,
    pub redirect_dns: bool,
    pub drop_invalid: bool,
    pub dual_stack: bool,
    pub capture_all_dns: bool,
    /// The path of the network namespace in which the rules are made. If empty, the one of this process.
    pub network_namespace: String,
    pub cni_mode: bool,
    pub reconcile: bool,
    pub cleanup_only: bool,
    pub force_apply: bool,
    pub native_nftables: bool,
    pub force_binary: Option<Binary>,
    /// The destinations on the loopback interface that are meant for the application (`ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR`).
    pub loopback: Ipv4Net,
    /// The groups whose traffic is captured (`ISTIO_OUTBOUND_OWNER_GROUPS`).
    pub owner_groups: Included<Owner>,
    /// The groups whose traffic is not captured (`ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE`). Only if all others are.
    pub owner_groups_exclude: Vec<Owner>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            proxy_port: 15001,
            inbound_capture_port: 15006,
            inbound_tunnel_port: 15008,
            proxy_users: Vec::new(),
            proxy_groups: Vec::new(),
            mode: Mode::Redirect,
            inbound_ports: Included::default(),
            inbound_ports_exclude: Vec::new(),
            exclude_interfaces: Vec::new(),
            outbound_ranges: Included::default(),
            outbound_ranges_exclude: Vec::new(),
            outbound_ports: Vec::new(),
            outbound_ports_exclude: Vec::new(),
            reroute_interfaces: Vec::new(),
            tproxy_mark: 1337,
            tproxy_route_table: 133,
            dry_run: false,
            probe_port: 15002,
            probe_timeout: Duration::from_secs(5),
            skip_rule_apply: false,
            run_validation: false,
            redirect_dns: false,
            drop_invalid: false,
            dual_stack: false,
            capture_all_dns: false,
            network_namespace: String::new(),
            cni_mode: false,
            reconcile: false,
            cleanup_only: false,
            force_apply: false,
            native_nftables: false,
            force_binary: None,
            loopback: Ipv4Net::new_assert(std::net::Ipv4Addr::LOCALHOST, 32),
            owner_groups: Included::All,
            owner_groups_exclude: Vec::new(),
        }
    }
}

impl Config {
    /// The settings of the environment. Flags are set afterwards, so that they win.
    ///
    /// # Errors
    /// A variable has a value that cannot be used.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        for flag in FLAGS {
            for name in flag.environment.iter().chain(flag.environment_too.iter()) {
                if let Some(value) = variable(name) {
                    flag.assign(&mut config, &value, name)?;
                }
            }
        }
        config.check()?;
        Ok(config)
    }

    /// Sets the value of a flag, by its long name.
    ///
    /// # Errors
    /// There is no such flag, or the value cannot be used.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        let flag = FLAGS.iter().find(|flag| flag.name == Some(name));
        let flag = flag.ok_or_else(|| ConfigError::Unknown(short(name)))?;
        flag.assign(self, value, &format!("--{name}"))
    }

    /// Whether the settings name users or groups, which [`Host`] needs to know.
    #[must_use]
    pub fn names_owners(&self) -> bool {
        let listed = match &self.owner_groups {
            Included::All => [].as_slice(),
            Included::Listed(groups) => groups,
        };
        [&self.proxy_users, &self.proxy_groups, &self.owner_groups_exclude]
            .into_iter()
            .flatten()
            .chain(listed)
            .any(Owner::is_name)
    }

    /// Checks what a single value does not show.
    fn check(&self) -> Result<(), ConfigError> {
        match &self.owner_groups {
            Included::Listed(groups) if groups.len() > MAX_GROUPS => Err(ConfigError::Value {
                name: "ISTIO_OUTBOUND_OWNER_GROUPS".to_owned(),
                reason: format!("the list has {} groups; give at most {MAX_GROUPS}", groups.len()),
            }),
            _ => Ok(()),
        }
    }

    /// Sets the range of the loopback interface.
    pub(crate) fn set_loopback(&mut self, text: &str) -> Result<(), String> {
        self.loopback = loopback(text)?;
        Ok(())
    }
}

/// The facts of the network namespace that the rules depend on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Host {
    /// The addresses of its interfaces, in the order of the interfaces.
    pub addresses: Vec<IpAddr>,
    /// The DNS servers of `/etc/resolv.conf`. Needed for the capture of DNS to these servers only.
    pub nameservers: Vec<IpAddr>,
    /// The number of the proxy's user, by the name in `ENVOY_USER` (`istio-proxy` by default).
    pub proxy_user: Option<u32>,
    /// The users by name. Needed if the settings name any.
    pub users: BTreeMap<String, u32>,
    /// The groups by name. Needed if the settings name any.
    pub groups: BTreeMap<String, u32>,
}

impl Host {
    /// The address that stands for the host, and whether IPv6 is captured.
    pub(crate) fn primary(&self, dual_stack: bool) -> Result<(IpAddr, bool), ConfigError> {
        let usable = |address: &IpAddr| match address {
            IpAddr::V4(address) => !(address.is_loopback() || address.is_link_local() || is_local_multicast(*address)),
            IpAddr::V6(address) => {
                let segments = address.segments();
                !(address.is_loopback() || segments[0] & 0xffc0 == 0xfe80 || segments[0] & 0xff0f == 0xff02)
            }
        };
        // The kernel lists all IPv4 addresses first.
        let mut usable: Vec<IpAddr> = self.addresses.iter().map(IpAddr::to_canonical).filter(usable).collect();
        usable.sort_by_key(IpAddr::is_ipv6);
        let first = *usable.first().ok_or(ConfigError::NoAddress)?;
        let last = *usable.last().ok_or(ConfigError::NoAddress)?;
        Ok((first, if dual_stack { last.is_ipv6() } else { first.is_ipv6() }))
    }
}

/// Owners by number.
pub(crate) fn numbers(owners: &[Owner], known: &BTreeMap<String, u32>) -> Result<Vec<Owner>, ConfigError> {
    let number = |owner: &Owner| match (owner.is_name(), known.get(owner.as_str())) {
        (false, _) => Ok(owner.clone()),
        (true, Some(id)) => Ok(Owner::of(*id)),
        (true, None) => Err(ConfigError::UnknownOwner(owner.as_str().to_owned())),
    };
    owners.iter().map(number).collect()
}

fn is_local_multicast(address: std::net::Ipv4Addr) -> bool {
    matches!(address.octets(), [224, 0, 0, _])
}
