//! MeshConfig and MeshNetworks, from objects, from Istio's ConfigMap, or from files.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::decode::{Decode, Decoder, Problem, Unknown};
use crate::diagnostic::Diagnostic;
use crate::mesh::{MeshConfig, MeshNetworks};
use crate::object::{Kind, Meta, Object, ObjectKey, Origin, Resource};
use crate::parse::object::{Outcome, errors};
use crate::parse::{ParseOptions, Parsed, Reader, conform, degrade, syntax_problem, text_of};
use crate::problem::{FieldPath, Severity};
use crate::yaml::{self, Document, Node, Position, Value};

impl MeshConfig {
    /// The name of the MeshConfig object, wherever it is from.
    pub const NAME: &'static str = "default";

    /// The key of the MeshConfig object.
    pub fn key() -> ObjectKey {
        ObjectKey::new(Kind::MeshConfig, "", MeshConfig::NAME)
    }
}

impl MeshNetworks {
    /// The key of the MeshNetworks object.
    pub fn key() -> ObjectKey {
        ObjectKey::new(Kind::MeshNetworks, "", MeshConfig::NAME)
    }
}

/// Maps all accepted API groups of settings to one.
pub(super) fn group_of(group: &str) -> &str {
    if group == "core" || group.is_empty() { Kind::MeshConfig.group() } else { group }
}

/// The metadata of a settings object, whose name in the file is ignored.
pub(super) fn meta(kind: Kind, file: Option<&Arc<str>>, line: u32) -> Meta {
    let origin = file.map(|file| Origin { file: file.clone(), line });
    Meta { origin, ..Meta::new(kind, "", MeshConfig::NAME) }
}

/// Settings that a mesh has once.
trait Setting: Resource + Decode + Default {
    /// Fills in values that apply whether they are set or not.
    fn complete(&mut self) {}
}

impl Setting for MeshConfig {
    fn complete(&mut self) {
        self.keep_default_providers();
    }
}

impl Setting for MeshNetworks {}

/// Parses a file with the fields of MeshConfig, as istiod mounts it.
///
/// Returns the settings if they are valid. An empty file means the defaults.
pub fn parse_mesh_config(bytes: &[u8], file: &str, options: &ParseOptions) -> (Option<MeshConfig>, Vec<Diagnostic>) {
    parse_setting(bytes, file, options)
}

/// Parses a file with the fields of MeshNetworks, as istiod mounts it.
///
/// Returns the networks if they are valid. An empty file means none.
pub fn parse_mesh_networks(
    bytes: &[u8],
    file: &str,
    options: &ParseOptions,
) -> (Option<MeshNetworks>, Vec<Diagnostic>) {
    parse_setting(bytes, file, options)
}

fn parse_setting<S: Setting>(bytes: &[u8], file: &str, options: &ParseOptions) -> (Option<S>, Vec<Diagnostic>) {
    let parsed = Parsed::default();
    let mut reader = Reader { file: file.into(), options, parsed, seen: std::collections::HashMap::new() };
    let (config, problems) = match text_of(bytes, &options.limits) {
        Ok(text) => decode_text(text, 1, options),
        Err(error) => (None, vec![syntax_problem(error)]),
    };
    for problem in problems {
        reader.say(Some(ObjectKey::new(S::KIND, "", MeshConfig::NAME)), problem);
    }
    let diagnostics = reader.parsed.diagnostics;
    let valid = !diagnostics.iter().any(Diagnostic::is_error);
    (config.filter(|_| valid), diagnostics)
}

/// Parses settings. The paths of diagnostics start at the settings.
fn decode_text<S: Setting>(text: &str, first_line: u32, options: &ParseOptions) -> (Option<S>, Vec<Problem>) {
    let (root, duplicates) = match yaml::parse_document(Document { text, first_line }, &options.limits) {
        Ok(parsed) => parsed,
        Err(error) => return (None, vec![syntax_problem(error)]),
    };
    let duplicates: Vec<Problem> = duplicates.into_iter().map(syntax_problem).collect();
    let (config, mut problems) = match options.degrade && duplicates.is_empty() {
        true => {
            let read = |root: &Node| decode_tree::<S>(root, options);
            let (config, problems) = degrade::read(S::KIND, &root, read(&root), read);
            (config.flatten(), problems)
        }
        false => decode_tree(&root, options),
    };
    problems.extend(duplicates);
    problems.sort_by_key(|p| (p.at.line, p.at.column, Reverse(p.severity)));
    (config, problems)
}

/// Decodes and validates settings.
fn decode_tree<S: Setting>(root: &Node, options: &ParseOptions) -> (Option<S>, Vec<Problem>) {
    // istiod ignores unknown fields of settings, so they are never errors.
    let mut cx = Decoder::new(Unknown::Warn, options.limits.problems);
    // An empty text means the defaults.
    let config = match root.is_null() {
        true => Some(S::default()),
        false => S::decode(root, &mut cx),
    };
    let (mut found, report) = cx.finish();
    let broken: Vec<FieldPath> = errors(&found).map(|problem| problem.path.clone()).collect();
    let conform = conform::check(root, root.at, &S::schema(), FieldPath::root(), options.limits.problems);
    conform::add(conform, &mut found);
    let Some(mut config) = config else {
        return (None, found);
    };
    config.complete();
    let findings = report.into_findings().into_iter();
    let findings = findings.filter(|finding| !broken.iter().any(|path| finding.concerns(path)));
    found.extend(findings.map(|finding| finding.into_problem(root)));
    (Some(config), found)
}

/// The text of MeshConfig, if the object is the ConfigMap `istio` with the key `mesh`.
pub(super) fn text_of_config_map(root: &Node) -> Option<&Node> {
    let is = |node: Option<&Node>, text| node.and_then(Node::text).is_some_and(|t| &**t == text);
    let named = is(root.get("metadata")?.get("name"), "istio");
    if !(is(root.get("kind"), "ConfigMap") && is(root.get("apiVersion"), "v1") && named) {
        return None;
    }
    root.get("data")?.get("mesh").filter(|n| n.text().is_some())
}

/// Reads MeshConfig from Istio's ConfigMap.
pub(super) fn read_config_map(
    root: &Node,
    text: &Node,
    file: Option<&Arc<str>>,
    options: &ParseOptions,
    mut problems: Vec<Problem>,
) -> Outcome {
    let content = text.text().cloned().unwrap_or_default();
    let (config, found) = decode_text::<MeshConfig>(&content, 1, options);
    problems.extend(found.into_iter().map(|problem| placed(problem, "mesh", text, &content)));
    // The networks do not decide whether the configuration of the mesh is accepted.
    if let Some(text) = root.get("data").and_then(|data| data.get("meshNetworks"))
        && let Some(content) = text.text()
    {
        let (_, found) = decode_text::<MeshNetworks>(content, 1, options);
        problems.extend(found.into_iter().map(|problem| {
            let severity = if options.degrade { problem.severity.min(Severity::Warning) } else { problem.severity };
            placed(Problem { severity, ..problem }, "meshNetworks", text, content)
        }));
    }
    let meta = meta(Kind::MeshConfig, file, root.at.line);
    let object = config.map(|spec| {
        let raw = serde_json::json!({
            "apiVersion": Kind::MeshConfig.api_version(),
            "kind": Kind::MeshConfig.name(),
            "metadata": { "name": MeshConfig::NAME },
            "spec": spec.to_json(),
        });
        MeshConfig::into_any(Arc::new(Object { meta, spec, raw: Some(raw.to_string().into()) }))
    });
    Outcome { key: Some(MeshConfig::key()), object, problems }
}

/// A problem of a text in the ConfigMap, with its place there.
fn placed(problem: Problem, key: &'static str, text: &Node, content: &str) -> Problem {
    let path = FieldPath::root().field("data").field(key);
    let path = problem.path.segments().iter().cloned().fold(path, |path, step| path.then(step));
    match place_in_file(text, content, problem.at) {
        Some(at) => Problem { path, at, ..problem },
        None => {
            let message = format!("{} (line {} of the text)", problem.message, problem.at.line);
            Problem { path, at: text.at, message, ..problem }
        }
    }
}

/// Converts a position in a text to a position in the file, if the text is a literal block.
fn place_in_file(node: &Node, text: &str, at: Position) -> Option<Position> {
    // Leading blank lines would shift the positions.
    let literal = matches!(node.value, Value::Literal(_)) && !text.starts_with(['\n', ' ']);
    literal.then(|| Position { line: node.at.line + at.line - 1, column: node.at.column + at.column - 1 })
}
