//! The log: structured lines on standard error.

use std::io;

use anyhow::{Context, Result};
use settings::{LogFormat, Settings};
use tracing_subscriber::EnvFilter;

/// Starts logging as the settings say. Called once.
pub(crate) fn start(settings: &Settings) -> Result<()> {
    let directives = settings.log_level.directives();
    let quiet = match directives.contains("kube_runtime") {
        true => String::new(),
        // It says at each attempt what we say once.
        false => ",kube_runtime=error".to_owned(),
    };
    let filter = EnvFilter::try_new(format!("{directives}{quiet}"))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match settings.log_format {
        LogFormat::Text => lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    }
    .map_err(anyhow::Error::from_boxed)
    .context("logging was started twice")
}
