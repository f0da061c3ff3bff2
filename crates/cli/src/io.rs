//! Standard streams, environment and terminal of a command, as a value that tests can replace.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::style::printable;

/// The variables of an environment, by name.
pub type Environment = Box<dyn Fn(&str) -> Option<OsString>>;

/// The streams and environment of a command.
pub struct Io {
    /// Standard input.
    pub stdin: Box<dyn Read>,
    /// Standard output.
    pub out: Box<dyn Write>,
    /// Standard error.
    pub err: Box<dyn Write>,
    /// Which streams are terminals.
    pub terminal: Terminal,
    /// The environment.
    pub env: Environment,
    warnings: Warnings,
}

/// Warnings of servers while a command runs, without duplicates.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    pub(crate) fn add(&self, warning: String) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains(&warning) {
            all.push(warning);
        }
    }

    /// Removes and returns all warnings.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Which streams are terminals, and whether to color them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Terminal {
    /// Standard output is a terminal.
    pub out: bool,
    /// Standard error is a terminal.
    pub err: bool,
    /// Color standard output.
    pub color: bool,
    /// Color standard error.
    pub color_err: bool,
}

impl Io {
    /// The streams and the environment of this process. No colors if `NO_COLOR` is set or `TERM` is `dumb`.
    pub fn of_process() -> Io {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let (out, err) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        let wanted = !dumb && !set("NO_COLOR");
        Io {
            stdin: Box::new(io::stdin()),
            out: Box::new(io::BufWriter::new(io::stdout())),
            err: Box::new(io::stderr()),
            terminal: Terminal { out, err, color: out && wanted, color_err: err && wanted },
            env: Box::new(|name| std::env::var_os(name)),
            warnings: Warnings::default(),
        }
    }

    /// The given streams, without a terminal, environment and input.
    pub fn to(out: impl Write + 'static, err: impl Write + 'static) -> Io {
        Io {
            stdin: Box::new(io::empty()),
            out: Box::new(out),
            err: Box::new(err),
            terminal: Terminal::default(),
            env: Box::new(|_| None),
            warnings: Warnings::default(),
        }
    }

    /// The collector for warnings of servers.
    pub(crate) fn warnings(&self) -> Warnings {
        self.warnings.clone()
    }

    /// Prints the warnings of servers.
    pub(crate) fn print_warnings(&mut self) {
        for warning in self.warnings.take() {
            self.warn(printable(&warning, false));
        }
    }

    /// An environment variable; none if it is empty.
    pub(crate) fn var(&self, name: &str) -> Option<OsString> {
        (self.env)(name).filter(|value| !value.is_empty())
    }

    /// An environment variable as a path.
    pub(crate) fn path_var(&self, name: &str) -> Option<PathBuf> {
        self.var(name).map(PathBuf::from)
    }

    /// Writes a line to standard output.
    pub(crate) fn print(&mut self, line: impl AsRef<str>) -> io::Result<()> {
        writeln!(self.out, "{}", line.as_ref())
    }

    /// Writes a line to standard error, after flushing standard output.
    pub(crate) fn eprint(&mut self, line: impl AsRef<str>) {
        let _ = self.out.flush();
        // There is no stream left to report an error of standard error.
        let _ = writeln!(self.err, "{}", line.as_ref());
    }

    /// Prints a warning on standard error.
    pub(crate) fn warn(&mut self, message: impl AsRef<str>) {
        self.eprint(format!("Warning: {}", message.as_ref()));
    }
}

impl std::fmt::Debug for Io {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Io").field("terminal", &self.terminal).finish_non_exhaustive()
    }
}
