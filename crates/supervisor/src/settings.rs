//! The settings of the supervisor.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use agent_core::environment::{Environment, EnvironmentError};

use crate::admin::Admin;

/// The user and group of the proxy, for an agent that runs as root without capture of traffic.
const PROXY_USER: u32 = 1337;

/// The facts of the proxy that the supervisor needs, most of them from the ProxyConfig.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proxy {
    /// `binaryPath`.
    pub binary: PathBuf,
    /// `drainDuration`.
    pub drain: Duration,
    /// `terminationDrainDuration`.
    pub termination_drain: Duration,
    /// `concurrency`; 0 for all processors.
    pub concurrency: u32,
    /// `proxyAdminPort`.
    pub admin_port: u16,
    /// `fileFlushInterval`; one second if there is none.
    pub file_flush_interval: Option<Duration>,
    /// `fileFlushMinSizeKb`; 0 for Envoy's default.
    pub file_flush_min_size_kb: u32,
    /// Whether the proxy is a sidecar, of which only inbound listeners are drained.
    pub is_sidecar: bool,
    /// Whether all addresses of the proxy are of IPv6.
    pub is_ipv6: bool,
    /// `--proxyLogLevel`, such as `info,misc:error`.
    pub log_level: String,
    /// `--proxyComponentLogLevel`.
    pub component_log_level: String,
    /// Whether the agent runs as root.
    pub is_root: bool,
}

/// The delay of restarts after crashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    /// The first delay; it doubles with each crash.
    pub first: Duration,
    /// The longest delay.
    pub longest: Duration,
    /// The time after which a running Envoy counts as healthy.
    pub reset: Duration,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(30), reset: Duration::from_secs(60) }
    }
}

/// The settings of the supervisor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The facts of the proxy.
    pub proxy: Proxy,
    /// `DISABLE_ENVOY`: there is no Envoy.
    pub disabled: bool,
    /// Envoy's admin interface.
    pub admin: Admin,
    /// `MINIMUM_DRAIN_DURATION`: the time before connections are counted.
    pub minimum_drain: Duration,
    /// `EXIT_ON_ZERO_ACTIVE_CONNECTIONS`: Envoy ends when there are no more connections, not after a fixed time.
    pub exit_on_zero: bool,
    /// The ports of Envoy whose connections are not counted.
    pub own_ports: Vec<u16>,
    /// `ENVOY_SKIP_DEPRECATED_LOGS`.
    pub skip_deprecated_logs: bool,
    /// `ISTIO_ENVOY_ENABLE_CORE_DUMP`.
    pub core_dump: bool,
    /// `ENVOY_HOT_RESTART`: whether a new configuration takes effect with a hot restart.
    pub hot_restart: bool,
    /// The user and group of Envoy, if they differ from those of the agent.
    pub user: Option<u32>,
    /// `COMPLIANCE_POLICY`: whether Envoy's Google gRPC client may use compliant ciphers only.
    pub compliant_ciphers: bool,
    /// The delay of restarts after crashes.
    pub backoff: Backoff,
    /// The interval of counting connections.
    pub count_interval: Duration,
}

impl Settings {
    /// Reads the variables of the supervisor.
    ///
    /// # Errors
    /// A variable has a value that cannot be used.
    pub fn from_environment(environment: &Environment, proxy: Proxy) -> Result<Settings, EnvironmentError> {
        let ip: IpAddr = if proxy.is_ipv6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
        let ports = [
            ("ENVOY_STATUS_PORT", 15021),
            ("ENVOY_PROMETHEUS_PORT", 15090),
            ("ENVOY_SECURE_METRICS_PORT", 0),
            ("ENVOY_SECURE_MERGED_METRICS_PORT", 0),
        ];
        let own_ports: Result<Vec<u16>, _> = ports.iter().map(|(name, port)| environment.parsed(name, *port)).collect();
        // Without capture of DNS by iptables, an agent that answers at port 53 runs as root; Envoy must not.
        let answers_dns = environment.text("DNS_PROXY_ADDR").is_some_and(|address| address.ends_with(":53"));
        Ok(Settings {
            disabled: environment.flag("DISABLE_ENVOY", false)?,
            admin: Admin::Tcp(SocketAddr::new(ip, proxy.admin_port)),
            minimum_drain: environment.duration("MINIMUM_DRAIN_DURATION", Duration::from_secs(5))?,
            exit_on_zero: environment.flag("EXIT_ON_ZERO_ACTIVE_CONNECTIONS", false)?,
            own_ports: own_ports?.into_iter().filter(|port| *port != 0).collect(),
            skip_deprecated_logs: environment.flag("ENVOY_SKIP_DEPRECATED_LOGS", true)?,
            core_dump: environment.flag("ISTIO_ENVOY_ENABLE_CORE_DUMP", false)?,
            hot_restart: environment.flag("ENVOY_HOT_RESTART", true)?,
            user: (proxy.is_root && answers_dns).then_some(PROXY_USER),
            compliant_ciphers: environment
                .text("COMPLIANCE_POLICY")
                .is_some_and(|policy| policy.starts_with("fips-140-")),
            backoff: Backoff::default(),
            count_interval: Duration::from_secs(1),
            proxy,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Restart, arguments};
    use crate::exchange::Configuration;

    fn proxy() -> Proxy {
        Proxy {
            binary: "envoy".into(),
            drain: Duration::from_secs(45),
            termination_drain: Duration::from_secs(5),
            concurrency: 2,
            admin_port: 15000,
            file_flush_interval: None,
            file_flush_min_size_kb: 0,
            is_sidecar: true,
            is_ipv6: false,
            log_level: "info,misc:error,rbac:debug,a:b:c".to_owned(),
            component_log_level: "unused:debug".to_owned(),
            is_root: true,
        }
    }

    fn shown(environment: &[(&str, &str)], proxy: Proxy, overlay: Option<&str>, restart: Restart) -> String {
        let environment: Environment = environment.iter().copied().collect();
        let settings = Settings::from_environment(&environment, proxy).unwrap();
        let configuration = Configuration { path: "e.json".into(), text: None, overlay: overlay.map(Into::into) };
        arguments(&settings, &configuration, restart).join(" ")
    }

    #[test]
    fn arguments_are_those_of_istio() {
        assert_eq!(
            shown(&[], proxy(), None, Restart::Disabled),
            "-c e.json --drain-time-s 45 --drain-strategy immediate --local-address-ip-version v4 --file-flush-interval-msec 1000 \
             -l info --component-log-level misc:error,rbac:debug --concurrency 2 --allow-unknown-static-fields \
             --disable-hot-restart --skip-deprecated-logs"
        );
        let other = Proxy {
            is_ipv6: true,
            concurrency: 0,
            log_level: "debug".to_owned(),
            file_flush_interval: Some(Duration::from_millis(2500)),
            file_flush_min_size_kb: 8,
            ..proxy()
        };
        let environment = [("ENVOY_SKIP_DEPRECATED_LOGS", "false"), ("ISTIO_ENVOY_ENABLE_CORE_DUMP", "true")];
        assert_eq!(
            shown(&environment, other, Some("{}"), Restart::Epoch(2)),
            "-c e.json --drain-time-s 45 --drain-strategy immediate --local-address-ip-version v6 --file-flush-interval-msec 2500 \
             --file-flush-min-size-kb 8 -l debug --component-log-level unused:debug --config-yaml {} --parent-shutdown-time-s 46 \
             --base-id 15000 --restart-epoch 2 --allow-unknown-static-fields --enable-core-dump"
        );
    }

    #[test]
    fn variables_are_read_or_refused_with_their_name() {
        let environment: Environment = [
            ("DNS_PROXY_ADDR", "127.0.0.1:53"),
            ("EXIT_ON_ZERO_ACTIVE_CONNECTIONS", "true"),
            ("MINIMUM_DRAIN_DURATION", "1s"),
            ("ENVOY_SECURE_METRICS_PORT", "16091"),
        ]
        .into_iter()
        .collect();
        let settings = Settings::from_environment(&environment, proxy()).unwrap();
        assert_eq!((settings.user, settings.exit_on_zero, settings.minimum_drain.as_secs()), (Some(1337), true, 1));
        assert_eq!(settings.own_ports, [15021, 15090, 16091]);
        let wrong: Environment = [("MINIMUM_DRAIN_DURATION", "soon")].into_iter().collect();
        assert_eq!(Settings::from_environment(&wrong, proxy()).unwrap_err().name, "MINIMUM_DRAIN_DURATION");
    }
}
