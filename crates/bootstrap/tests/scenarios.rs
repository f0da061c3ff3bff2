//! Scenarios: input, the differences of its bootstrap to the one of `plain.txt`, and diagnostics, in one file of `tests/data`.
//!
//! `RUTTER_BLESS=1` rewrites the answers. Each bootstrap must be a message of Envoy, and Envoy itself must accept it.
#![allow(clippy::unwrap_used)]

mod case;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use case::{Case, Output};
use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn cases() -> Vec<(String, Case)> {
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<String> = files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort_by_key(|name| (name != "plain", name.clone()));
    let read = |name: &String| Case::parse(&fs::read_to_string(folder().join(format!("{name}.txt"))).unwrap());
    names.iter().map(|name| (name.clone(), read(name))).collect()
}

#[test]
fn each_input_has_its_answer() {
    let bless = std::env::var_os("RUTTER_BLESS").is_some();
    let mut plain = BTreeMap::new();
    let mut wrong = Vec::new();
    for (name, case) in cases() {
        let Output { bootstrap, diagnostics } = case.run();
        let all = flat(&bootstrap);
        let empty = BTreeMap::new();
        let answer = case.answer(&differences(if case.has_template() { &empty } else { &plain }, &all), &diagnostics);
        if name == "plain" {
            plain = all;
        }
        let path = folder().join(format!("{name}.txt"));
        if bless {
            fs::write(&path, &answer).unwrap();
        } else if fs::read_to_string(&path).unwrap() != answer {
            wrong.push(format!("--- {name}\n{answer}"));
        }
        let whole = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bootstrap");
        fs::create_dir_all(&whole).unwrap();
        fs::write(whole.join(format!("{name}.json")), serde_json::to_vec_pretty(&bootstrap).unwrap()).unwrap();
    }
    assert!(wrong.is_empty(), "the answers differ; see them in the files after RUTTER_BLESS=1\n{}", wrong.join("\n"));
}

#[test]
fn each_bootstrap_is_a_message_of_envoy() {
    for (name, case) in cases() {
        let bootstrap = case.run().bootstrap;
        let message: Result<protos::envoy::config::bootstrap::v3::Bootstrap, _> = protos::from_json(&bootstrap);
        assert!(message.is_ok(), "{name}: {:?}", message.err());
    }
}

#[test]
fn envoy_accepts_each_bootstrap() {
    let envoy = test_harness::envoy(&mut |_| ()).unwrap();
    for (name, case) in cases() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("envoy-rev.json");
        fs::write(&file, case.for_this_machine(scratch.path()).to_string()).unwrap();
        let checked = Command::new(&envoy)
            .args(["--mode", "validate", "--skip-deprecated-logs", "--log-level", "warning", "--config-path"])
            .arg(&file)
            .current_dir(scratch.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&checked.stderr).into_owned();
        assert!(checked.status.success(), "{name}: {said}");
        assert!(!said.contains("[warning]"), "{name}: {said}");
    }
}

/// The leaves of a value by path. Entries of lists with a name have it in the path, others their position.
fn flat(value: &Value) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    add("", value, &mut all);
    all
}

fn add(path: &str, value: &Value, all: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            fields.iter().for_each(|(name, value)| add(&format!("{path}/{name}"), value, all));
        }
        Value::Array(list) if !list.is_empty() => {
            for (index, value) in list.iter().enumerate() {
                let name = value["name"].as_str().map_or(index.to_string(), str::to_owned);
                add(&format!("{path}[{name}]"), value, all);
            }
        }
        leaf => drop(all.insert(path.to_owned(), leaf.to_string())),
    }
}

fn differences(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let removed = before.iter().filter(|(path, _)| !after.contains_key(*path)).map(|(path, _)| format!("- {path}"));
    let changed = after.iter().filter(|(path, value)| before.get(*path) != Some(value));
    removed.chain(changed.map(|(path, value)| format!("+ {path} = {value}"))).collect()
}
