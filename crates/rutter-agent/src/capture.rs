//! `rutter-agent istio-iptables`: makes, checks or removes the rules that capture the traffic of a pod.

use std::io::{self, Write as _};
use std::process::ExitCode;

use agent_core::environment::Environment;
use anyhow::{Context, Result};
use clap::{Arg, ArgMatches, Command};
use interception::{Config, FLAGS, Flag, Kind};
use interception_exec::{VALIDATION_EXIT_CODE, host, run, validate};

pub(crate) const NAME: &str = "istio-iptables";

/// The groups whose traffic is captured.
const OWNER_GROUPS: &str = "ISTIO_OUTBOUND_OWNER_GROUPS";

pub(crate) fn command() -> Command {
    Command::new(NAME)
        .about("Make the rules that send the traffic of a pod through its proxy")
        .long_about(
            "Make the rules of iptables or nftables that send the traffic of a pod through its proxy.\n\n\
             Run it as root in the network namespace of the pod, or name the namespace. To run it again changes nothing. \
             With --dry-run, it prints the commands and runs none of them.",
        )
        .after_help(
            "Examples:\n  rutter-agent istio-iptables -p 15001 -z 15006 -u 1337 -m REDIRECT -i '*' -b '*' -d 15090,15021,15020\n  \
             rutter-agent istio-iptables --dry-run --native-nftables\n  rutter-agent istio-iptables --cleanup-only",
        )
        .args(FLAGS.iter().filter_map(argument))
}

/// The argument of a flag; none for a setting that has a variable only.
fn argument(flag: &'static Flag) -> Option<Arg> {
    let name = flag.name?;
    let help = match flag.environment {
        Some(variable) => format!("{} [env: {variable}]", flag.help),
        None => flag.help.to_owned(),
    };
    let argument = Arg::new(name).long(name).help(help).allow_hyphen_values(true);
    let argument = match flag.short {
        Some(short) => argument.short(short),
        None => argument,
    };
    Some(match flag.kind {
        Kind::Switch => argument.num_args(0..=1).require_equals(true).default_missing_value("true").value_name("BOOL"),
        Kind::Text if flag.default.is_empty() => argument.value_name("VALUE"),
        // The default is shown, not set: a variable wins over it.
        Kind::Text => argument.value_name(flag.default),
    })
}

pub(crate) async fn execute(matches: &ArgMatches, environment: &Environment) -> Result<ExitCode> {
    let config = settings(matches, environment)?;
    let host = host(&config, environment.text("ENVOY_USER"))?;
    let mut output = Vec::new();
    let plan = run(&config, &host, &mut output)?;
    io::stdout().write_all(&output).context("cannot write the commands")?;
    if !config.run_validation || config.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    match validate(&config, &plan).await {
        Ok(()) => {
            tracing::info!("connections are redirected to the proxy");
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            tracing::error!("{error}");
            Ok(ExitCode::from(VALIDATION_EXIT_CODE))
        }
    }
}

/// The environment first, then the flags.
fn settings(matches: &ArgMatches, environment: &Environment) -> Result<Config> {
    // An empty list of groups is not the same as none: it captures nothing.
    let variable = |name: &str| environment.raw(name).filter(|value| !value.is_empty() || name == OWNER_GROUPS);
    let mut config = Config::from_environment(|name| variable(name).map(str::to_owned))?;
    for name in FLAGS.iter().filter_map(|flag| flag.name) {
        if let Some(value) = matches.get_one::<String>(name) {
            config.set(name, value)?;
        }
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Config> {
        let matches = command().try_get_matches_from([&[NAME], arguments].concat())?;
        settings(&matches, &variables.iter().copied().collect())
    }

    #[test]
    fn the_command_is_valid() {
        command().debug_assert();
    }

    #[test]
    fn flags_win_over_the_environment_which_wins_over_defaults() {
        let config = parsed(&["-p", "15011", "--dry-run"], &[("INBOUND_CAPTURE_PORT", "15016")]).unwrap();
        assert_eq!((config.proxy_port, config.inbound_capture_port, config.inbound_tunnel_port), (15011, 15016, 15008));
        assert!(config.dry_run && !config.dual_stack);
        let config = parsed(&["-z", "15026", "--dry-run=false"], &[("INBOUND_CAPTURE_PORT", "15016")]).unwrap();
        assert_eq!((config.inbound_capture_port, config.dry_run), (15026, false));
    }

    #[test]
    fn errors_name_the_flag() {
        let error = parsed(&["-p", "x"], &[]).unwrap_err().to_string();
        assert!(error.starts_with("--envoy-port: "), "{error}");
    }
}
