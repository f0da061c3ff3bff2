//! What is known of a directory: the objects of each file and who wins where two files define the same.
//!
//! This part reads no disk, so that every rule about broken, half-written and clashing files can be tested by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::{AnyObject, Diagnostic, FieldPath, ObjectKey, ParseOptions, Severity};

use crate::Change;

/// The files of a directory by name, with what they hold.
#[derive(Default)]
pub(crate) struct Directory {
    files: BTreeMap<Arc<str>, File>,
    /// Which files define an object. The first by name wins.
    definitions: BTreeMap<ObjectKey, BTreeSet<Arc<str>>>,
    /// What the last change left in force.
    current: BTreeMap<ObjectKey, AnyObject>,
    said: BTreeMap<Arc<str>, Vec<Diagnostic>>,
    touched: BTreeSet<ObjectKey>,
    spoken: BTreeSet<Arc<str>>,
}

#[derive(Default)]
struct File {
    hash: u128,
    objects: BTreeMap<ObjectKey, AnyObject>,
    diagnostics: Vec<Diagnostic>,
}

impl Directory {
    /// The names of the files that are known.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.files.keys()
    }

    /// Takes in the content of a file. Content that is the same as before costs a hash.
    pub(crate) fn update(&mut self, name: &Arc<str>, content: &[u8], options: &ParseOptions) {
        let hash = xxhash_rust::xxh3::xxh3_128(content);
        if self.files.get(name).is_some_and(|file| file.hash == hash) {
            return;
        }
        let before = self.files.remove(name).map(|file| file.objects).unwrap_or_default();
        let parsed = config::parse_documents(content, name, options);
        let mut diagnostics = parsed.diagnostics;
        let mut objects = BTreeMap::new();
        for object in parsed.objects {
            let key = object.meta().key();
            if objects.contains_key(&key) {
                diagnostics.push(said(
                    name,
                    &object,
                    "duplicate-object",
                    "the file defines this object twice; the first holds".into(),
                ));
                continue;
            }
            objects.insert(key, object);
        }
        keep_last_good(&before, &mut objects, &mut diagnostics);
        self.replace(
            name,
            &before,
            Some(File {
                hash,
                objects,
                diagnostics,
            }),
        );
    }

    /// A file cannot be read: what it held stays, the reason is said.
    pub(crate) fn unreadable(&mut self, name: &Arc<str>, reason: &str) {
        let file = self.files.entry(name.clone()).or_default();
        file.hash = 0;
        file.diagnostics = vec![Diagnostic {
            file: Some(name.clone()),
            line: 0,
            column: 0,
            object: None,
            path: FieldPath::root(),
            severity: Severity::Error,
            code: "unreadable-file",
            message: format!("the file cannot be read: {reason}"),
            hint: Some("what it held before stays in force until it can be read again".into()),
        }];
        self.spoken.insert(name.clone());
    }

    /// A file is gone, and its objects with it.
    pub(crate) fn remove(&mut self, name: &Arc<str>) {
        if let Some(file) = self.files.remove(name) {
            self.replace(name, &file.objects, None);
        }
    }

    /// What changed since the last call.
    pub(crate) fn settle(&mut self) -> Change {
        let mut change = Change::default();
        for key in std::mem::take(&mut self.touched) {
            let files = self.definitions.get(&key).into_iter().flatten();
            self.spoken.extend(files.clone().cloned());
            let winner = files
                .clone()
                .next()
                .and_then(|name| self.files.get(name)?.objects.get(&key));
            match winner {
                Some(object) if self.current.get(&key) == Some(object) => {}
                Some(object) => {
                    self.current.insert(key, object.clone());
                    change.upserts.push(object.clone());
                }
                None => {
                    if self.current.remove(&key).is_some() {
                        change.deletes.push(key);
                    }
                }
            }
        }
        for name in std::mem::take(&mut self.spoken) {
            let now = self.all_diagnostics(&name);
            let before = self.said.remove(&name).unwrap_or_default();
            if now != before {
                change.diagnostics.insert(name.clone(), now.clone());
            }
            if !now.is_empty() {
                self.said.insert(name, now);
            }
        }
        change
    }

    fn replace(&mut self, name: &Arc<str>, before: &BTreeMap<ObjectKey, AnyObject>, after: Option<File>) {
        self.spoken.insert(name.clone());
        for key in before.keys() {
            if let Some(files) = self.definitions.get_mut(key) {
                files.remove(name);
                // Those that stay may have to say something else now.
                self.spoken.extend(files.iter().cloned());
                if files.is_empty() {
                    self.definitions.remove(key);
                }
            }
            self.touched.insert(key.clone());
        }
        let Some(file) = after else { return };
        for key in file.objects.keys() {
            self.definitions.entry(key.clone()).or_default().insert(name.clone());
            self.touched.insert(key.clone());
        }
        self.files.insert(name.clone(), file);
    }

    /// What the file's own text is told, and that objects in it are defined elsewhere, too.
    fn all_diagnostics(&self, name: &Arc<str>) -> Vec<Diagnostic> {
        let Some(file) = self.files.get(name) else {
            return Vec::new();
        };
        let mut all = file.diagnostics.clone();
        for (key, object) in &file.objects {
            let winner = self.definitions.get(key).and_then(|files| files.first());
            if let Some(winner) = winner.filter(|w| *w != name) {
                all.push(said(
                    name,
                    object,
                    "defined-twice",
                    format!("{winner} defines this object, too, and holds"),
                ));
            }
        }
        all
    }
}

/// Puts objects back that the new text means to hold but got wrong.
fn keep_last_good(
    before: &BTreeMap<ObjectKey, AnyObject>,
    objects: &mut BTreeMap<ObjectKey, AnyObject>,
    diagnostics: &mut [Diagnostic],
) {
    // Where it cannot be told which object is broken, any of those that are missing now may be the one.
    let unknown = diagnostics.iter().any(|d| d.is_error() && d.object.is_none());
    let broken: BTreeSet<&ObjectKey> = diagnostics
        .iter()
        .filter(|d| d.is_error())
        .filter_map(|d| d.object.as_ref())
        .collect();
    let keep: Vec<ObjectKey> = before
        .keys()
        .filter(|key| !objects.contains_key(*key) && (unknown || broken.contains(key)))
        .cloned()
        .collect();
    for key in keep {
        for diagnostic in diagnostics
            .iter_mut()
            .filter(|d| d.is_error() && d.object.as_ref() == Some(&key))
        {
            diagnostic
                .hint
                .get_or_insert_with(|| "the last good version stays in force".into());
        }
        objects.extend(before.get(&key).map(|object| (key.clone(), object.clone())));
    }
}

fn said(name: &Arc<str>, object: &AnyObject, code: &'static str, message: String) -> Diagnostic {
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

    fn put(dir: &mut Directory, name: &str, text: &str) -> Change {
        dir.update(&name.into(), text.as_bytes(), &ParseOptions::default());
        dir.settle()
    }

    fn names(change: &Change) -> Vec<&str> {
        change.upserts.iter().map(|o| &*o.meta().name).collect()
    }

    #[test]
    fn objects_come_and_go_with_their_file() {
        let mut dir = Directory::default();
        let change = put(
            &mut dir,
            "a.yaml",
            &(entry("x", "x.com") + "---\n" + &entry("y", "y.com")),
        );
        assert_eq!(names(&change), ["x", "y"]);
        assert!(
            put(
                &mut dir,
                "a.yaml",
                &(entry("x", "x.com") + "---\n" + &entry("y", "y.com"))
            )
            .is_empty()
        );
        let change = put(&mut dir, "a.yaml", &entry("y", "z.com"));
        assert_eq!((names(&change), change.deletes.len()), (vec!["y"], 1));
        dir.remove(&"a.yaml".into());
        assert_eq!(dir.settle().deletes.len(), 1);
    }

    #[test]
    fn a_broken_document_keeps_its_last_good_object_and_stops_no_other() {
        let mut dir = Directory::default();
        put(
            &mut dir,
            "a.yaml",
            &(entry("x", "x.com") + "---\n" + &entry("y", "y.com")),
        );
        let change = put(
            &mut dir,
            "a.yaml",
            &(entry("x", "-bad-") + "---\n" + &entry("y", "new.com")),
        );
        assert_eq!(names(&change), ["y"]);
        assert!(change.deletes.is_empty());
        assert!(change.diagnostics["a.yaml"].iter().any(Diagnostic::is_error));
        let change = put(
            &mut dir,
            "a.yaml",
            &(entry("x", "good.com") + "---\n" + &entry("y", "new.com")),
        );
        assert_eq!(names(&change), ["x"]);
        assert!(change.diagnostics["a.yaml"].is_empty(), "the error is taken back");
    }

    #[test]
    fn a_file_that_is_no_yaml_keeps_everything() {
        let mut dir = Directory::default();
        put(&mut dir, "a.yaml", &entry("x", "x.com"));
        let change = put(&mut dir, "a.yaml", "apiVersion: [networking\n");
        assert!(change.upserts.is_empty() && change.deletes.is_empty());
        assert!(change.diagnostics["a.yaml"].iter().any(Diagnostic::is_error));
        assert!(put(&mut dir, "a.yaml", &entry("x", "x.com")).deletes.is_empty());
    }

    #[test]
    fn the_first_of_two_files_holds_and_the_other_takes_over() {
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
    fn an_unreadable_file_keeps_what_it_held() {
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
