//! `rutter-agent wait` and `rutter-agent request`: queries to a running proxy.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use agent_core::environment::Environment;
use agent_status::commands::{Wait, request, wait};
use anyhow::{Context as _, Result};
use clap::{Arg, ArgMatches, Command, value_parser};

pub(crate) const WAIT: &str = "wait";
pub(crate) const REQUEST: &str = "request";

pub(crate) fn wait_command() -> Command {
    let number = |name: &'static str, default: &'static str| {
        Arg::new(name).long(name).value_name("N").value_parser(value_parser!(u64)).default_value(default)
    };
    Command::new(WAIT)
        .about("Wait until the proxy is ready")
        .after_help("Example:\n  rutter-agent wait --timeoutSeconds 30")
        .arg(number("timeoutSeconds", "60").help("The time in which the proxy must be ready"))
        .arg(number("requestTimeoutMillis", "500").help("The timeout of a request"))
        .arg(number("periodMillis", "500").help("The time between requests"))
        .arg(
            Arg::new("url")
                .long("url")
                .value_name("URL")
                .default_value("http://localhost:15021/healthz/ready")
                .help("The URL that must answer with 200"),
        )
}

pub(crate) async fn execute_wait(matches: &ArgMatches) -> Result<ExitCode> {
    let number = |name: &str| matches.get_one::<u64>(name).copied().unwrap_or_default();
    let settings = Wait {
        url: matches.get_one::<String>("url").cloned().unwrap_or_default(),
        timeout: Duration::from_secs(number("timeoutSeconds")),
        request_timeout: Duration::from_millis(number("requestTimeoutMillis")),
        period: Duration::from_millis(number("periodMillis")),
    };
    tracing::info!(url = settings.url, timeout = ?settings.timeout, "waiting for the proxy to be ready");
    wait(&settings).await?;
    tracing::info!("the proxy is ready");
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn request_command() -> Command {
    Command::new(REQUEST)
        .about("Send an HTTP request to Envoy's admin interface or to the agent, and print the answer")
        .after_help(
            "Examples:\n  rutter-agent request GET stats\n  rutter-agent request --debug-port 15020 POST quitquitquit",
        )
        .arg(
            Arg::new("debug-port")
                .long("debug-port")
                .value_name("PORT")
                .value_parser(value_parser!(u16))
                .default_value("15000")
                .help(
                    "The port: 15000 (Envoy's admin interface), 15004, 15021, 15020 or another status port of the pod",
                ),
        )
        .arg(Arg::new("method").required(true).value_name("METHOD").help("The method, like GET or POST"))
        .arg(Arg::new("path").required(true).value_name("PATH").help("The path, like config_dump"))
        .arg(Arg::new("body").default_value("").hide_default_value(true).value_name("BODY").help("The body"))
}

pub(crate) async fn execute_request(matches: &ArgMatches, environment: &Environment) -> Result<ExitCode> {
    let text = |name: &str| matches.get_one::<String>(name).map_or("", String::as_str);
    let port = matches.get_one::<u16>("debug-port").copied().unwrap_or_default();
    let status_port = agent::status_port(environment);
    let answer = request(port, status_port, text("method"), text("path"), text("body")).await?;
    let mut output = io::stdout().lock();
    output.write_all(&answer).and_then(|()| output.write_all(b"\n")).context("cannot write the answer")?;
    Ok(ExitCode::SUCCESS)
}
