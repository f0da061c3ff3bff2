//! Processes, in the network namespace of the settings.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::thread;

use interception::Config;

use crate::ExecError;

/// The most bytes of a program's output that are read.
const MAX_OUTPUT: u64 = 64 << 20;
/// The most characters of a program's error output that an error shows.
const MAX_MESSAGE: usize = 1000;
/// Hides the configuration of name services: the programs look up users, and a host may ask for them over the network, which
/// the namespace of a pod does not have yet.
const HIDE_NAMES: &str = r#"mount --bind /dev/null /etc/nsswitch.conf 2>/dev/null; exec "$0" "$@""#;

/// Starts programs.
pub(crate) struct Runner<'a> {
    config: &'a Config,
    /// Whether a mount namespace can be made, to hide files of the host.
    mounts: bool,
}

impl<'a> Runner<'a> {
    pub(crate) fn new(config: &'a Config) -> Runner<'a> {
        let mounts = config.cni_mode && {
            let probe = Command::new("unshare").args(["--mount", "true"]).stderr(Stdio::null()).status();
            probe.is_ok_and(|status| status.success())
        };
        Runner { config, mounts }
    }

    /// Runs a program and returns its output.
    pub(crate) fn run(&self, program: &str, arguments: &[String], input: &str) -> Result<String, ExecError> {
        let mut words = Vec::new();
        if !self.config.network_namespace.is_empty() {
            words.extend(["nsenter".to_owned(), format!("--net={}", self.config.network_namespace), "--".to_owned()]);
        }
        if self.mounts {
            words.extend(["unshare", "--mount", "sh", "-c", HIDE_NAMES].map(str::to_owned));
        }
        words.push(program.to_owned());
        words.extend_from_slice(arguments);
        let line = format!("{program} {}", arguments.join(" "));
        tracing::debug!(command = %words.join(" "), "running");
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if self.config.cni_mode {
            // The lock of the host is of no use in another namespace. Only legacy iptables has one.
            command.env("XTABLES_LOCKFILE", &self.config.network_namespace);
        }
        let start = |reason| ExecError::Start { program: words[0].clone(), reason };
        let mut child = command.spawn().map_err(start)?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (output, message) = thread::scope(|scope| {
            // A program that fails may not read its input.
            scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
            let message = scope.spawn(move || read(stderr));
            (read(stdout), message.join().unwrap_or_default())
        });
        let status = child.wait().map_err(start)?;
        if status.success() {
            return Ok(output);
        }
        let message = message.trim().chars().take(MAX_MESSAGE).collect();
        Err(ExecError::Failed { program: line.trim_end().to_owned(), status: status.to_string(), message })
    }
}

fn read(stream: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // What was read until an error is the output.
        let _ = stream.take(MAX_OUTPUT).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
