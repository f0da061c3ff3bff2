//! Which objects are in force, given the contents of files: no file system, no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use resources::{AnyObject, Diagnostic, FieldPath, ObjectKey, ParseOptions, Parsed, Severity, parse_documents};
use xxhash_rust::xxh3::xxh3_128;

use crate::files::Change;

/// The files of a directory and the objects in them.
#[derive(Debug)]
pub struct Directory {
    options: ParseOptions,
    files: BTreeMap<PathBuf, File>,
    /// The files that hold each object; the first one wins.
    holders: BTreeMap<ObjectKey, BTreeSet<PathBuf>>,
}

#[derive(Debug)]
struct File {
    name: Arc<str>,
    hash: u128,
    objects: BTreeMap<ObjectKey, AnyObject>,
    /// What parsing said; what other files have to do with it is added when it is asked for.
    diagnostics: Vec<Diagnostic>,
    /// What was said last.
    said: Vec<Diagnostic>,
}

/// What happened to a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// It is there, with these bytes.
    Bytes(Vec<u8>),
    /// It is there, but cannot be read, for this reason.
    Unreadable(String),
    /// It is gone.
    Gone,
}

impl Directory {
    /// A directory without files.
    pub fn new(options: ParseOptions) -> Directory {
        Directory { options, files: BTreeMap::new(), holders: BTreeMap::new() }
    }

    /// The paths of the files that are known.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.keys().map(PathBuf::as_path)
    }

    /// Takes in what happened to files and says what that changes.
    pub fn apply(&mut self, contents: impl IntoIterator<Item = (PathBuf, Content)>) -> Change {
        let mut before: BTreeMap<ObjectKey, Option<AnyObject>> = BTreeMap::new();
        let mut touched = BTreeSet::new();
        let mut gone = BTreeMap::new();
        for (path, content) in contents {
            let Some(next) = self.next_file(&path, content) else {
                continue;
            };
            self.replace(&path, next, &mut before, &mut gone);
            touched.insert(path);
        }
        let mut change = Change::default();
        for (key, before) in before {
            touched.extend(self.holders.get(&key).into_iter().flatten().cloned());
            match self.winner(&key) {
                after if after == before.as_ref() => {}
                Some(after) => change.upserts.push(after.clone()),
                None => change.deletes.push(key),
            }
        }
        change.diagnostics = gone;
        for path in touched {
            self.say(&path, &mut change);
        }
        change
    }

    /// The state of a file after what happened to it; `None` if that is nothing new, `Some(None)` if it is gone.
    fn next_file(&self, path: &Path, content: Content) -> Option<Option<File>> {
        let old = self.files.get(path);
        let name = || old.map_or_else(|| path.to_string_lossy().into(), |f| f.name.clone());
        match content {
            Content::Gone => old.is_some().then_some(None),
            Content::Unreadable(reason) => {
                let file = name();
                let message = format!("the file cannot be read: {reason}");
                let diagnostics = vec![about_file(&file, Severity::Error, "unreadable", message)];
                let objects = old.map(|f| f.objects.clone()).unwrap_or_default();
                // No content has this hash by accident, so that the file is looked at again.
                Some(Some(File { name: file, hash: 0, objects, diagnostics, said: said(old) }))
            }
            Content::Bytes(bytes) => {
                let hash = xxh3_128(&bytes);
                if old.is_some_and(|f| f.hash == hash) {
                    return None;
                }
                let file = name();
                let parsed = parse_documents(&bytes, &file, &self.options);
                let (objects, diagnostics) = keep_last_good(parsed, old, &file);
                Some(Some(File { name: file, hash, objects, diagnostics, said: said(old) }))
            }
        }
    }

    /// Puts a file's new state in place of the old one, and remembers what was in force for each object of either.
    fn replace(
        &mut self,
        path: &Path,
        next: Option<File>,
        before: &mut BTreeMap<ObjectKey, Option<AnyObject>>,
        gone: &mut BTreeMap<Arc<str>, Vec<Diagnostic>>,
    ) {
        let old_keys = self.files.get(path).into_iter().flat_map(|f| f.objects.keys());
        let new_keys = next.iter().flat_map(|f| f.objects.keys());
        let keys: BTreeSet<ObjectKey> = old_keys.chain(new_keys).cloned().collect();
        for key in keys {
            if !before.contains_key(&key) {
                before.insert(key.clone(), self.winner(&key).cloned());
            }
            let holds = next.as_ref().is_some_and(|f| f.objects.contains_key(&key));
            let holders = self.holders.entry(key.clone()).or_default();
            match holds {
                true => holders.insert(path.to_owned()),
                false => holders.remove(path),
            };
            if holders.is_empty() {
                self.holders.remove(&key);
            }
        }
        match next {
            Some(file) => drop(self.files.insert(path.to_owned(), file)),
            None => {
                let file = self.files.remove(path);
                if let Some(file) = file.filter(|f| !f.said.is_empty()) {
                    gone.insert(file.name, Vec::new());
                }
            }
        }
    }

    /// The object that is in force.
    fn winner(&self, key: &ObjectKey) -> Option<&AnyObject> {
        let first = self.holders.get(key)?.first()?;
        self.files.get(first)?.objects.get(key)
    }

    /// Adds what is to be said about a file, if it is not what was said last.
    fn say(&mut self, path: &Path, change: &mut Change) {
        let Some(file) = self.files.get(path) else {
            return;
        };
        let mut diagnostics = file.diagnostics.clone();
        for (key, object) in &file.objects {
            let first = self.holders.get(key).and_then(|holders| holders.first());
            if let Some(first) = first.filter(|first| *first != path).and_then(|first| self.files.get(first)) {
                diagnostics.push(ignored(object, first));
            }
        }
        diagnostics.sort();
        if let Some(file) = self.files.get_mut(path).filter(|f| f.said != diagnostics) {
            file.said.clone_from(&diagnostics);
            change.diagnostics.insert(file.name.clone(), diagnostics);
        }
    }
}

fn said(old: Option<&File>) -> Vec<Diagnostic> {
    old.map(|f| f.said.clone()).unwrap_or_default()
}

/// The objects of a file, where refused ones stay as they last were, and with a note that says so.
fn keep_last_good(
    parsed: Parsed,
    old: Option<&File>,
    file: &Arc<str>,
) -> (BTreeMap<ObjectKey, AnyObject>, Vec<Diagnostic>) {
    let mut objects: BTreeMap<ObjectKey, AnyObject> = parsed.objects.into_iter().map(|o| (o.key(), o)).collect();
    let mut diagnostics = parsed.diagnostics;
    for (key, last) in old.into_iter().flat_map(|f| &f.objects) {
        // An unreadable document may be any of those that are missing now.
        let refused = parsed.refused.contains(key);
        if objects.contains_key(key) || !(refused || parsed.unreadable > 0) {
            continue;
        }
        let message = format!("the last good version of {key} stays in force");
        let mut note = about_file(file, Severity::Info, "last-good", message);
        note.object = Some(key.clone());
        diagnostics.push(note);
        objects.insert(key.clone(), last.clone());
    }
    (objects, diagnostics)
}

/// Says that another file has the object, too, and comes first.
fn ignored(object: &AnyObject, first: &File) -> Diagnostic {
    let key = object.key();
    let origin = object.meta().origin.clone();
    let place = first.objects.get(&key).and_then(|o| o.meta().origin.as_ref());
    let place = place.map_or_else(|| first.name.to_string(), |o| format!("{}:{}", o.file, o.line));
    Diagnostic {
        line: origin.as_ref().map_or(0, |o| o.line),
        column: u32::from(origin.is_some()),
        file: origin.map(|o| o.file),
        object: Some(key),
        path: FieldPath::root(),
        severity: Severity::Warning,
        code: "duplicate-object",
        message: format!("the object is also in {place}, which comes first; this one is ignored"),
        hint: None,
    }
}

/// A diagnostic about a file as a whole.
pub(super) fn about_file(file: &Arc<str>, severity: Severity, code: &'static str, message: String) -> Diagnostic {
    let (path, file) = (FieldPath::root(), Some(file.clone()));
    Diagnostic { file, line: 0, column: 0, object: None, path, severity, code, message, hint: None }
}
