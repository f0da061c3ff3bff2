//! Text templates in the language of Go's `text/template`, with common functions of Helm.
//!
//! ```text
//! text ─lex─► pieces ─parse─► tree ─Templates::add─► Templates ─render(value)─► text
//! ```
//!
//! [`Templates::add`] parses templates, [`Templates::render`] evaluates one. Values are JSON. [`Host`] provides functions
//! of the caller, for example for YAML.
//!
//! Differences from Go: a missing value renders as empty text, as in Helm, unless [`Host::missing`] is set; numbers are
//! compared by value; methods exist as far as [`Host::method`] has them; `set` and `unset` change a variable, not a map that
//! several variables share. Functions that read clocks, the environment or random numbers are left to the host. Unknown
//! names are errors.
//!
//! A rendering has limits: the size of the output with its intermediate results, and the number of steps ([`MAX_STEPS`]).

mod dates;
mod eval;
mod formats;
mod functions;
mod lex;
mod more;
mod parse;
mod sprig;
mod text;
pub mod yaml;

pub use dates::{date, duration_text, written};

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use parse::Node;

/// Maximum nesting of blocks and parentheses in a template.
const MAX_NESTING: usize = 64;
/// Maximum nesting of included templates.
const MAX_INCLUDES: usize = 100;
/// Maximum size of the output of a rendering, including intermediate results, in bytes.
const MAX_TEXT: usize = 16 << 20;
/// Maximum number of steps of a rendering: nodes, calls, and 64 bytes of copied values each count as one.
pub const MAX_STEPS: usize = 4_000_000;

/// An error in a template or its evaluation.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{template}:{line}: {message}")]
pub struct Error {
    /// The name of the template.
    pub template: String,
    /// The line, starting at 1.
    pub line: usize,
    /// The problem.
    pub message: String,
}

impl Error {
    pub(crate) fn new(template: &str, line: usize, problem: Problem) -> Error {
        Error { template: template.to_owned(), line, message: problem.0 }
    }
}

/// A problem without its position.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Problem(String);

impl From<String> for Problem {
    fn from(message: String) -> Problem {
        Problem(message)
    }
}

impl From<&str> for Problem {
    fn from(message: &str) -> Problem {
        Problem(message.to_owned())
    }
}

/// Functions of the caller.
pub trait Host {
    /// Calls a function; none if the name is unknown. These functions take precedence over the built-in ones.
    fn call(&self, name: &str, arguments: &[Value]) -> Option<Result<Value, Problem>>;

    /// Calls a method, or reads a field that a value does not have by this name; none if there is none.
    fn method(&self, _receiver: &Value, _name: &str, _arguments: &[Value]) -> Option<Result<Value, Problem>> {
        None
    }

    /// The text of a missing value in the output.
    fn missing(&self) -> &'static str {
        ""
    }
}

/// No additional functions.
impl Host for () {
    fn call(&self, _: &str, _: &[Value]) -> Option<Result<Value, Problem>> {
        None
    }
}

/// Whether a function is built in.
pub fn is_builtin(name: &str) -> bool {
    matches!(name, "and" | "or" | "include" | "set" | "unset") || functions::is_known(name)
}

/// Templates that can include each other.
#[derive(Clone, Default, Debug)]
pub struct Templates {
    named: BTreeMap<String, Template>,
}

#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// The name of the defining text, for messages.
    file: String,
    nodes: Vec<Node>,
}

impl Templates {
    /// Parses a text. The templates that it defines (`define`) are available to all others.
    ///
    /// # Errors
    /// A syntax error with its position.
    pub fn add(&mut self, name: &str, text: &str) -> Result<(), Error> {
        let at = |(line, problem): lex::LineError| Error::new(name, line, problem);
        let pieces = lex::pieces(text).map_err(at)?;
        let read = parse::read(pieces).map_err(at)?;
        let template = |nodes| Template { file: name.to_owned(), nodes };
        for (defined, nodes) in read.defined {
            self.named.insert(defined, template(nodes));
        }
        self.named.insert(name.to_owned(), template(read.nodes));
        Ok(())
    }

    /// The names of the functions that the templates call, without duplicates.
    pub fn functions(&self) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        self.named.values().for_each(|template| parse::functions(&template.nodes, &mut names));
        names
    }

    /// Renders a template with a value, which is `.` and `$`.
    ///
    /// # Errors
    /// The template does not exist, an evaluation fails, or the output is too large.
    pub fn render(&self, name: &str, value: &Value, host: &dyn Host) -> Result<String, Error> {
        eval::render(self, name, value, host)
    }
}
