//! `rutter validate`: checks files like a server and the control plane. Only `--live` connects to a server.

mod api;
mod live;
mod references;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use config::schema::find_kind;
use config::{AnyObject, Diagnostic, Kind, ObjectKey, ParseOptions, Severity, locate};
use serde_json::{Value as Json, json};

use api::ApiValidator;
use live::Live;

use crate::failure::{FAILURE, SUCCESS, usage};
use crate::flags::{self, flag};
use crate::io::Io;
use crate::manifests::{self, Manifest};
use crate::server::{self, Server};
use crate::snippet;

pub(super) fn command() -> Command {
    let paths = |name: &'static str| Arg::new(name).value_parser(value_parser!(PathBuf)).action(ArgAction::Append);
    let command = Command::new("validate")
        .about("Check files of objects without a server")
        .after_help(
            "Reports each problem with file, line and column. References are checked among the files: to kinds of which they have \
             objects. With --live, they are checked among the files and the objects of a server.\n\nExit codes: 0 no errors, 1 errors.\n\n\
             Examples:\n  rutter validate -f mesh.yaml\n  rutter validate config/\n  rutter validate - -o json < mesh.yaml\n  \
             rutter validate --live mesh.yaml",
        )
        .arg(
            paths("paths")
                .num_args(0..)
                .value_name("PATH")
                .help("Files or directories, which are read recursively; `-` reads standard input"),
        )
        .arg(paths("file").short('f').long("filename").value_name("PATH").help("Like PATH"))
        // `apply` has this flag; validate always reads directories recursively.
        .arg(flag("recursive", "Accepted for compatibility with apply: directories are always read recursively").short('R').hide(true))
        .arg(flag("lenient", "Report unknown fields as warnings, not as errors"))
        .arg(flag("strict", "Fail on warnings").conflicts_with("lenient"))
        .arg(flag("live", "Check references among the objects of the server, too"))
        .arg(
            flags::format("Output format: text (with source lines), short (a line for each problem) or json")
                .value_parser(["text", "short", "json"])
                .default_value("text"),
        );
    server::arguments(command).mut_arg("namespace", |namespace| {
        namespace.help("Namespace of objects without one [default: default; with --live that of the context]")
    })
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let server = match matches.get_flag("live") {
        true => Some(Server::connect(matches, io).await?),
        false => None,
    };
    let given = matches.get_one::<String>("namespace").map(String::as_str);
    let namespace = given.or(server.as_ref().map(|server| server.namespace.as_str())).unwrap_or("default");
    let lenient = matches.get_flag("lenient");
    let unknown = if lenient { Severity::Warning } else { Severity::Error };
    let given = |name| matches.get_many::<PathBuf>(name).into_iter().flatten();
    let paths: Vec<&PathBuf> = given("paths").chain(given("file")).collect();
    ensure!(!paths.is_empty(), usage("expected files: `rutter validate FILE…`"));
    let mut results = Results {
        options: ParseOptions { strict: !lenient, default_namespace: namespace.into(), ..ParseOptions::default() },
        api: ApiValidator::new(namespace, unknown),
        objects: 0,
        accepted: Vec::new(),
        diagnostics: Vec::new(),
        texts: HashMap::new(),
    };
    for path in paths {
        match path.is_dir() {
            true => results.directory(path, io)?,
            false => results.file(path, io)?,
        }
    }
    let live = match &server {
        Some(server) => Live::read(server, io).await?,
        None => Live::default(),
    };
    results.references(&live);
    let worst = if matches.get_flag("strict") { Severity::Warning } else { Severity::Error };
    results.report(matches.get_one::<String>("output").map_or("text", String::as_str), io)?;
    let bad = results.diagnostics.iter().any(|diagnostic| diagnostic.severity >= worst);
    Ok(if bad { FAILURE } else { SUCCESS })
}

/// The results so far.
struct Results {
    options: ParseOptions,
    api: ApiValidator,
    /// The number of objects without errors.
    objects: usize,
    /// The objects that the control plane accepts, with their files.
    accepted: Vec<(Arc<str>, AnyObject)>,
    diagnostics: Vec<Diagnostic>,
    /// The content of the files.
    texts: HashMap<Arc<str>, Vec<u8>>,
}

impl Results {
    fn file(&mut self, path: &Path, io: &mut Io) -> Result<()> {
        let bytes = manifests::bytes_of(path, io)?;
        let file = manifests::name_of(path);
        let parsed = config::parse_documents(&bytes, &file, &self.options);
        let valid = parsed.objects.iter().map(AnyObject::key).collect();
        let name: Arc<str> = file.as_str().into();
        self.accepted.extend(parsed.objects.into_iter().map(|object| (name.clone(), object)));
        self.take(file, bytes, valid, parsed.diagnostics);
        Ok(())
    }

    /// Checks all files of a directory together, so that duplicates are found.
    fn directory(&mut self, path: &Path, io: &mut Io) -> Result<()> {
        let change = sources::files::load(path, &self.options)?;
        let valid: BTreeSet<ObjectKey> = change.upserts.keys().cloned().collect();
        self.accepted.extend(change.upserts.into_values().map(|object| {
            let file = object.meta().origin.as_ref().map(|origin| path.join(&*origin.file)).unwrap_or_default();
            (file.display().to_string().into(), object)
        }));
        let mut by_file: HashMap<PathBuf, Vec<Diagnostic>> = HashMap::new();
        for diagnostic in change.diagnostics.into_values().flatten() {
            let file = diagnostic.file.as_deref().unwrap_or_default();
            by_file.entry(path.join(file)).or_default().push(diagnostic);
        }
        for file in manifests::files(&[path.to_owned()], true)? {
            let bytes = manifests::bytes_of(&file, io)?;
            let mut found = by_file.remove(&file).unwrap_or_default();
            let name = file.display().to_string();
            for diagnostic in &mut found {
                diagnostic.file = Some(name.as_str().into());
            }
            self.take(name, bytes, valid.clone(), found);
        }
        // Problems of the directory itself and of files deleted in the meantime.
        self.diagnostics.extend(by_file.into_values().flatten());
        Ok(())
    }

    /// Adds the problems of a file. `valid` are the objects that the control plane accepts, `found` are the diagnostics of the
    /// control plane for the file.
    fn take(&mut self, file: String, bytes: Vec<u8>, valid: BTreeSet<ObjectKey>, mut found: Vec<Diagnostic>) {
        for manifest in manifests::readable(&bytes, &file) {
            let mut rejected = self.api.validate(&manifest);
            if rejected.iter().any(|one| one.code == "unknown-kind") {
                found.retain(|one| one.code != "not-implemented-yet" || one.line != manifest.line);
            }
            let invalid = rejected.iter().any(Diagnostic::is_error);
            if !invalid && self.is_valid(&manifest, &valid) {
                self.objects += 1;
            }
            rejected.retain(|one| !found.iter().any(|known| is_same(known, one)));
            found.extend(rejected);
        }
        found.sort_by_key(|one| (one.line, one.column));
        self.diagnostics.extend(found);
        self.texts.insert(file.into(), bytes);
    }

    /// Adds warnings about references that do not resolve, each at its field.
    fn references(&mut self, live: &Live) {
        for mut diagnostic in references::unresolved(&self.accepted, live) {
            let text = diagnostic.file.as_ref().and_then(|file| self.texts.get(file));
            let at = text.and_then(|text| locate(text, diagnostic.line, &diagnostic.path, &self.options.limits));
            if let Some(at) = at {
                (diagnostic.line, diagnostic.column) = at;
            }
            self.diagnostics.push(diagnostic);
        }
    }

    fn is_valid(&self, manifest: &Manifest, valid: &BTreeSet<ObjectKey>) -> bool {
        let group = manifest.api_version().rsplit_once('/').map_or("", |(group, _)| group);
        match Kind::find(group, manifest.kind()) {
            Some(kind) => {
                let namespace = manifest.namespace().unwrap_or(&self.api.namespace);
                let is_it = |key: &&ObjectKey| {
                    key.kind == kind
                        && *key.name == *manifest.name()
                        && (key.namespace.is_empty() || *key.namespace == *namespace)
                };
                valid.iter().any(|key| is_it(&key))
            }
            // The control plane does not read other kinds; only the API validates them.
            None => find_kind(group, manifest.kind()).is_some(),
        }
    }

    fn report(&self, format: &str, io: &mut Io) -> Result<()> {
        let count = |severity| self.diagnostics.iter().filter(|one| one.severity == severity).count();
        let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
        if format == "json" {
            let all: Vec<Json> = self.diagnostics.iter().map(as_json).collect();
            let whole = json!({"objects": self.objects, "errors": errors, "warnings": warnings, "diagnostics": all});
            return Ok(io.print(serde_json::to_string_pretty(&whole)?)?);
        }
        for diagnostic in &self.diagnostics {
            if format == "short" {
                io.print(diagnostic.to_string())?;
                continue;
            }
            let text = diagnostic.file.as_ref().and_then(|file| self.texts.get(file));
            let bytes = text.map(Vec::as_slice).unwrap_or_default();
            io.print(snippet::render(diagnostic, bytes, io.terminal.color) + "\n")?;
        }
        let counted = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        Ok(io.print(format!(
            "{}, {}, {}",
            counted(self.objects, "valid object"),
            counted(errors, "error"),
            counted(warnings, "warning")
        ))?)
    }
}

/// Whether the control plane reports the problem of the API already. One may point to the key, the other to the value; and
/// the API reports a violated rule for the message, the control plane for its field.
fn is_same(known: &Diagnostic, other: &Diagnostic) -> bool {
    if known.severity < other.severity {
        return false;
    }
    if known.path == other.path {
        return (other.line..=other.line.saturating_add(1)).contains(&known.line);
    }
    let (field, message) = (known.path.segments(), other.path.segments());
    known.object == other.object
        && other.code == "invalid"
        && field.len() == message.len() + 1
        && field.starts_with(message)
}

fn as_json(diagnostic: &Diagnostic) -> Json {
    json!({
        "file": diagnostic.file.as_deref(),
        "line": diagnostic.line,
        "column": diagnostic.column,
        "object": diagnostic.object.as_ref().map(ToString::to_string),
        "path": diagnostic.path.to_string(),
        "severity": diagnostic.severity.name(),
        "code": diagnostic.code,
        "message": diagnostic.message,
        "hint": diagnostic.hint,
    })
}
