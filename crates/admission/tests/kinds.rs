//! The kinds of Istio and of the Gateway API: what a Kubernetes API server with our CRDs refuses, we refuse, in its words.
//!
//! Every file of `tests/data/kinds` has kinds with cases, and ends in comment lines (`#>`) that say what becomes of each
//! case: `both` is what the API server and admission say alike, `server` and `rutter` what only one of them does, and `file`
//! are the errors of the same object in a file, as `rutter validate` finds them. `RUTTER_BLESS=1` rewrites what we say.
//!
//! The API server's answers are recorded: with `RUTTER_PEER=KUBECONFIG` our CRDs and the cases go to that server (the cases
//! as a dry run in the namespace `kinds`, by the `kubectl` of `RUTTER_KUBECTL`), and its answers are recorded again.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use admission::{Decoded, Operation, Rejection};
use config::effects::KINDS_NOT_YET;
use config::schema::{Definition, Schema, Shape, crd, definitions};
use config::{Diagnostic, ParseOptions, parse_documents};
use serde_json::{Value as Json, json};

const MARK: &str = "#>";

/// One side's verdict on an object: nothing, or the reasons of the refusal, one a line.
type Verdict = BTreeSet<String>;

/// The result of one case.
#[derive(Default)]
struct Outcome {
    server: Verdict,
    rutter: Verdict,
    file: Verdict,
}

struct Case {
    definition: &'static Definition,
    name: String,
    object: Json,
}

impl Case {
    fn title(&self) -> String {
        format!("{}/{}", self.definition.plural, self.name)
    }
}

#[test]
fn rejections_match_a_kubernetes_api_server() {
    let peer = std::env::var_os("RUTTER_PEER").map(PathBuf::from);
    if let Some(peer) = &peer {
        let crds = definitions().iter().filter(|definition| !definition.builtin).map(crd);
        let list = json!({"apiVersion": "v1", "kind": "List", "items": crds.collect::<Vec<_>>()});
        kubectl(peer, &["apply", "--server-side", "--force-conflicts", "-f", "-"], &list).unwrap();
    }
    let bless = peer.is_some() || std::env::var_os("RUTTER_BLESS").is_some();
    let mut wrong = Vec::new();
    for file in files() {
        let text = fs::read_to_string(&file).unwrap();
        let (input, recorded) = text.split_at(text.find(MARK).unwrap_or(text.len()));
        let known = servers(recorded);
        let mut answer = String::new();
        for case in cases(input) {
            let title = case.title();
            let server = match &peer {
                Some(peer) => ask(peer, &case),
                None => known.get(&title).cloned().unwrap_or_default(),
            };
            let outcome = Outcome { server, rutter: admitted(&case), file: in_file(&case) };
            if !outcome.server.is_empty() && (outcome.rutter.is_empty() || outcome.file.is_empty()) {
                wrong.push(format!("{title} is admitted, and the API server says {:?}", outcome.server));
            }
            if outcome.rutter.is_empty() != outcome.file.is_empty() {
                wrong.push(format!("{title}: as a request {:?}, in a file {:?}", outcome.rutter, outcome.file));
            }
            answer += &record(&title, &outcome);
            wrong.extend(silence(&case));
        }
        if answer != recorded && bless {
            fs::write(&file, format!("{input}{answer}")).unwrap();
        } else if answer != recorded {
            wrong.push(format!("{}:\n{}", file.display(), difference(recorded, &answer)));
        }
    }
    assert!(wrong.is_empty(), "{}\n(RUTTER_BLESS=1 accepts what is said)", wrong.join("\n"));
}

#[test]
fn every_rule_is_broken_by_some_case() {
    let mut said: BTreeMap<&str, String> = BTreeMap::new();
    for file in files() {
        let text = fs::read_to_string(file).unwrap();
        let (input, recorded) = text.split_at(text.find(MARK).unwrap_or(text.len()));
        let known = servers(recorded);
        for case in cases(input) {
            for line in known.get(&case.title()).into_iter().flatten() {
                *said.entry(case.definition.plural).or_default() += &format!("{}{line}\n", case.definition.group);
            }
        }
    }
    let mut left = Vec::new();
    for definition in definitions().iter().filter(|definition| !definition.builtin) {
        let spec = definition.schema.field("spec").unwrap();
        let mut messages = BTreeSet::new();
        rules(spec, &mut messages);
        let said = said.get(definition.plural).map_or("", String::as_str);
        // The limit on the total number of matches has a test of its own: a case of 129 matches is not readable.
        let missing = messages.into_iter().filter(|message| !said.contains(message) && !message.contains("exceed 128"));
        left.extend(missing.map(|message| format!("{}: {message}", definition.kind)));
    }
    assert!(left.is_empty(), "no case breaks\n{}", left.join("\n"));
}

/// The messages of the rules inside a schema that an object can break alone.
fn rules(schema: &Schema, messages: &mut BTreeSet<&'static str>) {
    let alone = schema.rules.iter().filter(|rule| !rule.rule.contains("oldSelf"));
    messages.extend(alone.map(|rule| rule.message));
    match &schema.shape {
        Shape::Object(fields) => fields.fields.iter().for_each(|(_, field)| rules(field, messages)),
        Shape::Map(inner, _) | Shape::List(inner, ..) => rules(inner, messages),
        _ => {}
    }
}

fn files() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kinds");
    let mut files: Vec<PathBuf> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 6, "the files are missing");
    files
}

fn cases(input: &str) -> Vec<Case> {
    let mut out = Vec::new();
    for kind in support::cases(input) {
        let definition = support::kind(kind["of"].as_str().unwrap());
        for (name, patch) in kind["cases"].as_object().unwrap() {
            let mut spec = kind["spec"].clone();
            merge(&mut spec, patch);
            let object = support::whole(definition, &json!({ "spec": spec }));
            out.push(Case { definition, name: name.clone(), object });
        }
    }
    out
}

/// A JSON merge patch (RFC 7386).
fn merge(value: &mut Json, patch: &Json) {
    let Json::Object(patch) = patch else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    for (name, patch) in patch {
        match patch {
            Json::Null => drop(value.as_object_mut().unwrap().remove(name)),
            patch => merge(&mut value[name], patch),
        }
    }
}

fn admitted(case: &Case) -> Verdict {
    let review = support::review(case.definition, Operation::Create);
    match admission::admit(&review, Decoded::from(case.object.clone()), None) {
        Ok(_) => Verdict::new(),
        Err(Rejection::BadRequest(text)) => Verdict::from([text]),
        Err(Rejection::Invalid(causes)) => {
            causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
        }
    }
}

/// The problem with the warnings of a case: one says that a kind has no effect yet, if it has none.
fn silence(case: &Case) -> Option<String> {
    let review = support::review(case.definition, Operation::Create);
    let admitted = admission::admit(&review, Decoded::from(case.object.clone()), None).ok()?;
    let says_so = |warning: &str| warning.contains("is not implemented yet");
    let of_the_kind = |warning: &&String| says_so(warning) && !warning.starts_with("spec");
    let said = admitted.warnings.iter().filter(of_the_kind).count();
    let is_without_effect = case.definition.mesh.is_some_and(|kind| KINDS_NOT_YET.contains(&kind));
    let expected = usize::from(is_without_effect);
    (said != expected).then(|| format!("{}: {expected} warnings are expected: {:?}", case.title(), admitted.warnings))
}

fn in_file(case: &Case) -> Verdict {
    let parsed = parse_documents(case.object.to_string().as_bytes(), "f", &ParseOptions::default());
    let errors = parsed.diagnostics.iter().filter(|d| d.is_error());
    errors.map(words).collect()
}

fn words(said: &Diagnostic) -> String {
    let hint = said.hint.as_ref().map(|hint| format!(" (hint: {hint})"));
    format!("{}: {}{}", said.path, said.message, hint.unwrap_or_default())
}

/// Asks the API server whether it would take the object.
fn ask(kubeconfig: &Path, case: &Case) -> Verdict {
    let definition = case.definition;
    let mut object = case.object.clone();
    let namespace = if definition.namespaced { "/namespaces/kinds" } else { "" };
    if definition.namespaced {
        object["metadata"]["namespace"] = "kinds".into();
    }
    let (group, version) = (definition.group, definition.versions[0].version);
    let path = format!("/apis/{group}/{version}{namespace}/{}?dryRun=All", definition.plural);
    let Err(said) = kubectl(kubeconfig, &["create", "--raw", &path, "-f", "-"], &object) else {
        return Verdict::new();
    };
    let Some((_, reasons)) = said.split_once(" is invalid: ") else {
        panic!("{}: {said}", case.title());
    };
    let one_by_one = reasons.trim().split('\n').map(|line| line.trim_start_matches("* ").trim());
    one_by_one.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Runs `kubectl` with an object as its input; the error is what it says.
fn kubectl(kubeconfig: &Path, arguments: &[&str], object: &Json) -> Result<(), String> {
    let kubectl = std::env::var_os("RUTTER_KUBECTL").unwrap_or_else(|| "kubectl".into());
    let mut child = Command::new(kubectl)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("kubectl, named by RUTTER_KUBECTL");
    child.stdin.take().unwrap().write_all(object.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

fn record(title: &str, outcome: &Outcome) -> String {
    if outcome.server.is_empty() && outcome.rutter.is_empty() && outcome.file.is_empty() {
        return format!("{MARK} {title}: accepted\n");
    }
    let mut out = format!("{MARK} {title}: refused\n");
    let both = &outcome.server & &outcome.rutter;
    let parts = [
        ("both", both.clone()),
        ("server", &outcome.server - &both),
        ("rutter", &outcome.rutter - &both),
        ("file", outcome.file.clone()),
    ];
    for (who, lines) in parts {
        for line in lines {
            out += &format!("{MARK}   {who}: {}\n", line.replace('\n', "\\n"));
        }
    }
    out
}

/// The API server's answer to each case.
fn servers(recorded: &str) -> BTreeMap<String, Verdict> {
    let mut out: BTreeMap<String, Verdict> = BTreeMap::new();
    let mut title = String::new();
    for line in recorded.lines().filter_map(|line| line.strip_prefix(MARK)) {
        if let Some(line) = line.strip_prefix("   ") {
            let (who, said) = line.split_once(": ").unwrap();
            if matches!(who, "both" | "server") {
                out.entry(title.clone()).or_default().insert(said.to_owned());
            }
        } else {
            title = line.trim().rsplit_once(": ").unwrap().0.to_owned();
        }
    }
    out
}

/// The lines that are in one text only.
fn difference(before: &str, after: &str) -> String {
    let (old, new): (BTreeSet<&str>, BTreeSet<&str>) = (before.lines().collect(), after.lines().collect());
    let gone = old.difference(&new).map(|line| format!("- {line}"));
    let come = new.difference(&old).map(|line| format!("+ {line}"));
    gone.chain(come).collect::<Vec<_>>().join("\n")
}
