//! What a command reads and writes besides the server: standard streams, the environment, the terminal.
//!
//! Commands get all of it as a value, so that tests run them in one process and see every byte.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::style::printable;

/// The variables of an environment, by name.
pub type Environment = Box<dyn Fn(&str) -> Option<OsString>>;

/// The surroundings of a command.
pub struct Io {
    /// Standard input.
    pub stdin: Box<dyn Read>,
    /// Standard output.
    pub out: Box<dyn Write>,
    /// Standard error.
    pub err: Box<dyn Write>,
    /// What of it is a terminal.
    pub terminal: Terminal,
    /// The environment.
    pub env: Environment,
    warnings: Warnings,
}

/// What servers warned of while a command ran; each warning once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    pub(crate) fn add(&self, warning: String) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains(&warning) {
            all.push(warning);
        }
    }

    /// All of them, which are forgotten.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Which streams are a terminal, and whether it is to be coloured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Terminal {
    /// Standard output is one.
    pub out: bool,
    /// Standard error is one.
    pub err: bool,
    /// Colours are wanted on standard output.
    pub colour: bool,
    /// Colours are wanted on standard error.
    pub colour_err: bool,
}

impl Io {
    /// The streams and the environment of this process. No colours where `NO_COLOR` is set or `TERM` is `dumb`.
    pub fn of_process() -> Io {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let (out, err) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        let wanted = !dumb && !set("NO_COLOR");
        Io {
            stdin: Box::new(io::stdin()),
            out: Box::new(io::BufWriter::new(io::stdout())),
            err: Box::new(io::stderr()),
            terminal: Terminal {
                out,
                err,
                colour: out && wanted,
                colour_err: err && wanted,
            },
            env: Box::new(|name| std::env::var_os(name)),
            warnings: Warnings::default(),
        }
    }

    /// Surroundings of these streams, without a terminal and with an empty environment and no input.
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

    /// Where servers put their warnings.
    pub(crate) fn warnings(&self) -> Warnings {
        self.warnings.clone()
    }

    /// Tells what servers warned of.
    pub(crate) fn tell_warnings(&mut self) {
        for warning in self.warnings.take() {
            self.warn(printable(&warning, false));
        }
    }

    /// A variable of the environment, if it is there and not empty.
    pub(crate) fn var(&self, name: &str) -> Option<OsString> {
        (self.env)(name).filter(|value| !value.is_empty())
    }

    /// The same as a path.
    pub(crate) fn path_var(&self, name: &str) -> Option<PathBuf> {
        self.var(name).map(PathBuf::from)
    }

    /// Writes a line to standard output.
    pub(crate) fn say(&mut self, line: impl AsRef<str>) -> io::Result<()> {
        writeln!(self.out, "{}", line.as_ref())
    }

    /// Writes a line to standard error, after what was written to standard output.
    pub(crate) fn tell(&mut self, line: impl AsRef<str>) {
        let _ = self.out.flush();
        // Nobody is left to be told that standard error is closed.
        let _ = writeln!(self.err, "{}", line.as_ref());
    }

    /// Warns on standard error.
    pub(crate) fn warn(&mut self, what: impl AsRef<str>) {
        self.tell(format!("Warning: {}", what.as_ref()));
    }
}

impl std::fmt::Debug for Io {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Io")
            .field("terminal", &self.terminal)
            .finish_non_exhaustive()
    }
}
