//! `rutter-agent proxy`: runs beside a proxy.

use std::process::ExitCode;

use agent::Arguments;
use agent_core::environment::Environment;
use anyhow::{Context as _, Result};
use clap::{Arg, ArgMatches, Command, value_parser};
use names::NodeType;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

pub(crate) const NAME: &str = "proxy";
/// The types of proxies that an agent runs beside.
const TYPES: [(&str, NodeType); 3] =
    [("sidecar", NodeType::Sidecar), ("router", NodeType::Router), ("waypoint", NodeType::Waypoint)];

pub(crate) fn command() -> Command {
    Command::new(NAME)
        .about("Run beside a proxy: start Envoy, and give it certificates and configuration")
        .long_about(
            "Run beside a proxy: start Envoy with a bootstrap, relay its configuration from the control plane, get and renew its \
             certificate, and answer probes at the status port. The settings are those of ProxyConfig and of Istio's environment \
             variables. Flags that do not exist are ignored, as Istio's agent does.",
        )
        .after_help("Example:\n  rutter-agent proxy sidecar --domain shop.svc.cluster.local --proxyLogLevel=warning")
        .arg(Arg::new("type").value_parser(TYPES.map(|(name, _)| name)).default_value("sidecar").help("The type of the proxy"))
        .args([
            text("domain", "").help("The DNS domain of the proxy, by default NAMESPACE.svc.cluster.local"),
            text("meshConfig", "./etc/istio/config/mesh").help("The file of the mesh configuration; it may be absent"),
            text("proxyLogLevel", "warning").help("The levels of Envoy's log, like info,misc:error"),
            text("proxyComponentLogLevel", "").help("The levels of components of Envoy; use proxyLogLevel instead"),
            text("concurrency", "0")
                .value_parser(value_parser!(i32))
                .help("The number of worker threads of Envoy; 0 takes it from ProxyConfig or the CPU limit"),
            text("templateFile", "").help("A Go template of the bootstrap"),
            text("outlierLogPath", "").help("The file of Envoy's log of ejected endpoints"),
            text("stsPort", "0").value_parser(value_parser!(u16)).help("Has no effect: there is no token service"),
            text("serviceCluster", "").hide(true),
            text("tokenManagerPlugin", "").hide(true),
            text("profiling", "").num_args(0..=1).require_equals(true).default_missing_value("true").hide(true),
        ])
}

fn text(name: &'static str, default: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("VALUE").default_value(default).hide_default_value(default.is_empty())
}

pub(crate) async fn execute(matches: &ArgMatches, environment: Environment, log_as_json: bool) -> Result<ExitCode> {
    let arguments = arguments(matches, log_as_json);
    if arguments.sts_port != 0 {
        tracing::warn!("--stsPort has no effect: this agent has no token service");
    }
    let (stop, stopping) = watch::channel(false);
    let mut terminated = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupted = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminated.recv() => tracing::info!("SIGTERM was received"),
                _ = interrupted.recv() => tracing::info!("SIGINT was received"),
            }
            stop.send_replace(true);
        }
    });
    Ok(ExitCode::from(agent::run(arguments, environment, stopping).await?))
}

fn arguments(matches: &ArgMatches, log_as_json: bool) -> Arguments {
    let text = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    let kind = TYPES.into_iter().find(|(name, _)| *name == text("type")).map_or(NodeType::Sidecar, |(_, kind)| kind);
    Arguments {
        kind,
        domain: text("domain"),
        mesh_config: text("meshConfig").into(),
        log_level: text("proxyLogLevel"),
        component_log_level: text("proxyComponentLogLevel"),
        concurrency: matches.get_one("concurrency").copied().unwrap_or_default(),
        template_file: text("templateFile"),
        outlier_log_path: text("outlierLogPath"),
        sts_port: matches.get_one("stsPort").copied().unwrap_or_default(),
        log_as_json,
    }
}

/// Leaves out the flags of `proxy` that do not exist, with their values, so that pods of other versions start. A value follows the
/// flag after `=`, or as the next argument, unless that is a flag.
pub(crate) fn known(command: &Command, arguments: Vec<String>) -> Vec<String> {
    if arguments.get(1).map(String::as_str) != Some(NAME) {
        return arguments;
    }
    let proxy = command.find_subcommand(NAME);
    let flags = proxy.into_iter().chain([command]).flat_map(Command::get_arguments).filter_map(Arg::get_long);
    let flags: Vec<&str> = flags.chain(["help", "version"]).collect();
    let mut known = Vec::new();
    let mut rest = arguments.into_iter().peekable();
    while let Some(argument) = rest.next() {
        let flag = argument.strip_prefix("--").map(|flag| flag.split('=').next().unwrap_or(flag));
        match flag {
            Some(flag) if !flags.contains(&flag) => {
                if !argument.contains('=') {
                    rest.next_if(|value| !value.starts_with('-') && !TYPES.iter().any(|(name, _)| value == name));
                }
            }
            _ => known.push(argument),
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_valid() {
        command().debug_assert();
    }

    #[test]
    fn flags_that_do_not_exist_are_left_out() {
        let whole = Command::new("rutter-agent").subcommand(command()).arg(Arg::new("log").long("log").global(true));
        let given = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (arguments, expected) in [
            ("agent proxy sidecar --domain a.svc --new x --log y", "agent proxy sidecar --domain a.svc --log y"),
            ("agent proxy --old=1 router --concurrency 2", "agent proxy router --concurrency 2"),
            ("agent proxy --flag sidecar", "agent proxy sidecar"),
            ("agent wait --unknown", "agent wait --unknown"),
        ] {
            assert_eq!(known(&whole, given(arguments)), given(expected));
        }
    }

    #[test]
    fn the_injected_arguments_are_understood() {
        let matches = command().get_matches_from([
            NAME,
            "sidecar",
            "--domain",
            "shop.svc.cluster.local",
            "--proxyLogLevel=warning",
            "--proxyComponentLogLevel=misc:error",
            "--concurrency",
            "2",
            "--profiling",
        ]);
        let arguments = arguments(&matches, true);
        assert_eq!((arguments.kind, arguments.domain.as_str()), (NodeType::Sidecar, "shop.svc.cluster.local"));
        assert_eq!((arguments.concurrency, arguments.component_log_level.as_str()), (2, "misc:error"));
        assert!(arguments.log_as_json);
    }
}
