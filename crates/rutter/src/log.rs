//! The log: structured lines on standard error.

use std::io;

use anyhow::{Context, Result};
use runtime::LogLevels;
use settings::{LogFormat, Settings};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt, reload};

/// Starts logging as the settings say. Called once. Returns the levels, which may be changed later.
pub(crate) fn start(settings: &Settings) -> Result<LogLevels> {
    let directives = settings.log_level.directives();
    let (filtered, handle) = reload::Layer::new(filter(directives)?);
    let subscriber = tracing_subscriber::registry().with(filtered);
    let lines = fmt::layer().with_writer(io::stderr);
    match settings.log_format {
        LogFormat::Text => subscriber.with(lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr()))).try_init(),
        LogFormat::Json => subscriber.with(lines.json().flatten_event(true)).try_init(),
    }
    .context("logging was started twice")?;
    let apply = move |directives: &str| {
        let filter = filter(directives).map_err(|error| error.to_string())?;
        handle.reload(filter).map_err(|error| error.to_string())
    };
    Ok(LogLevels::new(directives, Box::new(apply)))
}

fn filter(directives: &str) -> Result<EnvFilter> {
    let quiet = match directives.contains("kube_runtime") {
        true => "",
        // It says at each attempt what we say once.
        false => ",kube_runtime=error",
    };
    Ok(EnvFilter::try_new(format!("{directives}{quiet}"))?)
}
