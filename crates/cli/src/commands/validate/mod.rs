//! `rutter validate`: what a control plane would say about files, without one.

mod api;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use config::schema::find_kind;
use config::{AnyObject, Diagnostic, Kind, ObjectKey, ParseOptions, Severity};
use serde_json::{Value as Json, json};

use api::Judge;

use super::flag;
use crate::failure::{FAILURE, SUCCESS, usage};
use crate::io::Io;
use crate::manifests::{self, Manifest};
use crate::snippet;

pub(super) fn command() -> Command {
    let paths = |name: &'static str| {
        Arg::new(name)
            .value_parser(value_parser!(PathBuf))
            .action(ArgAction::Append)
    };
    Command::new("validate")
        .about("Check files of objects, without a server; each problem with file, line and column")
        .after_help(
            "Exit codes: 0 no errors, 1 errors.\n\n\
             Examples:\n  rutter validate -f mesh.yaml\n  rutter validate config/\n  rutter validate - -o json < mesh.yaml",
        )
        .arg(
            paths("paths")
                .num_args(0..)
                .value_name("PATH")
                .help("Files, or directories with all that is below them; `-` is standard input"),
        )
        .arg(paths("file").short('f').long("filename").value_name("PATH").help("The same"))
        // What `apply` has; directories are whole here in any case.
        .arg(flag("recursive", "Accepted for apply's sake: directories are read whole").short('R').hide(true))
        .arg(flag("lenient", "Take a field that a kind does not have for a warning, as serving does, and not for an error"))
        .arg(flag("strict", "Take warnings for errors, too").conflicts_with("lenient"))
        .arg(
            Arg::new("namespace")
                .short('n')
                .long("namespace")
                .value_name("NAME")
                .default_value("default")
                .help("The namespace of objects that name none"),
        )
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FORMAT")
                .value_parser(["text", "short", "json"])
                .default_value("text")
                .help("text shows each line that a problem is about, short is a line for each problem"),
        )
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let namespace = matches.get_one::<String>("namespace").map_or("default", String::as_str);
    let lenient = matches.get_flag("lenient");
    let unknown = if lenient { Severity::Warning } else { Severity::Error };
    let given = |name| matches.get_many::<PathBuf>(name).into_iter().flatten();
    let paths: Vec<&PathBuf> = given("paths").chain(given("file")).collect();
    ensure!(!paths.is_empty(), usage("which files? `rutter validate FILE…`"));
    let mut checked = Checked {
        options: ParseOptions {
            strict: !lenient,
            default_namespace: namespace.into(),
            ..ParseOptions::default()
        },
        judge: Judge::new(namespace, unknown),
        objects: 0,
        said: Vec::new(),
        texts: HashMap::new(),
    };
    for path in paths {
        match path.is_dir() {
            true => checked.directory(path, io)?,
            false => checked.file(path, io)?,
        }
    }
    let worst = if matches.get_flag("strict") {
        Severity::Warning
    } else {
        Severity::Error
    };
    checked.report(matches.get_one::<String>("output").map_or("text", String::as_str), io)?;
    let bad = checked.said.iter().any(|diagnostic| diagnostic.severity >= worst);
    Ok(if bad { FAILURE } else { SUCCESS })
}

/// What was found so far.
struct Checked {
    options: ParseOptions,
    judge: Judge,
    /// How many objects have no error.
    objects: usize,
    said: Vec<Diagnostic>,
    /// What the files hold.
    texts: HashMap<Arc<str>, Vec<u8>>,
}

impl Checked {
    fn file(&mut self, path: &Path, io: &mut Io) -> Result<()> {
        let bytes = manifests::bytes_of(path, io)?;
        let file = manifests::name_of(path);
        let parsed = config::parse_documents(&bytes, &file, &self.options);
        let valid = parsed.objects.iter().map(AnyObject::key).collect();
        self.take(file, bytes, valid, parsed.diagnostics);
        Ok(())
    }

    /// All files of a directory together: what is in two of them is told.
    fn directory(&mut self, path: &Path, io: &mut Io) -> Result<()> {
        let change = sources::files::load(path, &self.options)?;
        let valid: BTreeSet<ObjectKey> = change.upserts.iter().map(AnyObject::key).collect();
        let mut said: HashMap<PathBuf, Vec<Diagnostic>> = HashMap::new();
        for diagnostic in change.diagnostics.into_values().flatten() {
            let file = diagnostic.file.as_deref().unwrap_or_default();
            said.entry(path.join(file)).or_default().push(diagnostic);
        }
        for file in manifests::files(&[path.to_owned()], true)? {
            let bytes = manifests::bytes_of(&file, io)?;
            let mut found = said.remove(&file).unwrap_or_default();
            let name = file.display().to_string();
            for diagnostic in &mut found {
                diagnostic.file = Some(name.as_str().into());
            }
            self.take(name, bytes, valid.clone(), found);
        }
        // What is wrong with the directory itself, or with files that are gone meanwhile.
        self.said.extend(said.into_values().flatten());
        Ok(())
    }

    /// Adds what is wrong with a file. `valid` are objects with which the mesh finds nothing wrong, and `found` is what it
    /// says about the file.
    fn take(&mut self, file: String, bytes: Vec<u8>, valid: BTreeSet<ObjectKey>, mut found: Vec<Diagnostic>) {
        for manifest in manifests::readable(&bytes, &file) {
            let mut judged = self.judge.judge(&manifest);
            if judged.iter().any(|one| one.code == "unknown-kind") {
                found.retain(|one| one.code != "not-implemented-yet" || one.line != manifest.line);
            }
            let refused = judged.iter().any(Diagnostic::is_error);
            if !refused && self.is_valid(&manifest, &valid) {
                self.objects += 1;
            }
            judged.retain(|one| !found.iter().any(|known| is_same(known, one)));
            found.extend(judged);
        }
        found.sort_by_key(|one| (one.line, one.column));
        self.said.extend(found);
        self.texts.insert(file.into(), bytes);
    }

    fn is_valid(&self, manifest: &Manifest, valid: &BTreeSet<ObjectKey>) -> bool {
        let group = manifest.api_version().rsplit_once('/').map_or("", |(group, _)| group);
        match Kind::find(group, manifest.kind()) {
            Some(kind) => {
                let namespace = manifest.namespace().unwrap_or(&self.judge.namespace);
                let is_it = |key: &&ObjectKey| {
                    key.kind == kind
                        && *key.name == *manifest.name()
                        && (key.namespace.is_empty() || *key.namespace == *namespace)
                };
                valid.iter().any(|key| is_it(&key))
            }
            // Of other kinds there is only the API's word, if that knows them.
            None => find_kind(group, manifest.kind()).is_some(),
        }
    }

    fn report(&self, format: &str, io: &mut Io) -> Result<()> {
        let count = |severity| self.said.iter().filter(|one| one.severity == severity).count();
        let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
        if format == "json" {
            let all: Vec<Json> = self.said.iter().map(as_json).collect();
            let whole = json!({"objects": self.objects, "errors": errors, "warnings": warnings, "diagnostics": all});
            return Ok(io.say(serde_json::to_string_pretty(&whole)?)?);
        }
        for diagnostic in &self.said {
            if format == "short" {
                io.say(diagnostic.to_string())?;
                continue;
            }
            let text = diagnostic.file.as_ref().and_then(|file| self.texts.get(file));
            let bytes = text.map(Vec::as_slice).unwrap_or_default();
            io.say(snippet::render(diagnostic, bytes, io.terminal.colour) + "\n")?;
        }
        let counted = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        Ok(io.say(format!(
            "{}, {}, {}",
            counted(self.objects, "valid object"),
            counted(errors, "error"),
            counted(warnings, "warning")
        ))?)
    }
}

/// Whether two say the same: both find something wrong with the same field. One may stand at the key, one at the value.
fn is_same(known: &Diagnostic, other: &Diagnostic) -> bool {
    known.path == other.path && (other.line..=other.line.saturating_add(1)).contains(&known.line)
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
