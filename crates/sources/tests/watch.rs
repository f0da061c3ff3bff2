//! Watches a real directory. Tests wait for the expected change, never for a fixed time.

use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use config::{ChangeSet, ParseOptions};
use sources::files::{Watch, load, watch};

fn entry(name: &str, host: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: default}}\n\
         spec:\n  hosts: [{host}]\n  ports: [{{number: 80, name: http, protocol: HTTP}}]\n  resolution: DNS\n"
    )
}

fn start(dir: &Path) -> (Watch, Receiver<ChangeSet>) {
    let (send, changes) = sync_channel(64);
    let watch = watch(dir, &ParseOptions::default(), move |change| {
        let _ = send.send(change);
    });
    (watch.expect("watch"), changes)
}

fn next(changes: &Receiver<ChangeSet>) -> ChangeSet {
    changes.recv_timeout(Duration::from_secs(30)).expect("a change")
}

fn names(change: &ChangeSet) -> Vec<String> {
    change.upserts.values().map(|o| o.meta().name.to_string()).collect()
}

#[test]
fn the_first_change_is_complete_and_later_ones_are_differences() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    std::fs::write(dir.path().join("a.yaml"), entry("a", "a.com")).unwrap();
    std::fs::write(dir.path().join("sub/b.yml"), entry("b", "b.com")).unwrap();
    std::fs::write(dir.path().join(".hidden.yaml"), entry("h", "h.com")).unwrap();
    std::fs::write(dir.path().join("notes.txt"), "not yaml: [").unwrap();
    let (_watch, changes) = start(dir.path());
    assert_eq!(names(&next(&changes)), ["a", "b"]);
    std::fs::write(dir.path().join("sub/b.yml"), entry("b", "c.com")).unwrap();
    assert_eq!(names(&next(&changes)), ["b"]);
    std::fs::remove_file(dir.path().join("a.yaml")).unwrap();
    assert_eq!(next(&changes).deletes.len(), 1);
}

#[test]
fn changes_in_a_directory_with_a_relative_path_are_events() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.yaml"), entry("a", "a.com")).unwrap();
    let to_root = "../".repeat(std::env::current_dir().unwrap().components().count() - 1);
    let relative = Path::new(&to_root).join(dir.path().strip_prefix("/").unwrap());
    let (_watch, changes) = start(&relative);
    next(&changes);
    std::fs::write(dir.path().join("a.yaml"), entry("a", "b.com")).unwrap();
    // Sooner than the next scan without an event.
    let change = changes.recv_timeout(Duration::from_secs(5)).expect("a change");
    assert_eq!(names(&change), ["a"]);
}

#[test]
fn a_rename_over_a_file_replaces_it() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.yaml"), entry("a", "a.com")).unwrap();
    let (_watch, changes) = start(dir.path());
    next(&changes);
    std::fs::write(dir.path().join(".a.yaml.tmp"), entry("a", "b.com")).unwrap();
    std::fs::rename(dir.path().join(".a.yaml.tmp"), dir.path().join("a.yaml")).unwrap();
    let change = next(&changes);
    assert_eq!((names(&change), change.deletes.len()), (vec!["a".to_owned()], 0));
}

#[test]
fn a_file_from_elsewhere_replaces_one() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    ["a", "b"].iter().for_each(|name| {
        std::fs::write(dir.path().join(format!("{name}.yaml")), entry(name, "a.com")).unwrap();
    });
    let (_watch, changes) = start(dir.path());
    next(&changes);
    for host in ["b.com", "c.com"] {
        std::fs::write(elsewhere.path().join("a.yaml"), entry("a", host)).unwrap();
        std::fs::rename(elsewhere.path().join("a.yaml"), dir.path().join("a.yaml")).unwrap();
        let change = next(&changes);
        assert_eq!((names(&change), change.deletes.len()), (vec!["a".to_owned()], 0));
    }
    std::fs::rename(dir.path().join("a.yaml"), elsewhere.path().join("a.yaml")).unwrap();
    assert_eq!(next(&changes).deletes.len(), 1);
}

#[test]
fn renaming_a_file_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.yaml"), entry("a", "a.com")).unwrap();
    let before = load(dir.path(), &ParseOptions::default()).unwrap();
    std::fs::rename(dir.path().join("a.yaml"), dir.path().join("z.yaml")).unwrap();
    let after = load(dir.path(), &ParseOptions::default()).unwrap();
    assert!(before.upserts.keys().eq(after.upserts.keys()));
}

#[test]
fn a_partially_written_file_is_not_read() {
    use std::io::Write as _;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    std::fs::write(&path, entry("a", "a.com") + "---\n" + &entry("b", "b.com")).unwrap();
    let (_watch, changes) = start(dir.path());
    next(&changes);
    // A truncated file is empty; the first object alone would be a valid file.
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(entry("a", "new.com").as_bytes()).unwrap();
    file.flush().unwrap();
    file.write_all(("---\n".to_owned() + &entry("b", "b.com")).as_bytes()).unwrap();
    drop(file);
    let change = next(&changes);
    assert_eq!((names(&change), change.deletes.len()), (vec!["a".to_owned()], 0));
}

#[test]
fn swapped_links_are_followed_as_in_a_mounted_config_map() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (folder, host) in [("..1", "a.com"), ("..2", "b.com")] {
        std::fs::create_dir(at(folder)).unwrap();
        std::fs::write(at(folder).join("mesh.yaml"), entry("a", host)).unwrap();
    }
    std::os::unix::fs::symlink("..1", at("..data")).unwrap();
    std::os::unix::fs::symlink("..data/mesh.yaml", at("mesh.yaml")).unwrap();
    let (_watch, changes) = start(dir.path());
    assert_eq!(names(&next(&changes)), ["a"]);
    std::os::unix::fs::symlink("..2", at("..data_tmp")).unwrap();
    std::fs::rename(at("..data_tmp"), at("..data")).unwrap();
    assert_eq!(names(&next(&changes)), ["a"]);
}

#[test]
fn the_error_for_a_missing_directory_names_it() {
    let error = load(Path::new("no/such/dir"), &ParseOptions::default()).unwrap_err();
    assert!(error.to_string().contains("no/such/dir"), "{error}");
}

#[test]
fn another_directory_in_its_place_is_watched_at_once() {
    let parent = tempfile::tempdir().unwrap();
    let at = |name: &str| parent.path().join(name);
    let write = |folder: &str, host: &str| std::fs::write(at(folder).join("a.yaml"), entry("a", host)).unwrap();
    for (folder, host) in [("config", "a.com"), ("next", "b.com")] {
        std::fs::create_dir(at(folder)).unwrap();
        write(folder, host);
    }
    let (_watch, changes) = start(&at("config"));
    assert_eq!(names(&next(&changes)), ["a"]);
    // Replaced. A scan every 10 seconds would notice it, too, but later.
    let begin = std::time::Instant::now();
    std::fs::rename(at("config"), at("before")).unwrap();
    std::fs::rename(at("next"), at("config")).unwrap();
    assert_eq!(names(&next(&changes)), ["a"]);
    write("config", "c.com");
    assert_eq!(names(&next(&changes)), ["a"]);
    // Removed and made again.
    std::fs::remove_dir_all(at("config")).unwrap();
    std::fs::create_dir(at("config")).unwrap();
    write("config", "d.com");
    let mut change = next(&changes);
    while change.upserts.is_empty() {
        change = next(&changes);
    }
    write("config", "e.com");
    assert_eq!(names(&next(&changes)), ["a"]);
    // A link to another directory.
    std::fs::remove_dir_all(at("config")).unwrap();
    std::os::unix::fs::symlink("before", at("config")).unwrap();
    let mut change = next(&changes);
    while change.upserts.is_empty() {
        change = next(&changes);
    }
    write("before", "f.com");
    assert_eq!(names(&next(&changes)), ["a"]);
    assert!(begin.elapsed() < Duration::from_secs(9), "{:?}", begin.elapsed());
}
