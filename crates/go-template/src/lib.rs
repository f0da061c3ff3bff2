//! Text templates in the language of Go's `text/template`, with the functions of Helm that charts use most.
//!
//! [`Templates::add`] reads templates, [`Templates::render`] fills one in. Values are JSON. What belongs to the caller's
//! world (writing YAML, say) comes through [`Host`].
//!
//! Where it differs from Go: a missing value is written as nothing, as Helm does; numbers are compared by their value;
//! there are no methods, no `break` and no `continue`. What is not known is an error and never ignored.
//!
//! It knows nothing of charts and Kubernetes.

mod eval;
mod functions;
mod lex;
mod parse;
mod text;

use std::collections::BTreeMap;

use serde_json::Value;

use parse::Node;

/// Levels of blocks and parentheses in one template at most.
const MAX_NESTING: usize = 64;
/// Templates that are filled in inside each other at most.
const MAX_INCLUDES: usize = 100;
/// The largest text that one rendering may make, everything on the way counted, in bytes.
const MAX_TEXT: usize = 16 << 20;

/// What is wrong with a template, or with what it was filled in with.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{template}:{line}: {message}")]
pub struct Error {
    /// The name under which the template was added.
    pub template: String,
    /// The line of it, from 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

/// Functions that the caller has.
pub trait Host {
    /// Calls a function; none: there is no function of this name.
    fn call(&self, name: &str, arguments: &[Value]) -> Option<Result<Value, String>>;
}

/// No functions but those of this crate.
impl Host for () {
    fn call(&self, _: &str, _: &[Value]) -> Option<Result<Value, String>> {
        None
    }
}

/// Templates that may use each other.
#[derive(Clone, Default, Debug)]
pub struct Templates {
    named: BTreeMap<String, Template>,
}

#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// The name of the text that it stands in, for messages.
    file: String,
    nodes: Vec<Node>,
}

impl Templates {
    /// Reads a text; the templates that it defines (`define`) are known to all others.
    ///
    /// # Errors
    /// Where the text is not in the language.
    pub fn add(&mut self, name: &str, text: &str) -> Result<(), Error> {
        let at = |(line, message): (usize, String)| Error {
            template: name.to_owned(),
            line,
            message,
        };
        let pieces = lex::pieces(text).map_err(at)?;
        let read = parse::read(pieces).map_err(at)?;
        let template = |nodes| Template {
            file: name.to_owned(),
            nodes,
        };
        for (defined, nodes) in read.defined {
            self.named.insert(defined, template(nodes));
        }
        self.named.insert(name.to_owned(), template(read.nodes));
        Ok(())
    }

    /// Fills a template in with a value, which is its `.` and its `$`.
    ///
    /// # Errors
    /// The template does not exist or asks for what cannot be done with the value; or the text becomes too large.
    pub fn render(&self, name: &str, value: &Value, host: &dyn Host) -> Result<String, Error> {
        eval::render(self, name, value, host)
    }
}
