//! Parses files into objects and diagnostics.

mod conform;
mod content;
mod degrade;
pub(crate) use degrade::LEFT_OUT;
mod json;
mod locate;
mod mesh;
mod meta;
mod object;
mod parents;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::decode::Problem;
use crate::diagnostic::Diagnostic;
use crate::object::{AnyObject, ObjectKey};
use crate::problem::{FieldPath, Severity};
use crate::yaml::{self, Document, Node, Position, SyntaxError};

pub use json::{Read, YamlDocument, YamlJson, parse_yaml_json, read_object};
pub use locate::locate;
pub use mesh::{parse_mesh_config, parse_mesh_networks};
pub use parents::parents_of;

/// Limits for input, so that the cost of a malicious file is bounded by its size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of a file.
    pub file_bytes: usize,
    /// Bytes of a document.
    pub document_bytes: usize,
    /// Documents in a file.
    pub documents: usize,
    /// Levels of lists and objects in a document.
    pub depth: usize,
    /// Values in a document.
    pub nodes: usize,
    /// Values in a document that anchors and aliases repeat.
    pub repeated: usize,
    /// Diagnostics of an object or document; errors are kept before warnings.
    pub problems: usize,
}

impl Default for Limits {
    /// A file of 64 MiB with 100,000 documents; a document of 16 MiB, 64 levels, a million values and
    /// 100,000 repeated ones; 100 diagnostics.
    fn default() -> Limits {
        Limits {
            file_bytes: 64 << 20,
            document_bytes: 16 << 20,
            documents: 100_000,
            depth: 64,
            nodes: 1_000_000,
            repeated: 100_000,
            problems: 100,
        }
    }
}

impl Limits {
    /// Returns the document unless it exceeds the limits.
    fn check<'t>(&self, number: usize, document: Document<'t>) -> Result<Document<'t>, SyntaxError> {
        let message = if number >= self.documents {
            format!("more than {number} documents in a file; the rest is ignored")
        } else if document.text.len() > self.document_bytes {
            format!("the document is larger than {} bytes", self.document_bytes)
        } else {
            return Ok(document);
        };
        let at = Position { line: document.first_line, column: 1 };
        Err(SyntaxError::new(at, "limit", message))
    }
}

/// Options for parsing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseOptions {
    /// The namespace of objects without one.
    pub default_namespace: Arc<str>,
    /// Whether unknown fields are errors instead of warnings.
    pub strict: bool,
    /// Whether the object passed admission, which evaluates the CEL rules of its schema. They are not evaluated again.
    pub admitted: bool,
    /// Whether parts with errors are left out instead of the whole object, with warnings. For objects that were accepted
    /// before; what is written is checked as a whole.
    pub degrade: bool,
    /// Whether the objects are also kept as they are written ([`Parsed::originals`]).
    pub originals: bool,
    /// Limits.
    pub limits: Limits,
}

impl ParseOptions {
    /// The options for objects that were accepted before.
    pub fn degrading(self) -> ParseOptions {
        ParseOptions { degrade: true, ..self }
    }
}

impl Default for ParseOptions {
    /// Namespace `default`, not strict, default limits.
    fn default() -> ParseOptions {
        ParseOptions {
            default_namespace: "default".into(),
            strict: false,
            admitted: false,
            degrade: false,
            originals: false,
            limits: Limits::default(),
        }
    }
}

/// The content of a file.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Parsed {
    /// The valid objects, each key once, in the order of the file.
    pub objects: Vec<AnyObject>,
    /// Diagnostics, in the order of the file.
    pub diagnostics: Vec<Diagnostic>,
    /// Objects that are rejected because of errors.
    pub refused: Vec<ObjectKey>,
    /// All objects as they are written, as compact JSON, if [`ParseOptions::originals`] is set. Those that may contain
    /// secrets are left out.
    pub originals: BTreeMap<ObjectKey, Arc<str>>,
    /// The number of documents whose object cannot be identified.
    pub unreadable: usize,
}

impl Parsed {
    /// Whether all objects of the file are accepted.
    pub fn is_whole(&self) -> bool {
        self.refused.is_empty() && self.unreadable == 0
    }
}

/// Parses and validates all documents of a YAML or JSON file. An invalid document does not affect the others.
///
/// `file` is the name of the file in origins and diagnostics. Lists (`kind: List`) are expanded. Objects of kinds that
/// the mesh does not read are skipped with a diagnostic.
pub fn parse_documents(bytes: &[u8], file: &str, options: &ParseOptions) -> Parsed {
    let mut reader = Reader { file: file.into(), options, parsed: Parsed::default(), seen: HashMap::new() };
    match text_of(bytes, &options.limits) {
        Ok(text) => reader.documents(text),
        Err(error) => reader.unreadable(error),
    }
    reader.parsed
}

/// The file as UTF-8 text.
fn text_of<'b>(bytes: &'b [u8], limits: &Limits) -> Result<&'b str, SyntaxError> {
    let start = Position { line: 1, column: 1 };
    if bytes.len() > limits.file_bytes {
        let message = format!("the file is larger than {} bytes", limits.file_bytes);
        return Err(SyntaxError::new(start, "limit", message));
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let line = 1 + bytes[..error.valid_up_to()].iter().filter(|b| **b == b'\n').count();
        let at = Position { line: u32::try_from(line).unwrap_or(u32::MAX), column: 1 };
        SyntaxError::new(at, "syntax", "the file is not UTF-8 text")
    })
}

/// The documents of a text: first line, tree and duplicate keys. Ends with an error if there are too many documents.
fn trees(text: &str, limits: &Limits) -> impl Iterator<Item = Result<(u32, Node, Vec<SyntaxError>), SyntaxError>> {
    let documents = yaml::split(text).into_iter().enumerate().take(limits.documents.saturating_add(1));
    documents.map(move |(number, document)| {
        let line = document.first_line;
        let (root, duplicates) = yaml::parse_document(limits.check(number, document)?, limits)?;
        Ok((line, root, duplicates))
    })
}

/// The state of a parse.
struct Reader<'o> {
    file: Arc<str>,
    options: &'o ParseOptions,
    parsed: Parsed,
    /// The lines of the objects that were read.
    seen: HashMap<ObjectKey, u32>,
}

impl Reader<'_> {
    fn documents(&mut self, text: &str) {
        for tree in trees(text, &self.options.limits) {
            match tree {
                Ok((_, root, duplicates)) => self.document(&root, duplicates),
                Err(error) => self.unreadable(error),
            }
        }
    }

    /// Reads one document: an object or a list of objects.
    fn document(&mut self, root: &Node, duplicates: Vec<SyntaxError>) {
        if root.is_null() {
            return;
        }
        let Some(items) = list_items(root) else {
            return self.object(root, duplicates);
        };
        let mut duplicates = duplicates.into_iter().peekable();
        for (index, item) in items.iter().enumerate() {
            let end = items.get(index + 1).map(|next| (next.at.line, next.at.column));
            let inside = |e: &SyntaxError| end.is_none_or(|end| (e.at.line, e.at.column) < end);
            let own = std::iter::from_fn(|| duplicates.next_if(inside)).collect();
            self.object(item, own);
        }
    }

    /// Reads one object.
    fn object(&mut self, root: &Node, duplicates: Vec<SyntaxError>) {
        let outcome = object::read_document(root, &duplicates, Some(&self.file), self.options);
        let key = outcome.key;
        let first = self.parsed.diagnostics.len();
        for problem in outcome.problems {
            self.say(key.clone(), problem);
        }
        let has_errors = self.parsed.diagnostics[first..].iter().any(Diagnostic::is_error);
        match (key, outcome.object) {
            (Some(key), object) => {
                let line = root.at.line;
                if let Some(earlier) = self.seen.insert(key.clone(), line) {
                    self.seen.insert(key.clone(), earlier);
                    let message = format!("the object is already in line {earlier}, and this one is ignored");
                    return self.say(Some(key), problem_at(root.at, Severity::Warning, "duplicate-object", message));
                }
                if self.options.originals && !key.kind.is_credential() && !key.kind.is_setting() {
                    self.parsed.originals.insert(key.clone(), root.to_json().to_string().into());
                }
                match object {
                    Some(object) if !has_errors => self.parsed.objects.push(object),
                    _ => self.parsed.refused.push(key),
                }
            }
            (None, _) if has_errors => self.parsed.unreadable += 1,
            (None, _) => {}
        }
    }

    fn unreadable(&mut self, error: SyntaxError) {
        self.parsed.unreadable += 1;
        self.say(None, syntax_problem(error));
    }

    fn say(&mut self, object: Option<ObjectKey>, problem: Problem) {
        let diagnostic = json::diagnostic(Some(self.file.clone()), object, problem);
        self.parsed.diagnostics.push(diagnostic);
    }
}

/// The items of a list of objects: `kind: List`, or a typed list such as `ServiceEntryList`.
fn list_items(root: &Node) -> Option<&[Node]> {
    let kind = root.get("kind")?.text()?;
    let items = root.get("items")?;
    let is_list = kind.ends_with("List") && matches!(items.value, yaml::Value::List(_));
    is_list.then_some(items.items())
}

fn syntax_problem(error: SyntaxError) -> Problem {
    problem_at(error.at, Severity::Error, error.code, error.message)
}

/// A problem with an object or document as a whole.
fn problem_at(at: Position, severity: Severity, code: &'static str, message: String) -> Problem {
    Problem { path: FieldPath::root(), at, severity, code, message, hint: None }
}
