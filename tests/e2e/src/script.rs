//! Scripts of commands with the output that they must give, in one file.
//!
//! ```text
//! # A remark.
//! $ kubectl apply -f -
//! < apiVersion: v1
//! < …
//! configmap/a created
//! [exit 1]
//! ```
//!
//! A line that begins with `$ ` is a command for the shell, `< ` its standard input, and what follows up to an empty line is
//! what it prints (both streams, as they come) and, unless it is 0, its exit status. What differs from run to run (times,
//! UIDs, resource versions, ages) is written as `<time>`, `<uid>`, `<rv>`, `<age>`. `RUTTER_BLESS=1` writes what was printed
//! into the file; the diff is the review.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use regex::Regex;

/// One command and what it must print.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Step {
    remarks: Vec<String>,
    command: String,
    input: String,
    expected: String,
}

/// Where commands run.
#[derive(Clone, Debug)]
pub struct Shell {
    /// The kubeconfig that `kubectl` uses.
    pub kubeconfig: PathBuf,
    /// Programs that commands call by name: name and path.
    pub programs: Vec<(String, PathBuf)>,
}

/// Seconds after which a command is ended: its step then shows exit status 124.
const PATIENCE: &str = "60";
/// What commands may call: `first_lines N COMMAND…` shows the first lines of a command that does not end by itself.
const PRELUDE: &str = r#"
first_lines() {
  wanted=$1; shift
  "$@" > "$HOME/first_lines" 2>&1 & process=$!
  while [ "$(wc -l < "$HOME/first_lines")" -lt "$wanted" ] && kill -0 $process 2> /dev/null; do sleep 0.02; done
  kill $process 2> /dev/null || true
  wait $process 2> /dev/null || true
  cat "$HOME/first_lines"
}
"#;

/// Runs a script; an error is the difference between what was to be printed and what was.
pub fn play(script: &Path, shell: &Shell) -> Result<(), String> {
    let (steps, printed) = perform(script, shell)?;
    if std::env::var_os("RUTTER_BLESS").is_some() {
        let steps: Vec<Step> = (steps.into_iter().zip(&printed))
            .map(|(step, printed)| Step {
                expected: printed.clone(),
                ..step
            })
            .collect();
        return std::fs::write(script, write(&steps)).map_err(|error| format!("{}: {error}", script.display()));
    }
    let mut wrong = String::new();
    for (step, printed) in steps.iter().zip(&printed) {
        if step.expected != *printed {
            let _ = write!(
                wrong,
                "$ {}\n--- expected\n{}--- printed\n{printed}\n",
                step.command, step.expected
            );
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!("{}:\n{wrong}", script.display()))
    }
}

/// The commands of a script whose output is not what stands in the file: command, expected, printed.
pub fn differences(script: &Path, shell: &Shell) -> Result<Vec<(String, String, String)>, String> {
    let (steps, printed) = perform(script, shell)?;
    let pairs = steps.into_iter().zip(printed);
    Ok(pairs
        .filter(|(step, printed)| step.expected != *printed)
        .map(|(step, printed)| (step.command, step.expected, printed))
        .collect())
}

fn perform(script: &Path, shell: &Shell) -> Result<(Vec<Step>, Vec<String>), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", script.display());
    let text = std::fs::read_to_string(script).map_err(|error| failed(&error))?;
    let steps = read(&text).map_err(|error| failed(&error))?;
    let home = tempfile::tempdir().map_err(|error| failed(&error))?;
    for (name, path) in &shell.programs {
        std::os::unix::fs::symlink(path, home.path().join(name)).map_err(|error| failed(&error))?;
    }
    let printed: Result<Vec<String>, String> = steps.iter().map(|step| run(step, shell, home.path())).collect();
    Ok((steps, printed.map_err(|error| failed(&error))?))
}

fn run(step: &Step, shell: &Shell, home: &Path) -> Result<String, String> {
    let path = format!("{}:{}", home.display(), std::env::var("PATH").unwrap_or_default());
    let mut child = Command::new("timeout")
        .args([PATIENCE, "sh", "-c", &format!("{PRELUDE}\nexec 2>&1\n{}", step.command)])
        .env("HOME", home)
        .env("PATH", path)
        .env("KUBECONFIG", &shell.kubeconfig)
        .env("NO_COLOR", "1")
        .current_dir(home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("sh: {error}"))?;
    let mut input = child.stdin.take().ok_or("no standard input")?;
    // A command that does not read its input is no error.
    let _ = input.write_all(step.input.as_bytes());
    drop(input);
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    let mut printed = settled(&String::from_utf8_lossy(&output.stdout));
    if !printed.is_empty() && !printed.ends_with('\n') {
        printed.push('\n');
    }
    if let Some(code) = output.status.code().filter(|code| *code != 0) {
        let _ = writeln!(printed, "[exit {code}]");
    }
    Ok(printed)
}

/// The text without what differs from run to run, and without empty lines, which separate steps.
fn settled(text: &str) -> String {
    static CHANGING: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        [
            (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
            (r#"(resourceVersion"?: )"?\d+"?"#, "$1<rv>"),
            (r"(?m)(\s)(\d+s|\d+m\d*s?|<unknown>|<invalid>)(\s|$)", "$1<age>$3"),
            (
                r"(Created:|CreationTimestamp:|Creation Timestamp:|Renew Time:|Time:)(\s+)\S.*",
                "$1$2<time>",
            ),
            (r"(127\.0\.0\.1|localhost):\d{4,5}", "<address>"),
            (r"/tmp/[A-Za-z]+-\d+", "<temporary>"),
        ]
        .into_iter()
        .filter_map(|(pattern, with)| Some((Regex::new(pattern).ok()?, with)))
        .collect()
    });
    let mut text = text.to_owned();
    for (pattern, with) in CHANGING.iter() {
        text = pattern.replace_all(&text, *with).into_owned();
    }
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    lines.map(|line| format!("{line}\n")).collect()
}

fn read(text: &str) -> Result<Vec<Step>, String> {
    let mut steps: Vec<Step> = Vec::new();
    let mut remarks = Vec::new();
    let mut open = false;
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step {
                remarks: std::mem::take(&mut remarks),
                command: command.to_owned(),
                input: String::new(),
                expected: String::new(),
            });
            open = true;
        } else if line.is_empty() {
            open = false;
        } else if !open && line.starts_with('#') {
            remarks.push(line.to_owned());
        } else {
            let step = steps
                .last_mut()
                .filter(|_| open)
                .ok_or_else(|| format!("no command before `{line}`"))?;
            match line.strip_prefix("< ").or_else(|| (line == "<").then_some("")) {
                Some(input) => {
                    step.input.push_str(input);
                    step.input.push('\n');
                }
                None => {
                    step.expected.push_str(line);
                    step.expected.push('\n');
                }
            }
        }
    }
    Ok(steps)
}

fn write(steps: &[Step]) -> String {
    let mut out = String::new();
    for step in steps {
        for remark in &step.remarks {
            let _ = writeln!(out, "{remark}");
        }
        let _ = writeln!(out, "$ {}", step.command);
        for line in step.input.lines() {
            let _ = writeln!(out, "{}", format!("< {line}").trim_end());
        }
        let _ = writeln!(out, "{}", step.expected);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# First.\n$ cat\n< a\n<\n< b\na\nb\n\n$ exit 3\n[exit 3]\n\n";

    #[test]
    fn a_script_is_read_and_written() {
        let steps = read(TEXT).unwrap();
        assert_eq!(steps.len(), 2);
        assert_eq!(steps[0].input, "a\n\nb\n");
        assert_eq!(write(&steps), TEXT);
    }

    #[test]
    fn what_is_printed_is_compared() {
        let shell = Shell {
            kubeconfig: "/dev/null".into(),
            programs: Vec::new(),
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), TEXT).unwrap();
        assert_eq!(differences(file.path(), &shell).unwrap(), []);
        std::fs::write(file.path(), TEXT.replace("exit 3]", "exit 4]")).unwrap();
        assert_eq!(differences(file.path(), &shell).unwrap().len(), 1);
    }

    #[test]
    fn what_changes_is_taken_out() {
        let text = "a   5s\nuid: 0e6f0bd2-1c2b-4b56-8f1c-5a5b6e8d2a10\nresourceVersion: \"12\"\n2026-01-02T03:04:05Z\n";
        assert_eq!(settled(text), "a   <age>\nuid: <uid>\nresourceVersion: <rv>\n<time>\n");
    }
}
