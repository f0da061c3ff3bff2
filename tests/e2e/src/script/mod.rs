//! Scripts of commands with their expected outputs, in one file.
//!
//! ```text
//! # A conflict.
//! $ kubectl apply -f -
//! < apiVersion: v1
//! < …
//! configmap/a created
//! [exit 1]
//! @ rutter: Why Rutter answers something else.
//! configmap/a made
//! @ kubectl<1.34: Why an older kubectl prints something else.
//! configmap a created
//! ```
//!
//! A line that begins with `$ ` is a shell command, lines with `< ` are its standard input. The lines up to the next
//! empty line are its output (both streams) and, if it is not 0, its exit status. This is the output of a real API
//! server with `kubectl` 1.36. If Rutter or an older `kubectl` prints something else, that output follows after a line
//! with `@ ` and the reason; the last one that applies is expected. `docs/reference/api.md` explains each reason.
//!
//! Parts that differ from run to run (times, UIDs, resource versions, ages) are written as `<time>`, `<uid>`, `<rv>`,
//! `<age>`. `RUTTER_BLESS=1` writes the actual output into the file; review the diff.
//!
//! Commands can call some shell functions:
//! - `watching COMMAND…` starts a command that does not end by itself; `lines N` waits for and prints N lines of it;
//!   `unwatch` ends it. Nothing is waited for but those lines.
//! - `editor SCRIPT` makes an `EDITOR` of a script of `sed`, for `kubectl edit`.

mod settle;
mod text;

use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use settle::settled;
use text::{Step, UNEXPLAINED, read, write};

/// Whose API commands talk to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Server {
    /// A real `kube-apiserver`.
    Kubernetes,
    /// Rutter.
    Rutter,
}

/// The conditions that select the expected output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Against {
    /// Whose API commands talk to.
    pub server: Server,
    /// The minor version of `kubectl`.
    pub kubectl: u32,
}

impl Against {
    /// The variant whose outputs have no condition.
    pub const RULE: Against = Against { server: Server::Kubernetes, kubectl: 36 };
}

/// Where commands run.
#[derive(Clone, Debug)]
pub struct Shell {
    /// The kubeconfig that `kubectl` uses; commands see a copy, which they may change.
    pub kubeconfig: PathBuf,
    /// Programs that commands call by name: name and path.
    pub programs: Vec<(String, PathBuf)>,
    /// Which of several outputs is expected.
    pub against: Against,
}

/// Seconds after which a command is ended: its step then shows exit status 124.
const PATIENCE: &str = "20";
/// Shell functions that commands may call.
const PRELUDE: &str = r#"
watching() {
  rm -f "$HOME/watched"
  mkfifo "$HOME/watched"
  "$@" > "$HOME/watched" 2>&1 & watcher=$!
  exec 3< "$HOME/watched"
}
lines() {
  for _ in $(seq "$1"); do IFS= read -r line <&3 && printf '%s\n' "$line"; done
}
unwatch() {
  kill "$watcher" 2> /dev/null || true
  wait "$watcher" 2> /dev/null || true
  exec 3<&-
}
editor() {
  printf '#!/bin/sh\nsed -i "%s" "$1"\n' "$1" > "$HOME/editor"
  chmod +x "$HOME/editor"
  export EDITOR="$HOME/editor"
}
exec 2>&1
"#;

/// Runs a script; an error is the difference between what was to be printed and what was, or an output without a reason.
pub fn play(script: &Path, shell: &Shell) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", script.display());
    let text = std::fs::read_to_string(script).map_err(|error| failed(&error))?;
    let mut steps = read(&text).map_err(|error| failed(&error))?;
    let printed = perform(&steps, shell).map_err(|error| failed(&error))?;
    if std::env::var_os("RUTTER_BLESS").is_some() {
        for (step, printed) in steps.iter_mut().zip(&printed) {
            step.record(shell.against, printed);
        }
        return std::fs::write(script, write(&steps)).map_err(|error| failed(&error));
    }
    let mut wrong = String::new();
    for (step, printed) in steps.iter().zip(&printed) {
        let expected = step.expected(shell.against);
        let command = &step.command;
        if expected.text != *printed {
            let _ = writeln!(wrong, "$ {command}\n--- expected\n{}--- printed\n{printed}", expected.text);
        } else if expected.reason == UNEXPLAINED {
            let _ = writeln!(wrong, "$ {command}\n--- nobody has explained this output\n{printed}");
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(failed(&format!("\n{wrong}"))) }
}

/// The reasons that a script gives for outputs which are not the rule.
///
/// # Errors
/// The file cannot be read, or is no script.
pub fn reasons(script: &Path) -> Result<Vec<String>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", script.display());
    let text = std::fs::read_to_string(script).map_err(|error| failed(&error))?;
    let steps = read(&text).map_err(|error| failed(&error))?;
    let outputs = steps.into_iter().flat_map(|step| step.outputs.into_iter().skip(1));
    Ok(outputs.map(|output| output.reason).collect())
}

/// Runs all commands in a directory of their own, which is also their home.
fn perform(steps: &[Step], shell: &Shell) -> Result<Vec<String>, String> {
    let failed = |error: std::io::Error| error.to_string();
    let home = tempfile::tempdir().map_err(failed)?;
    for (name, path) in &shell.programs {
        std::os::unix::fs::symlink(path, home.path().join(name)).map_err(failed)?;
    }
    let kubeconfig = std::fs::read(&shell.kubeconfig).map_err(failed)?;
    std::fs::write(home.path().join("kubeconfig"), kubeconfig).map_err(failed)?;
    steps.iter().map(|step| run(step, home.path())).collect()
}

fn run(step: &Step, home: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| error.to_string();
    let path = format!("{}:{}", home.display(), std::env::var("PATH").unwrap_or_default());
    let (printed, input) = (home.join(".printed"), home.join(".input"));
    std::fs::write(&input, &step.input).map_err(failed)?;
    // Files instead of pipes, because a background process would keep a pipe open.
    let mut child = Command::new("timeout")
        .args([PATIENCE, "sh", "-c", &format!("{PRELUDE}\n{}", step.command)])
        .env("HOME", home)
        .env("PATH", path)
        .env("KUBECONFIG", home.join("kubeconfig"))
        .env("NO_COLOR", "1")
        .current_dir(home)
        .stdin(File::open(&input).map_err(failed)?)
        .stdout(File::create(&printed).map_err(failed)?)
        .spawn()
        .map_err(|error| format!("timeout: {error}"))?;
    let status = child.wait().map_err(failed)?;
    // `timeout` leads a process group, in which other processes may remain.
    let group = format!("-{}", child.id());
    let mut end = Command::new("kill");
    end.args(["-s", "KILL", "--", &group]).stderr(Stdio::null());
    end.status().map_err(failed)?;
    let mut printed = settled(&String::from_utf8_lossy(&std::fs::read(printed).map_err(failed)?));
    if let Some(code) = status.code().filter(|code| *code != 0) {
        let _ = writeln!(printed, "[exit {code}]");
    }
    Ok(printed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "$ cat\n< a\na\n\n$ exit 3\n[exit 3]\n\n$ watching yes; lines 2; unwatch\ny\ny\n";

    fn shell() -> Shell {
        Shell { kubeconfig: "/dev/null".into(), programs: Vec::new(), against: Against::RULE }
    }

    #[test]
    fn outputs_are_compared() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), TEXT).unwrap();
        assert_eq!(play(file.path(), &shell()), Ok(()));
        std::fs::write(file.path(), TEXT.replace("exit 3]", "exit 4]")).unwrap();
        assert!(play(file.path(), &shell()).unwrap_err().contains("--- printed\n[exit 3]"));
    }

    #[test]
    fn unexplained_outputs_fail() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "$ echo a\nb\n@ rutter: unexplained\na\n").unwrap();
        let rutter = Against { server: Server::Rutter, ..Against::RULE };
        let shell = Shell { against: rutter, ..shell() };
        assert!(play(file.path(), &shell).unwrap_err().contains("nobody has explained"));
        assert_eq!(reasons(file.path()), Ok(vec!["unexplained".to_owned()]));
    }
}
