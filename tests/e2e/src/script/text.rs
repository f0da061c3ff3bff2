//! The text of a script: steps with their expected outputs.

use std::fmt::Write as _;

use super::{Against, Server};

/// The reason of a recorded output that has not been explained yet.
pub(super) const UNEXPLAINED: &str = "unexplained";

/// A command with its expected output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Step {
    pub(super) conflicts: Vec<String>,
    pub(super) command: String,
    pub(super) input: String,
    /// The output, followed by outputs for other conditions, each with its reason.
    pub(super) outputs: Vec<Output>,
}

/// An output and its condition.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Output {
    /// Only by this server.
    server: Option<Server>,
    /// Only with a `kubectl` that is older than this minor version.
    before: Option<u32>,
    pub(super) reason: String,
    pub(super) text: String,
}

impl Output {
    fn holds(&self, against: Against) -> bool {
        self.server.is_none_or(|server| server == against.server)
            && self.before.is_none_or(|before| against.kubectl < before)
    }

    fn is_the_rule(&self) -> bool {
        self.server.is_none() && self.before.is_none()
    }

    /// Reads `rutter kubectl<1.34: reason`.
    fn read(line: &str) -> Result<Output, String> {
        let (condition, reason) = line.split_once(": ").ok_or_else(|| format!("no reason in `@ {line}`"))?;
        let mut output = Output { reason: reason.to_owned(), ..Output::default() };
        for word in condition.split(' ') {
            match word.strip_prefix("kubectl<1.").map(str::parse) {
                Some(Ok(minor)) => output.before = Some(minor),
                None if word == "rutter" => output.server = Some(Server::Rutter),
                _ => return Err(format!("`{word}` is no condition")),
            }
        }
        Ok(output)
    }

    fn write(&self, out: &mut String) {
        if !self.is_the_rule() {
            let server = self.server.map(|_| "rutter".to_owned());
            let before = self.before.map(|minor| format!("kubectl<1.{minor}"));
            let words: Vec<String> = server.into_iter().chain(before).collect();
            let _ = writeln!(out, "@ {}: {}", words.join(" "), self.reason);
        }
        out.push_str(&self.text);
    }
}

impl Step {
    fn new(command: &str, conflicts: Vec<String>) -> Step {
        Step { conflicts, command: command.to_owned(), input: String::new(), outputs: vec![Output::default()] }
    }

    /// The expected output: the last one whose condition holds.
    pub(super) fn expected(&self, against: Against) -> &Output {
        let holding = self.outputs.iter().rev().find(|output| output.holds(against));
        holding.unwrap_or(&self.outputs[0])
    }

    /// Records the actual output. The output of a real server with the newest `kubectl` is the default; a different
    /// output is added with its condition, to be explained.
    pub(super) fn record(&mut self, against: Against, printed: &str) {
        let rule = self.outputs[0].text == printed;
        if rule && against.server == Server::Rutter {
            self.outputs.retain(|output| output.is_the_rule() || !output.holds(against));
        }
        let at = self.outputs.iter().rposition(|output| output.holds(against)).unwrap_or(0);
        if self.outputs[at].text == printed {
            return;
        }
        if at > 0 || against == Against::RULE {
            self.outputs[at].text = printed.to_owned();
            return;
        }
        let rutter = against.server == Server::Rutter;
        self.outputs.push(Output {
            server: rutter.then_some(Server::Rutter),
            before: (!rutter).then_some(against.kubectl + 1),
            reason: UNEXPLAINED.to_owned(),
            text: printed.to_owned(),
        });
    }
}

/// Reads a script.
pub(super) fn read(text: &str) -> Result<Vec<Step>, String> {
    let mut steps: Vec<Step> = Vec::new();
    let mut conflicts = Vec::new();
    let mut open = false;
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step::new(command, std::mem::take(&mut conflicts)));
            open = true;
        } else if line.is_empty() {
            open = false;
        } else if !open && line.starts_with('#') {
            conflicts.push(line.to_owned());
        } else {
            let step = steps.last_mut().filter(|_| open);
            add(step.ok_or_else(|| format!("no command before `{line}`"))?, line)?;
        }
    }
    Ok(steps)
}

/// Adds a line to a step: to its input, the heading of another output, or an output.
fn add(step: &mut Step, line: &str) -> Result<(), String> {
    if let Some(input) = line.strip_prefix("< ").or_else(|| (line == "<").then_some("")) {
        step.input.push_str(input);
        step.input.push('\n');
    } else if let Some(head) = line.strip_prefix("@ ") {
        step.outputs.push(Output::read(head)?);
    } else if let Some(output) = step.outputs.last_mut() {
        output.text.push_str(line);
        output.text.push('\n');
    }
    Ok(())
}

/// Writes a script as [`read`] reads it.
pub(super) fn write(steps: &[Step]) -> String {
    let mut out = String::new();
    for (number, step) in steps.iter().enumerate() {
        if number > 0 {
            out.push('\n');
        }
        for conflict in &step.conflicts {
            let _ = writeln!(out, "{conflict}");
        }
        let _ = writeln!(out, "$ {}", step.command);
        for line in step.input.lines() {
            let _ = writeln!(out, "{}", format!("< {line}").trim_end());
        }
        for output in &step.outputs {
            output.write(&mut out);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# First.\n$ cat\n< a\n<\n< b\na\nb\n@ rutter: It is so.\nc\n@ kubectl<1.34: It was so.\n\n$ exit 3\n[exit 3]\n";
    const RUTTER: Against = Against { server: Server::Rutter, kubectl: 36 };

    #[test]
    fn scripts_are_parsed_and_printed() {
        let steps = read(TEXT).unwrap();
        assert_eq!(steps.len(), 2);
        assert_eq!(steps[0].input, "a\n\nb\n");
        assert_eq!(write(&steps), TEXT);
        assert!(read("a\n").is_err() && read("$ a\n@ b: c\n").is_err() && read("$ a\n@ rutter\n").is_err());
    }

    #[test]
    fn the_last_output_whose_condition_holds_is_expected() {
        let steps = read(TEXT).unwrap();
        assert_eq!(steps[0].expected(Against::RULE).text, "a\nb\n");
        assert_eq!(steps[0].expected(RUTTER).text, "c\n");
        assert_eq!(steps[0].expected(Against { kubectl: 33, ..RUTTER }).text, "");
        assert_eq!(steps[1].expected(RUTTER).text, "[exit 3]\n");
    }

    #[test]
    fn different_outputs_are_recorded_with_their_condition() {
        let mut step = read("$ a\nb\n").unwrap().remove(0);
        step.record(RUTTER, "b\n");
        assert_eq!(step.outputs.len(), 1);
        step.record(RUTTER, "c\n");
        assert_eq!(step.expected(RUTTER).text, "c\n");
        assert_eq!(step.expected(RUTTER).reason, UNEXPLAINED);
        step.record(RUTTER, "d\n");
        step.record(Against { kubectl: 32, ..Against::RULE }, "e\n");
        assert_eq!(write(&[step.clone()]), "$ a\nb\n@ rutter: unexplained\nd\n@ kubectl<1.33: unexplained\ne\n");
        step.record(Against::RULE, "d\n");
        step.record(RUTTER, "d\n");
        assert_eq!(write(&[step]), "$ a\nd\n@ kubectl<1.33: unexplained\ne\n");
    }
}
