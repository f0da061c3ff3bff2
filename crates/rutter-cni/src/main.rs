//! The CNI plugin, if the program is called by the name `istio-cni`, and otherwise its node agent.

use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Arg, Command};
use cni::Settings;
use cni::settings::SETTINGS;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The name by which the container runtime calls the plugin.
const PLUGIN: &str = "istio-cni";
/// The largest input of the plugin. It is checked again when it is parsed.
const MAX_INPUT: u64 = 1 << 21;

fn command() -> Command {
    let argument = |setting: &'static cni::settings::Setting| {
        Arg::new(setting.name)
            .long(setting.name)
            .num_args(0..=1)
            .require_equals(false)
            .default_missing_value("true")
            .value_name("VALUE")
            .help(format!("{} [env: {}] [default: {}]", setting.help, setting.variable(), setting.default))
    };
    Command::new("rutter-cni")
        .about("Install the CNI plugin on this node, keep it installed, and repair pods that started before it")
        .long_about(
            "Install the CNI plugin on this node, keep it installed, and repair pods that started before it. Under the name istio-cni, \
             the program is the plugin itself, which the container runtime calls. Flags and variables are those of Istio's install-cni.",
        )
        .version(env!("CARGO_PKG_VERSION"))
        .args(SETTINGS.iter().map(argument))
}

fn main() -> ExitCode {
    // The plugin's standard output is its result.
    let _ = tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(false).try_init();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let name = std::env::args_os().next().unwrap_or_default();
    let is_plugin = Path::new(&name).file_name().is_some_and(|name| name == PLUGIN);
    let result = if is_plugin { plugin() } else { node() };
    result.unwrap_or_else(|error| {
        tracing::error!("{error:#}");
        ExitCode::FAILURE
    })
}

fn plugin() -> Result<ExitCode> {
    let mut input = Vec::new();
    io::stdin().take(MAX_INPUT).read_to_end(&mut input).context("cannot read the configuration of the network")?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let exit = runtime.block_on(cni::plugin::run(&input, |name| std::env::var(name).ok()));
    io::stdout().write_all(exit.output.as_bytes()).context("cannot write the result")?;
    Ok(ExitCode::from(exit.code))
}

fn node() -> Result<ExitCode> {
    let matches = command().get_matches();
    let settings = Settings::read(|setting| {
        let flag = matches.get_one::<String>(setting.name).cloned();
        flag.or_else(|| std::env::var(setting.variable()).ok())
    })?;
    Builder::new_multi_thread().worker_threads(1).enable_all().build()?.block_on(async {
        let (stop, stopping) = watch::channel(false);
        let mut terminated = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
        let mut interrupted = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
        tokio::spawn(async move {
            tokio::select! {
                _ = terminated.recv() => {}
                _ = interrupted.recv() => {}
            }
            stop.send_replace(true);
        });
        cni::node::run(settings, stopping).await?;
        Ok(ExitCode::SUCCESS)
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_is_valid() {
        super::command().debug_assert();
    }
}
