//! The state of a directory: the objects of each file, and which file takes precedence if several define an object.
//!
//! Does no I/O, so the handling of invalid, partial and conflicting files can be tested in isolation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::{AnyObject, ChangeSet, Diagnostic, FieldPath, ObjectKey, Observed, ParseOptions, Severity};

/// The files of a directory by name, with their objects.
#[derive(Default)]
pub(crate) struct Directory {
    files: BTreeMap<Arc<str>, File>,
    /// The files that define an object. The first by name in which it is valid takes precedence.
    definitions: BTreeMap<ObjectKey, BTreeSet<Arc<str>>>,
    reported: BTreeMap<Arc<str>, Vec<Diagnostic>>,
    /// The objects touched since the last change, with their version in effect before.
    touched: BTreeMap<ObjectKey, Option<AnyObject>>,
    reporting: BTreeSet<Arc<str>>,
    /// Folders that cannot be listed, with the reasons.
    unreadable_folders: BTreeMap<Arc<str>, String>,
    /// Whether the objects are reported as they are written ([`ParseOptions::originals`]).
    observes: bool,
}

#[derive(Default)]
struct File {
    hash: u128,
    objects: BTreeMap<ObjectKey, AnyObject>,
    /// The objects as they are written, valid or not.
    originals: BTreeMap<ObjectKey, Arc<str>>,
    diagnostics: Vec<Diagnostic>,
}

impl File {
    /// The objects that the file defines, valid or not.
    fn keys(&self) -> BTreeSet<&ObjectKey> {
        self.objects.keys().chain(self.originals.keys()).collect()
    }
}

impl Directory {
    /// The names of the known files.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.files.keys()
    }

    /// Updates the content of a file. Unchanged content costs only a hash.
    pub(crate) fn update(&mut self, name: &Arc<str>, content: &[u8], options: &ParseOptions) {
        let hash = xxhash_rust::xxh3::xxh3_128(content);
        if self.files.get(name).is_some_and(|file| file.hash == hash) {
            return;
        }
        self.observes |= options.originals;
        let before = self.files.remove(name).unwrap_or_default();
        let parsed = config::parse_documents(content, name, options);
        let mut diagnostics = parsed.diagnostics;
        let mut objects = BTreeMap::new();
        for object in parsed.objects {
            let key = object.meta().key();
            if objects.contains_key(&key) {
                diagnostics.push(conflict(
                    name,
                    &object,
                    "duplicate-object",
                    "the file defines this object twice; the first definition is used".into(),
                ));
                continue;
            }
            objects.insert(key, object);
        }
        keep_last_good(&before.objects, &mut objects, &mut diagnostics);
        let mut originals = parsed.originals;
        for (key, original) in before.originals.iter().filter(|(key, _)| objects.contains_key(*key)) {
            originals.entry(key.clone()).or_insert_with(|| original.clone());
        }
        self.replace(name, &before, Some(File { hash, objects, originals, diagnostics }));
    }

    /// Reports that a file cannot be read. Its objects stay in effect.
    pub(crate) fn unreadable(&mut self, name: &Arc<str>, reason: &str) {
        let file = self.files.entry(name.clone()).or_default();
        file.hash = 0;
        file.diagnostics = vec![unreadable(name, "file", reason)];
        self.reporting.insert(name.clone());
    }

    /// Reports the folders that cannot be listed, and no longer those that can be listed again.
    pub(crate) fn set_unreadable_folders(&mut self, folders: &BTreeMap<Arc<str>, String>) {
        if self.unreadable_folders == *folders {
            return;
        }
        self.reporting.extend(self.unreadable_folders.keys().chain(folders.keys()).cloned());
        self.unreadable_folders = folders.clone();
    }

    /// Removes a file and its objects.
    pub(crate) fn remove(&mut self, name: &Arc<str>) {
        if let Some(file) = self.files.remove(name) {
            self.replace(name, &file, None);
        }
    }

    /// Returns the changes since the last call.
    pub(crate) fn settle(&mut self) -> ChangeSet {
        let mut change = ChangeSet::default();
        for (key, before) in std::mem::take(&mut self.touched) {
            self.reporting.extend(self.definitions.get(&key).into_iter().flatten().cloned());
            if self.observes {
                change.observed.insert(key.clone(), self.observed(&key));
            }
            match self.winner(&key).and_then(|(_, file)| file.objects.get(&key)) {
                Some(object) if before.as_ref() == Some(object) => {}
                Some(object) => change.upsert(object.clone()),
                None if before.is_some() => change.delete(key),
                None => {}
            }
        }
        for name in std::mem::take(&mut self.reporting) {
            let now = self.all_diagnostics(&name);
            let before = self.reported.remove(&name).unwrap_or_default();
            if now != before {
                change.diagnostics.insert(name.clone(), now.clone());
            }
            if !now.is_empty() {
                self.reported.insert(name, now);
            }
        }
        change
    }

    /// The file whose version of an object is in effect, or is the first one if none is valid.
    fn winner(&self, key: &ObjectKey) -> Option<(&Arc<str>, &File)> {
        let mut files = self.definitions.get(key)?.iter().filter_map(|name| Some((name, self.files.get(name)?)));
        files.clone().find(|(_, file)| file.objects.contains_key(key)).or_else(|| files.next())
    }

    /// An object as its file defines it.
    fn observed(&self, key: &ObjectKey) -> Option<Observed> {
        let (_, file) = self.winner(key)?;
        let own = file.diagnostics.iter().filter(|diagnostic| diagnostic.object.as_ref() == Some(key));
        let original = file.originals.get(key)?.clone();
        let rejected = own.clone().any(Diagnostic::is_error).then(|| serde_json::from_str(&original).ok()).flatten();
        Some(Observed {
            key: key.clone(),
            uid: Arc::default(),
            generation: 0,
            assigned: false,
            diagnostics: own.cloned().collect(),
            parents: rejected.map(|object| config::parents_of(key.kind, &object)).unwrap_or_default(),
            status: None,
            original: Some(original),
        })
    }

    fn replace(&mut self, name: &Arc<str>, before: &File, after: Option<File>) {
        self.reporting.insert(name.clone());
        for key in before.keys() {
            self.touch(name, key, &before.objects);
            if let Some(files) = self.definitions.get_mut(key) {
                files.remove(name);
                // The diagnostics of the remaining files may change.
                self.reporting.extend(files.iter().cloned());
                if files.is_empty() {
                    self.definitions.remove(key);
                }
            }
        }
        let Some(file) = after else { return };
        for key in file.keys() {
            self.touch(name, key, &before.objects);
            self.definitions.entry(key.clone()).or_default().insert(name.clone());
        }
        self.files.insert(name.clone(), file);
    }

    /// Records the version in effect of an object that a file is about to change. `before` are the file's own objects.
    fn touch(&mut self, name: &Arc<str>, key: &ObjectKey, before: &BTreeMap<ObjectKey, AnyObject>) {
        if self.touched.contains_key(key) {
            return;
        }
        let files = self.definitions.get(key).into_iter().flatten();
        let mut versions = files.filter_map(|file| match file == name {
            true => before.get(key),
            false => self.files.get(file)?.objects.get(key),
        });
        let object = versions.next().cloned();
        self.touched.insert(key.clone(), object);
    }

    /// The diagnostics of a file, including conflicts with other files.
    fn all_diagnostics(&self, name: &Arc<str>) -> Vec<Diagnostic> {
        if let Some(reason) = self.unreadable_folders.get(name) {
            return vec![unreadable(name, "folder", reason)];
        }
        let Some(file) = self.files.get(name) else {
            return Vec::new();
        };
        let mut all = file.diagnostics.clone();
        for (key, object) in &file.objects {
            if let Some((winner, _)) = self.winner(key).filter(|(winner, _)| *winner != name) {
                all.push(conflict(
                    name,
                    object,
                    "defined-twice",
                    format!("{winner} also defines this object and takes precedence"),
                ));
            }
        }
        all
    }
}

/// A file or folder that cannot be read.
fn unreadable(name: &Arc<str>, what: &str, reason: &str) -> Diagnostic {
    Diagnostic {
        file: Some(name.clone()),
        line: 0,
        column: 0,
        object: None,
        path: FieldPath::root(),
        severity: Severity::Error,
        code: if what == "file" { "unreadable-file" } else { "unreadable-folder" },
        message: format!("the {what} cannot be read: {reason}"),
        hint: Some("its previous objects stay in effect until it can be read again".into()),
    }
}

/// Restores the last valid version of objects that the new content defines with errors.
fn keep_last_good(
    before: &BTreeMap<ObjectKey, AnyObject>,
    objects: &mut BTreeMap<ObjectKey, AnyObject>,
    diagnostics: &mut [Diagnostic],
) {
    // If an error cannot be attributed to an object, any missing object may be the invalid one.
    let unknown = diagnostics.iter().any(|d| d.is_error() && d.object.is_none());
    let broken: BTreeSet<&ObjectKey> =
        diagnostics.iter().filter(|d| d.is_error()).filter_map(|d| d.object.as_ref()).collect();
    let keep: Vec<ObjectKey> =
        before.keys().filter(|key| !objects.contains_key(*key) && (unknown || broken.contains(key))).cloned().collect();
    for key in keep {
        for diagnostic in diagnostics.iter_mut().filter(|d| d.is_error() && d.object.as_ref() == Some(&key)) {
            diagnostic.hint.get_or_insert_with(|| "the last valid version stays in effect".into());
        }
        objects.extend(before.get(&key).map(|object| (key.clone(), object.clone())));
    }
}

fn conflict(name: &Arc<str>, object: &AnyObject, code: &'static str, message: String) -> Diagnostic {
    Diagnostic {
        file: Some(name.clone()),
        line: object.meta().origin.as_ref().map_or(0, |o| o.line),
        column: 1,
        object: Some(object.meta().key()),
        path: FieldPath::root(),
        severity: Severity::Warning,
        code,
        message,
        hint: Some("keep one of them".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: &str = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: NAME, namespace: default}\nspec:\n  hosts: [HOST]\n  ports: [{number: 80, name: http, protocol: HTTP}]\n  resolution: DNS\n";

    fn entry(name: &str, host: &str) -> String {
        ENTRY.replace("NAME", name).replace("HOST", host)
    }

    fn put(dir: &mut Directory, name: &str, text: &str) -> ChangeSet {
        dir.update(&name.into(), text.as_bytes(), &ParseOptions::default());
        dir.settle()
    }

    fn names(change: &ChangeSet) -> Vec<&str> {
        change.upserts.values().map(|o| &*o.meta().name).collect()
    }

    #[test]
    fn objects_are_added_and_deleted_with_their_file() {
        let mut dir = Directory::default();
        let change = put(&mut dir, "a.yaml", &(entry("x", "x.com") + "---\n" + &entry("y", "y.com")));
        assert_eq!(names(&change), ["x", "y"]);
        assert!(put(&mut dir, "a.yaml", &(entry("x", "x.com") + "---\n" + &entry("y", "y.com"))).is_empty());
        let change = put(&mut dir, "a.yaml", &entry("y", "z.com"));
        assert_eq!((names(&change), change.deletes.len()), (vec!["y"], 1));
        dir.remove(&"a.yaml".into());
        assert_eq!(dir.settle().deletes.len(), 1);
    }

    #[test]
    fn an_invalid_document_keeps_its_last_valid_object_and_affects_no_other() {
        let mut dir = Directory::default();
        put(&mut dir, "a.yaml", &(entry("x", "x.com") + "---\n" + &entry("y", "y.com")));
        let change = put(&mut dir, "a.yaml", &(entry("x", "-bad-") + "---\n" + &entry("y", "new.com")));
        assert_eq!(names(&change), ["y"]);
        assert!(change.deletes.is_empty());
        assert!(change.diagnostics["a.yaml"].iter().any(Diagnostic::is_error));
        let change = put(&mut dir, "a.yaml", &(entry("x", "good.com") + "---\n" + &entry("y", "new.com")));
        assert_eq!(names(&change), ["x"]);
        assert!(change.diagnostics["a.yaml"].is_empty(), "the error is cleared");
    }

    #[test]
    fn a_file_that_is_not_yaml_keeps_all_objects() {
        let mut dir = Directory::default();
        put(&mut dir, "a.yaml", &entry("x", "x.com"));
        let change = put(&mut dir, "a.yaml", "apiVersion: [networking\n");
        assert!(change.upserts.is_empty() && change.deletes.is_empty());
        assert!(change.diagnostics["a.yaml"].iter().any(Diagnostic::is_error));
        assert!(put(&mut dir, "a.yaml", &entry("x", "x.com")).deletes.is_empty());
    }

    #[test]
    fn the_first_of_two_files_takes_precedence_and_the_other_takes_over() {
        let mut dir = Directory::default();
        put(&mut dir, "b.yaml", &entry("x", "b.com"));
        let change = put(&mut dir, "a.yaml", &entry("x", "a.com"));
        assert_eq!(names(&change), ["x"]);
        assert_eq!(change.diagnostics["b.yaml"][0].code, "defined-twice");
        dir.remove(&"a.yaml".into());
        let change = dir.settle();
        assert_eq!((names(&change), change.deletes.len()), (vec!["x"], 0));
        assert!(change.diagnostics["b.yaml"].is_empty());
    }

    #[test]
    fn objects_are_observed_as_they_are_written() {
        let options = ParseOptions { originals: true, ..ParseOptions::default() };
        let mut dir = Directory::default();
        let mut put = |name: &str, text: &str| {
            dir.update(&name.into(), text.as_bytes(), &options);
            let change = dir.settle();
            change
                .observed
                .into_values()
                .map(|observed| observed.map(|o| (o.original.unwrap().contains("-bad-"), o.diagnostics.len())))
                .collect::<Vec<_>>()
        };
        assert_eq!(put("b.yaml", &entry("x", "b.com")), [Some((false, 0))]);
        // The first file has precedence when it is valid.
        assert_eq!(put("a.yaml", &entry("x", "-bad-")), [Some((false, 0))]);
        assert_eq!(put("b.yaml", ""), [Some((true, 1))]);
        assert_eq!(put("a.yaml", &entry("x", "x.com")), [Some((false, 0))]);
        assert_eq!(put("a.yaml", "apiVersion: [networking\n"), [Some((false, 0))], "it stays as it was");
        assert_eq!(put("a.yaml", ""), [None]);
        let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {key: secret}\n";
        assert_eq!(put("a.yaml", secret), [None], "secrets are not shown");
    }

    #[test]
    fn an_unreadable_file_keeps_its_objects() {
        let mut dir = Directory::default();
        put(&mut dir, "a.yaml", &entry("x", "x.com"));
        dir.unreadable(&"a.yaml".into(), "permission denied");
        let change = dir.settle();
        assert!(change.deletes.is_empty());
        assert_eq!(change.diagnostics["a.yaml"][0].code, "unreadable-file");
        let change = put(&mut dir, "a.yaml", &entry("x", "x.com"));
        assert!(change.upserts.is_empty() && change.diagnostics["a.yaml"].is_empty());
    }
}
