//! Objects from files, directories and standard input.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::{ArgAction, ArgMatches, Command, value_parser};
use config::{Diagnostic, FieldPath, Limits, Severity};
use serde_json::Value as Json;

use crate::failure::usage;
use crate::flags::{flag, option};
use crate::io::Io;
use crate::snippet;

/// Maximum number of files.
const MAX_FILES: usize = 100_000;
/// Maximum depth of directories.
const MAX_DEPTH: usize = 32;
/// Maximum nesting of lists.
const MAX_LISTS: usize = 8;

/// A file and its content.
#[derive(PartialEq, Eq)]
pub(crate) struct Source {
    /// The path; `<stdin>` for standard input.
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// An object and its position in a file.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Manifest {
    pub(crate) value: Json,
    pub(crate) source: Arc<Source>,
    /// The line of the first key of its document.
    pub(crate) line: u32,
    /// The path of the object in its document: `items[2].` in a list, else empty.
    pub(crate) prefix: String,
}

impl Manifest {
    pub(crate) fn api_version(&self) -> &str {
        self.value["apiVersion"].as_str().unwrap_or_default()
    }

    pub(crate) fn kind(&self) -> &str {
        self.value["kind"].as_str().unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &str {
        self.value["metadata"]["name"].as_str().unwrap_or_default()
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.value["metadata"]["namespace"].as_str().filter(|namespace| !namespace.is_empty())
    }

    /// `FILE:LINE`.
    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.source.name, self.line)
    }

    /// Line and column of a field; those of the document if the field is not found.
    pub(crate) fn locate(&self, field: &str) -> (u32, u32) {
        let path = FieldPath::parse(&format!("{}{field}", self.prefix));
        let found = config::locate(&self.source.bytes, self.line, &path, &Limits::default());
        found.unwrap_or((self.line, 1))
    }

    /// An error at a field.
    pub(crate) fn error(&self, field: &str, code: &'static str, message: String) -> Diagnostic {
        let (line, column) = self.locate(field);
        Diagnostic {
            file: Some(self.source.name.as_str().into()),
            line,
            column,
            object: None,
            path: FieldPath::root(),
            severity: Severity::Error,
            code,
            message,
            hint: None,
        }
    }

    /// `KIND NAMESPACE/NAME`, for messages.
    pub(crate) fn label(&self) -> String {
        match self.namespace() {
            Some(namespace) => format!("{} {namespace}/{}", self.kind(), self.name()),
            None => format!("{} {}", self.kind(), self.name()),
        }
    }
}

/// Adds `-f` and `-R`.
pub(crate) fn arguments(command: Command, required: bool) -> Command {
    command
        .arg(
            option("filename", "FILE", "Files or directories with objects; `-` reads standard input")
                .short('f')
                .value_parser(value_parser!(PathBuf))
                .action(ArgAction::Append)
                .value_delimiter(',')
                .required(required),
        )
        .arg(flag("recursive", "Read directories recursively").short('R').requires("filename"))
}

/// Reads the objects of all files, in order. Prints all syntax errors and fails if there is one, so that a command never
/// processes only a part of the files.
pub(crate) fn read(matches: &ArgMatches, io: &mut Io) -> Result<Vec<Manifest>> {
    let paths: Vec<PathBuf> = matches.get_many::<PathBuf>("filename").into_iter().flatten().cloned().collect();
    let mut found = Vec::new();
    let mut bad = 0;
    for path in files(&paths, matches.get_flag("recursive"))? {
        let bytes = bytes_of(&path, io)?;
        let parsed = parse(&bytes, &name_of(&path))?;
        for error in &parsed.errors {
            io.eprint(snippet::render(error, &bytes, io.terminal.color_err));
            bad += 1;
        }
        found.extend(parsed.manifests);
    }
    ensure!(bad == 0, "{bad} {} could not be read; nothing was sent", if bad == 1 { "document" } else { "documents" });
    ensure!(!found.is_empty(), "there is no object in {}", list_of(&paths));
    warn_of_duplicates(&found, io);
    Ok(found)
}

/// The content of a file.
pub(crate) struct Parsed {
    pub(crate) manifests: Vec<Manifest>,
    /// Syntax errors and duplicate keys.
    pub(crate) errors: Vec<Diagnostic>,
}

/// Parses a file. Fails if a document is not an object.
pub(crate) fn parse(bytes: &[u8], file: &str) -> Result<Parsed> {
    let source = source(bytes, file);
    let read = config::parse_yaml_json(bytes, file, &Limits::default());
    let mut parsed = Parsed { manifests: Vec::new(), errors: read.errors };
    for document in read.documents {
        parsed.errors.extend(document.duplicates);
        let whole = whole(document.value, document.line, &source);
        open(whole, 0, &mut parsed.manifests)?;
    }
    Ok(parsed)
}

/// The objects of a file, without documents that cannot be parsed.
pub(crate) fn readable(bytes: &[u8], file: &str) -> Vec<Manifest> {
    let source = source(bytes, file);
    let read = config::parse_yaml_json(bytes, file, &Limits::default());
    let mut found = Vec::new();
    for document in read.documents {
        // The caller reports the errors by other means.
        let _ = open(whole(document.value, document.line, &source), 0, &mut found);
    }
    found
}

fn source(bytes: &[u8], file: &str) -> Arc<Source> {
    Arc::new(Source { name: file.to_owned(), bytes: bytes.to_owned() })
}

fn whole(value: Json, line: u32, source: &Arc<Source>) -> Manifest {
    Manifest { value, source: source.clone(), line, prefix: String::new() }
}

/// Flattens lists and checks that the other documents are objects.
fn open(manifest: Manifest, depth: usize, out: &mut Vec<Manifest>) -> Result<()> {
    let place = manifest.place();
    if manifest.value.is_null() {
        return Ok(());
    }
    ensure!(manifest.value.is_object(), "{place}: expected an object with `apiVersion` and `kind`");
    if manifest.kind().ends_with("List") && manifest.value["items"].is_array() {
        ensure!(depth < MAX_LISTS, "{place}: lists are nested more than {MAX_LISTS} deep");
        let Json::Array(items) = manifest.value["items"].clone() else {
            return Ok(());
        };
        for (index, value) in items.into_iter().enumerate() {
            let item = Manifest {
                value,
                source: manifest.source.clone(),
                line: manifest.line,
                prefix: format!("{}items[{index}].", manifest.prefix),
            };
            open(item, depth + 1, out)?;
        }
        return Ok(());
    }
    ensure!(!manifest.api_version().is_empty(), "{place}: `apiVersion` is missing");
    ensure!(!manifest.kind().is_empty(), "{place}: `kind` is missing");
    ensure!(
        manifest.value["metadata"].is_object() || manifest.value.get("metadata").is_none_or(Json::is_null),
        "{place}: `metadata` is not an object"
    );
    out.push(manifest);
    Ok(())
}

/// The documents of a text with their lines.
pub(crate) fn parse_text(bytes: &[u8]) -> Result<Vec<(Json, u32)>> {
    let read = config::parse_yaml_json(bytes, "", &Limits::default());
    let duplicates = read.documents.iter().flat_map(|document| &document.duplicates);
    if let Some(error) = read.errors.iter().chain(duplicates).next() {
        bail!("line {}, column {}: {}", error.line, error.column, error.message);
    }
    Ok(read.documents.into_iter().map(|document| (document.value, document.line)).collect())
}

/// Expands paths: a file to itself, a directory to its YAML and JSON files, by name.
pub(crate) fn files(paths: &[PathBuf], recursive: bool) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in paths {
        let text = path.to_string_lossy();
        if text.starts_with("http://") || text.starts_with("https://") {
            return Err(usage(format!("{text}: URLs are not supported: use `curl -sfL {text} | rutter … -f -`")));
        }
        if path.is_dir() {
            let before = all.len();
            directory(path, recursive, 0, &mut all)?;
            ensure!(
                all.len() > before,
                "{} contains no .yaml, .yml or .json file{}",
                path.display(),
                if recursive { "" } else { "; use -R to include subdirectories" }
            );
        } else {
            all.push(path.clone());
        }
        ensure!(all.len() <= MAX_FILES, "more than {MAX_FILES} files");
    }
    Ok(all)
}

fn directory(path: &Path, recursive: bool, depth: usize, all: &mut Vec<PathBuf>) -> Result<()> {
    ensure!(depth <= MAX_DEPTH, "{}: more than {MAX_DEPTH} directories deep", path.display());
    let mut entries = Vec::new();
    for entry in fs::read_dir(path).with_context(|| path.display().to_string())? {
        entries.push(entry.with_context(|| path.display().to_string())?.path());
        ensure!(entries.len() <= MAX_FILES, "{}: more than {MAX_FILES} files", path.display());
    }
    entries.sort();
    for entry in entries {
        // Symbolic links to directories are not followed: they may form a cycle.
        if entry.is_dir() {
            if recursive && !entry.is_symlink() {
                directory(&entry, recursive, depth + 1, all)?;
            }
        } else if entry.extension().is_some_and(|end| end == "yaml" || end == "yml" || end == "json") {
            all.push(entry);
        }
    }
    Ok(())
}

/// The name of a path in messages.
pub(crate) fn name_of(path: &Path) -> String {
    match path.as_os_str() == "-" {
        true => "<stdin>".to_owned(),
        false => path.display().to_string(),
    }
}

/// Reads a file, or standard input for `-`. Reads at most one byte more than the limit, which the parser then rejects.
pub(crate) fn bytes_of(path: &Path, io: &mut Io) -> Result<Vec<u8>> {
    let limit = Limits::default().file_bytes as u64 + 1;
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        let mut input = std::mem::replace(&mut io.stdin, Box::new(std::io::empty()));
        input.by_ref().take(limit).read_to_end(&mut bytes).context("standard input")?;
        io.stdin = input;
    } else {
        let file = fs::File::open(path).map_err(|error| anyhow!("{}: {error}", path.display()))?;
        file.take(limit).read_to_end(&mut bytes).with_context(|| path.display().to_string())?;
    }
    Ok(bytes)
}

fn warn_of_duplicates(found: &[Manifest], io: &mut Io) {
    let mut seen: HashMap<_, &Manifest> = HashMap::new();
    for manifest in found.iter().filter(|manifest| !manifest.name().is_empty()) {
        let group = manifest.api_version().rsplit_once('/').map_or("", |(group, _)| group);
        let key = (group, manifest.kind(), manifest.namespace(), manifest.name());
        if let Some(earlier) = seen.insert(key, manifest) {
            io.warn(format!(
                "{}: {} {} is already defined at {}; the later definition is used",
                manifest.place(),
                manifest.kind(),
                manifest.name(),
                earlier.place()
            ));
        }
    }
}

fn list_of(paths: &[PathBuf]) -> String {
    let shown: Vec<String> = paths.iter().map(|path| name_of(path)).collect();
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn manifests(text: &str) -> Result<Vec<(String, u32)>> {
        let parsed = parse(text.as_bytes(), "f")?;
        Ok(parsed.manifests.iter().map(|m| (m.name().to_owned(), m.line)).collect())
    }

    #[test]
    fn lists_are_flattened_and_empty_documents_skipped() {
        let text = "---\n# nothing\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: A, metadata: {name: a}}\n\
                    - {apiVersion: v1, kind: B, metadata: {name: b}}\n---\napiVersion: v1\nkind: C\nmetadata: {name: c}\n";
        let names: Vec<String> = manifests(text).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(manifests(text).unwrap()[2].1, 10);
    }

    #[test]
    fn documents_that_are_not_objects_are_rejected() {
        for (text, expected) in [
            ("kind: A", "f:1: `apiVersion`"),
            ("\napiVersion: v1", "f:2: `kind`"),
            ("- 1", "f:1: expected an object"),
            ("{apiVersion: v1, kind: A, metadata: 7}", "f:1: `metadata`"),
        ] {
            let error = manifests(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        let mut nested = "{apiVersion: v1, kind: A}".to_owned();
        for _ in 0..=MAX_LISTS {
            nested = format!("{{kind: List, items: [{nested}]}}");
        }
        assert!(manifests(&nested).unwrap_err().to_string().contains("lists are nested"));
    }

    #[test]
    fn directories_are_expanded_by_name() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        for name in ["b.yaml", "a.json", "c.txt", "sub/d.yml"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let names = |recursive| -> Vec<String> {
            let found = files(&[dir.path().to_owned()], recursive).unwrap();
            found.iter().map(|p| p.strip_prefix(dir.path()).unwrap().display().to_string()).collect()
        };
        assert_eq!(names(false), ["a.json", "b.yaml"]);
        assert_eq!(names(true), ["a.json", "b.yaml", "sub/d.yml"]);
        fs::create_dir(dir.path().join("none")).unwrap();
        assert!(files(&[dir.path().join("none")], true).is_err());
        assert!(files(&["https://a.example/x.yaml".into()], true).is_err());
    }

    proptest! {
        #[test]
        fn parsing_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "[-a-z:{}\\[\\], \n\"'|&*]{0,80}") {
            let _ = parse(&bytes, "f");
            let _ = parse(text.as_bytes(), "f");
        }
    }
}
