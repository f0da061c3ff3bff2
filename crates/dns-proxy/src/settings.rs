//! The settings of the DNS proxy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use agent_core::environment::{Environment, EnvironmentError};

use crate::resolv::ResolvConf;

/// The address of the proxy if `DNS_PROXY_ADDR` is not set.
const DEFAULT_ADDRESS: &str = "localhost:15053";
/// The file of the machine's resolver.
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The file that replaces it on machines whose `/etc/resolv.conf` names this proxy.
const MACHINE_RESOLV_CONF: &str = "/var/lib/istio/resolv.conf";

/// The settings of the DNS proxy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The addresses to listen on, each for UDP and TCP. An address of a family that the machine does not have is left out.
    pub addresses: Vec<SocketAddr>,
    /// The name servers for other names, and the search domain of the applications.
    pub resolv: ResolvConf,
    /// The namespace of the proxy, whose services are found by their short names.
    pub namespace: String,
    /// The domain of services, like `svc.cluster.local`. Services of other domains have no short names.
    pub domain: String,
    /// Whether all name servers are asked at once (`DNS_FORWARD_PARALLEL`).
    pub parallel: bool,
    /// The time in which a name server must answer (`DNS_FORWARD_TIMEOUT`).
    pub timeout: Duration,
    /// Whether queries are forwarded before the first name table, instead of being refused with SERVFAIL. The control plane's own
    /// name must be resolved if this proxy is the only name server of the machine.
    pub forward_before_names: bool,
}

/// The reason why there are no settings.
#[derive(thiserror::Error, Debug)]
pub enum SettingsError {
    /// A variable is not valid.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// The address is not valid.
    #[error("the environment variable DNS_PROXY_ADDR is {0:?}: give HOST:PORT")]
    Address(String),
    /// The configuration of the resolver cannot be read.
    #[error("cannot read {path}: {error}")]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
}

impl Settings {
    /// The settings of a proxy in a namespace. `domain` is the DNS domain of the proxy, with or without the namespace.
    ///
    /// # Errors
    /// A variable is not valid, or `resolv.conf` cannot be read.
    pub fn from_environment(
        environment: &Environment,
        namespace: &str,
        domain: &str,
    ) -> Result<Settings, SettingsError> {
        let mut address = environment.text_or("DNS_PROXY_ADDR", DEFAULT_ADDRESS);
        let mut file = Path::new(RESOLV_CONF);
        let replaces_resolver = address.ends_with(":53");
        let root = || fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
        let forward_before_names = replaces_resolver && root();
        if forward_before_names && Path::new(MACHINE_RESOLV_CONF).exists() {
            file = Path::new(MACHINE_RESOLV_CONF);
        } else if replaces_resolver && !forward_before_names {
            tracing::error!(
                "the DNS proxy cannot listen on port 53, because it does not run as root; it uses {DEFAULT_ADDRESS}"
            );
            address = DEFAULT_ADDRESS;
        }
        let text = fs::read(file).map_err(|error| SettingsError::File { path: file.to_owned(), error })?;
        let domain = domain.strip_prefix(namespace).and_then(|rest| rest.strip_prefix('.')).unwrap_or(domain);
        Ok(Settings {
            addresses: addresses(address)?,
            resolv: ResolvConf::parse(&String::from_utf8_lossy(&text)),
            namespace: namespace.to_owned(),
            domain: domain.to_owned(),
            parallel: environment.flag("DNS_FORWARD_PARALLEL", false)?,
            timeout: environment.duration("DNS_FORWARD_TIMEOUT", Duration::from_secs(5))?,
            forward_before_names,
        })
    }
}

/// The socket addresses of an address; `localhost` stands for both families, no host for all addresses.
fn addresses(text: &str) -> Result<Vec<SocketAddr>, SettingsError> {
    let invalid = || SettingsError::Address(text.to_owned());
    let (host, port) = text.rsplit_once(':').ok_or_else(invalid)?;
    let both = |v4: Ipv4Addr, v6: Ipv6Addr| {
        let port = port.parse().map_err(|_| invalid())?;
        Ok([IpAddr::V4(v4), IpAddr::V6(v6)].map(|ip| SocketAddr::new(ip, port)).to_vec())
    };
    match host {
        "localhost" => both(Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST),
        "" => both(Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED),
        _ => Ok(text.to_socket_addrs().map_err(|_| invalid())?.take(1).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_stand_for_families() {
        for (text, expected) in [
            ("localhost:15053", &["127.0.0.1:15053", "[::1]:15053"][..]),
            (":53", &["0.0.0.0:53", "[::]:53"]),
            ("127.0.0.2:0", &["127.0.0.2:0"]),
            ("[::1]:5", &["[::1]:5"]),
        ] {
            let found: Vec<_> = addresses(text).unwrap().iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{text}");
        }
        for wrong in ["", "localhost", "localhost:x", "1.2.3.4:70000"] {
            assert!(addresses(wrong).unwrap_err().to_string().contains(&format!("{wrong:?}: give HOST:PORT")));
        }
    }

    #[test]
    fn the_domain_loses_its_namespace() {
        let environment: Environment =
            [("DNS_FORWARD_TIMEOUT", "2s"), ("DNS_FORWARD_PARALLEL", "true")].into_iter().collect();
        for domain in ["shop.svc.cluster.local", "svc.cluster.local"] {
            let settings = Settings::from_environment(&environment, "shop", domain).unwrap();
            assert_eq!(settings.domain, "svc.cluster.local");
            assert_eq!((settings.parallel, settings.timeout), (true, Duration::from_secs(2)));
        }
        let wrong: Environment = [("DNS_FORWARD_PARALLEL", "maybe")].into_iter().collect();
        assert!(matches!(Settings::from_environment(&wrong, "", ""), Err(SettingsError::Environment(_))));
    }
}
