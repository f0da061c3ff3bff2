//! The log, with the flags of Istio's programs.

use std::io;

use clap::{Arg, ArgAction, ArgMatches, Command};
use tracing_subscriber::EnvFilter;

const LEVEL: &str = "log_output_level";
const JSON: &str = "log_as_json";

/// Adds the flags of the log, which every command has.
pub(crate) fn arguments(command: Command) -> Command {
    command
        .arg(
            Arg::new(LEVEL).long(LEVEL).global(true).value_name("LEVELS").default_value("default:info").help(
                "The level of the log (debug, info, warn, error, none), and of its parts: default:info,relay:debug",
            ),
        )
        .arg(Arg::new(JSON).long(JSON).global(true).action(ArgAction::SetTrue).help("Write the log as JSON"))
}

/// Starts the log. It goes to standard error.
pub(crate) fn start(matches: &ArgMatches) {
    let levels = matches.get_one::<String>(LEVEL).map_or("", String::as_str);
    let log = tracing_subscriber::fmt().with_writer(io::stderr).with_env_filter(EnvFilter::new(directives(levels)));
    // Tests start it once for each process.
    let _ = match is_json(matches) {
        true => log.json().flatten_event(true).try_init(),
        false => log.with_ansi(false).try_init(),
    };
}

/// Whether the log is JSON.
pub(crate) fn is_json(matches: &ArgMatches) -> bool {
    matches.get_flag(JSON)
}

/// Istio's levels as directives of the filter. Levels that do not exist are left out.
fn directives(levels: &str) -> String {
    let mut directives = vec!["info".to_owned()];
    for level in levels.split(',') {
        let (part, level) = level.split_once(':').unwrap_or(("default", level));
        let level = match level {
            "none" => "off",
            "fatal" | "error" => "error",
            "debug" | "info" | "warn" | "trace" => level,
            _ => continue,
        };
        match part {
            "default" | "all" => directives[0] = level.to_owned(),
            // A module path, with the underscore that crates have.
            part if part.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)) => {
                directives.push(format!("{}={level}", part.replace('-', "_")));
            }
            _ => {}
        }
    }
    directives.join(",")
}

#[cfg(test)]
mod tests {
    use super::directives;

    #[test]
    fn levels_of_istio_become_directives() {
        for (levels, expected) in [
            ("default:info", "info"),
            ("all:debug", "debug"),
            ("debug", "debug"),
            ("default:warn,relay:debug,dns-proxy:none", "warn,relay=debug,dns_proxy=off"),
            ("default:loud,x y:debug,", "info"),
        ] {
            assert_eq!(directives(levels), expected);
        }
    }
}
