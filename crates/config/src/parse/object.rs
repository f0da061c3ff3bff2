//! Reads one object: kind, metadata and content.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;

use crate::decode::{Decoder, Finding, Problem, Unknown};
use crate::effects;
use crate::object::{AnyObject, Content, Kind, Meta, Object, ObjectKey, WithContent, spec_of};
use crate::parse::{ParseOptions, conform, degrade, mesh, meta, problem_at};
use crate::problem::{FieldPath, Severity};
use crate::schema;
use crate::validate;
use crate::yaml::{Node, Position, SyntaxError, Value};

/// The result of reading an object. The object is rejected if one of the problems is an error.
pub(super) struct Outcome {
    pub(super) key: Option<ObjectKey>,
    pub(super) object: Option<AnyObject>,
    pub(super) problems: Vec<Problem>,
}

/// Reads a document of a file: an object, or the ConfigMap with MeshConfig. In a server this ConfigMap is read from one
/// namespace only, because those who may write to another one must not change the settings of the mesh.
pub(super) fn read_document(
    root: &Node,
    duplicates: &[SyntaxError],
    file: Option<&Arc<str>>,
    options: &ParseOptions,
) -> Outcome {
    match mesh::text_of_config_map(root) {
        Some(text) => mesh::read_config_map(root, text, file, options, problems_of(duplicates, options)),
        None => read(root, duplicates, file, options),
    }
}

fn problems_of(duplicates: &[SyntaxError], options: &ParseOptions) -> Vec<Problem> {
    let first = duplicates.iter().take(options.limits.problems);
    first.map(|d| problem_at(d.at, Severity::Error, d.code, d.message.clone())).collect()
}

/// Reads an object from its tree.
pub(super) fn read(
    root: &Node,
    duplicates: &[SyntaxError],
    file: Option<&Arc<str>>,
    options: &ParseOptions,
) -> Outcome {
    let mut problems = problems_of(duplicates, options);
    match kind_of(root) {
        Ok(kind) if options.degrade && problems.is_empty() => degraded(kind, root, file, options),
        Ok(kind) => read_kind(kind, root, file, options, problems),
        Err(problem) => {
            problems.push(problem);
            Outcome { key: None, object: None, problems }
        }
    }
}

/// Reads an object without the parts that have errors.
fn degraded(kind: Kind, root: &Node, file: Option<&Arc<str>>, options: &ParseOptions) -> Outcome {
    let read = |root: &Node| {
        let outcome = read_kind(kind, root, file, options, Vec::new());
        ((outcome.key, outcome.object), outcome.problems)
    };
    let (first, problems) = read(root);
    let key = first.0.clone();
    match degrade::read(kind, root, (first, problems), read) {
        (Some((key, object)), problems) => Outcome { key, object, problems },
        (None, problems) => Outcome { key, object: None, problems },
    }
}

/// The kind, from `apiVersion` and `kind`.
fn kind_of(root: &Node) -> Result<Kind, Problem> {
    let error = |at: Position, code, message: &str| problem_at(at, Severity::Error, code, message.to_owned());
    if !matches!(root.value, Value::Map(_)) {
        return Err(error(root.at, "not-an-object", "a document must be an object with apiVersion and kind"));
    }
    let (Some(version), Some(kind)) = (root.get("apiVersion"), root.get("kind")) else {
        return Err(error(root.at, "missing-field", "an object needs apiVersion and kind"));
    };
    let (Some(version_text), Some(kind)) = (version.text(), kind.text()) else {
        return Err(error(root.at, "bad-value", "apiVersion and kind must be strings"));
    };
    let (group, version_text) = version_text.rsplit_once('/').unwrap_or(("", version_text));
    let group = if Kind::find(Kind::MeshConfig.group(), kind).is_some() { mesh::group_of(group) } else { group };
    match Kind::find(group, kind) {
        Some(found) if found.versions().contains(&version_text) => Ok(found),
        Some(found) => {
            let message = format!("{found} has no version {version_text:?}: {} are read", found.versions().join(", "));
            Err(error(version.at, "unknown-version", &message))
        }
        None => Err(ignored(root, group, kind)),
    }
}

/// Reports that a kind is not read: a warning if Istio reads it.
fn ignored(root: &Node, group: &str, kind: &str) -> Problem {
    let of_mesh = group.ends_with("istio.io") || group.starts_with("gateway.networking.");
    let (severity, code, what) = match of_mesh {
        true => (Severity::Warning, "not-implemented-yet", "is not implemented yet and has no effect"),
        false => (Severity::Info, "ignored-kind", "means nothing to the mesh and is ignored"),
    };
    let kind: String = kind.chars().take(80).collect();
    problem_at(root.at, severity, code, format!("the kind {kind} {what}"))
}

fn read_kind(
    kind: Kind,
    root: &Node,
    file: Option<&Arc<str>>,
    options: &ParseOptions,
    mut problems: Vec<Problem>,
) -> Outcome {
    let unknown = match (kind.is_complete(), options.strict) {
        (false, _) => Unknown::Ignore,
        // istiod ignores unknown fields of settings, so they are never errors.
        (true, true) if !kind.is_setting() => Unknown::Refuse,
        (true, _) => Unknown::Warn,
    };
    let mut cx = Decoder::new(unknown, options.limits.problems);
    let meta = match kind {
        _ if kind.is_setting() => Some(mesh::meta(kind, file, root.at.line)),
        _ => meta::decode(root, kind, file, options, &mut cx),
    };
    let Some(mut meta) = meta else {
        problems.extend(cx.into_problems());
        return Outcome { key: None, object: None, problems };
    };
    if kind.is_credential() {
        // The last applied configuration of kubectl is an annotation that contains the whole object.
        meta.annotations.clear();
    }
    match kind {
        Kind::ServiceEntry => meta.status = meta::assigned(root).map(Arc::new),
        Kind::WorkloadEntry => meta.status = meta::healthy(root).map(Arc::new),
        _ => {}
    }
    let key = meta.key();
    let object = decode_any(kind, root, meta, &mut cx);
    let (mut found, mut report) = cx.finish();
    // A value that could not be decoded looks absent. Findings about it are misleading.
    let mut broken: Vec<FieldPath> = errors(&found).map(|p| p.path.clone()).collect();
    if kind.is_complete() {
        conform::add(against_schema(kind, root, options.limits.problems), &mut found);
        let missing = errors(&found).filter(|p| p.code == "missing-field");
        broken.extend(missing.map(|p| p.path.clone()));
    }
    if let Some(object) = &object {
        validate::check(object, &mut report);
        let concerns = |finding: &Finding, broken: &[FieldPath]| broken.iter().any(|b| finding.concerns(b));
        let mut findings = report.into_findings();
        findings.retain(|finding| !concerns(finding, &broken));
        if !options.admitted && evaluates_rules(kind) {
            let all: Vec<FieldPath> = errors(&found).map(|p| p.path.clone()).collect();
            let violations = validate::violations(kind, root, all.is_empty()).into_iter();
            findings.extend(violations.filter(|finding| !concerns(finding, &all)));
        }
        findings.truncate(options.limits.problems);
        found.extend(findings.into_iter().map(|f| f.into_problem(root)));
        only_first_of_forms(&mut found);
    }
    problems.extend(found);
    problems.extend(effects::of_object(kind, root));
    problems.sort_by_key(|p| (p.at.line, p.at.column, Reverse(p.severity)));
    Outcome { key: Some(key), object, problems }
}

/// Keeps the first error about the form of a value: a bad host is often a bad value in another respect, too.
fn only_first_of_forms(problems: &mut Vec<Problem>) {
    const FORMS: [&str; 3] = ["bad-value", "bad-host", "bad-name"];
    let is_form = |problem: &Problem| problem.severity == Severity::Error && FORMS.contains(&problem.code);
    let mut seen: Vec<FieldPath> = Vec::new();
    problems.retain(|problem| {
        let twice = is_form(problem) && seen.contains(&problem.path);
        if is_form(problem) && !twice {
            seen.push(problem.path.clone());
        }
        !twice
    });
}

pub(super) fn errors(problems: &[Problem]) -> impl Iterator<Item = &Problem> {
    problems.iter().filter(|p| p.severity == Severity::Error)
}

/// Whether the CEL rules of the kind are evaluated. Rules of Istio's kinds repeat what other checks report.
fn evaluates_rules(kind: Kind) -> bool {
    kind.is_complete() && !kind.is_istio()
}

/// Checks an object against the schema of its kind.
fn against_schema(kind: Kind, root: &Node, most: usize) -> Vec<Problem> {
    let spec = spec_of(root);
    let mut problems =
        conform::check(&spec, root.locate(&FieldPath::spec()), &kind.content_schema(), FieldPath::spec(), most);
    let needed = schema::find_kind(kind.group(), kind.name())
        .and_then(|definition| definition.schema.fields())
        .is_some_and(|fields| fields.required.contains(&"spec"));
    if needed && matches!(spec, Cow::Owned(_)) {
        let message = "this field is required".to_owned();
        let problem = problem_at(root.at, Severity::Error, "missing-field", message);
        let path = FieldPath::spec();
        problems = vec![Problem { path, ..problem }];
    }
    problems
}

/// Decodes an object and reports invalid fields, without validation.
pub(super) fn decode_any(kind: Kind, root: &Node, meta: Meta, cx: &mut Decoder) -> Option<AnyObject> {
    kind.with_content(DecodeContent { root, meta, cx })
}

/// Decodes the content of an object whose metadata is known.
struct DecodeContent<'a> {
    root: &'a Node,
    meta: Meta,
    cx: &'a mut Decoder,
}

impl WithContent for DecodeContent<'_> {
    type Output = Option<AnyObject>;

    fn run<S: Content>(self) -> Option<AnyObject> {
        let spec = <S as Content>::decode(self.root, self.cx)?;
        let raw = S::KIND.is_complete().then(|| raw(self.root));
        let meta = self.meta;
        Some(S::into_any(Arc::new(Object { meta, spec, raw })))
    }
}

/// The object as compact JSON, without fields that the platform writes.
fn raw(root: &Node) -> Arc<str> {
    let mut json = root.to_json();
    if let Some(object) = json.as_object_mut() {
        object.remove("status");
        if let Some(meta) = object.get_mut("metadata").and_then(|m| m.as_object_mut()) {
            meta.remove("managedFields");
        }
    }
    json.to_string().into()
}
