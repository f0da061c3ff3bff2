//! Cases as data: objects, what they become, the remarks, and the result of the check, in one file.
//!
//! `RUTTER_BLESS=1` rewrites the answers; review the diff.

// A failure here must fail the test, so the code may unwrap.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use config::{AnyObject, ParseOptions, Severity, read_object};
use convert::{Conversion, Options, Prefixes, Report, check, convert, to_json};
use model::service::ObjectId;
use serde_json::Value as Json;

/// A file: its sections with their headings.
struct Case {
    path: PathBuf,
    sections: Vec<(String, String)>,
}

impl Case {
    fn read(path: PathBuf) -> Case {
        let text = fs::read_to_string(&path).unwrap();
        let mut sections: Vec<(String, String)> = Vec::new();
        for line in text.lines() {
            match line.strip_prefix("=== ") {
                Some(heading) => sections.push((heading.to_owned(), String::new())),
                None => {
                    let (_, body) = sections.last_mut().expect("text before the first section");
                    body.push_str(line);
                    body.push('\n');
                }
            }
        }
        Case { path, sections }
    }

    fn section(&self, name: &str) -> &str {
        self.sections.iter().find(|(heading, _)| heading == name).map_or("", |(_, body)| body)
    }

    fn objects(&self) -> Vec<AnyObject> {
        let parsed = config::parse_documents(self.section("objects").as_bytes(), "", &ParseOptions::default());
        let bad: Vec<String> =
            parsed.diagnostics.iter().filter(|one| one.is_error()).map(ToString::to_string).collect();
        assert!(bad.is_empty(), "{}: {}", self.path.display(), bad.join("\n"));
        parsed.objects
    }

    fn options(&self, objects: &[AnyObject]) -> Options {
        let mut options = Options::default();
        for object in objects {
            if let AnyObject::MeshConfig(mesh) = object {
                options.mesh = mesh.spec.clone();
            }
        }
        for line in self.section("options").lines() {
            match line.split_once(": ").unwrap() {
                ("class", class) => options.gateway_class = class.into(),
                ("prefixes", "segments") => options.prefixes = Prefixes::Segments,
                ("service", id) => {
                    let (namespace, name) = id.split_once('/').unwrap();
                    options.service = Some(ObjectId { namespace: namespace.into(), name: name.into() });
                }
                other => panic!("unknown option {other:?}"),
            }
        }
        options
    }
}

fn cases() -> Vec<Case> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut paths: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 15);
    paths.into_iter().map(Case::read).collect()
}

fn remarks(conversion: &Conversion) -> String {
    let mut out = String::new();
    for remark in &conversion.remarks {
        let level = if remark.severity == Severity::Info { "note" } else { remark.severity.name() };
        let object = remark.object.as_ref().map(ToString::to_string).unwrap_or_default();
        writeln!(out, "{level}: {object}: {}: {}", remark.path, remark.message).unwrap();
        if let Some(hint) = &remark.hint {
            writeln!(out, "  {hint}").unwrap();
        }
    }
    out
}

fn shown(report: &Report) -> String {
    let mut out = String::new();
    for key in &report.assumed {
        writeln!(out, "assumed: {key}").unwrap();
    }
    for host in &report.hosts {
        let tls = if host.secure { " (TLS)" } else { "" };
        let tls = if host.http { tls.to_owned() } else { format!(" ({} connections)", host.protocol()) };
        let equal = if host.differences.is_empty() { "equal" } else { "differs" };
        writeln!(out, "port {}{tls}, host {}: {equal}", host.port, host.host).unwrap();
        for difference in &host.differences {
            writeln!(out, "  {difference}").unwrap();
        }
    }
    for cluster in &report.clusters {
        writeln!(out, "cluster {}: differs", cluster.name).unwrap();
        for difference in &cluster.differences {
            writeln!(out, "  {difference}").unwrap();
        }
    }
    out
}

fn yaml(conversion: &Conversion) -> String {
    let texts = conversion.json().iter().map(|object| serde_saphyr::to_string(object).unwrap()).collect::<Vec<_>>();
    texts.join("---\n")
}

#[test]
fn conversions() {
    let bless = std::env::var_os("RUTTER_BLESS").is_some();
    let mut wrong = String::new();
    for mut case in cases() {
        let objects = case.objects();
        let options = case.options(&objects);
        let conversion = convert(&objects, &options);
        let report = check(&objects, &conversion, &options).unwrap();
        let answers = [("converted", yaml(&conversion)), ("remarks", remarks(&conversion)), ("check", shown(&report))];
        for (name, answer) in answers {
            if bless {
                let body = case.sections.iter_mut().find(|(heading, _)| heading == name);
                body.unwrap_or_else(|| panic!("{}: no section {name}", case.path.display())).1 = answer;
            } else if case.section(name).trim_end() != answer.trim_end() {
                let path = case.path.display();
                writeln!(wrong, "{path}: {name}\nexpected:\n{}\nfound:\n{answer}", case.section(name)).unwrap();
            }
        }
        if bless {
            let text: String = case.sections.iter().map(|(heading, body)| format!("=== {heading}\n{body}")).collect();
            fs::write(&case.path, text).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The ends of paths whose change the check does not see, because it changes nothing that proxies do for the given objects.
const HARMLESS: [&str; 16] = [
    // Only names, if no route refers to them.
    "/listeners/0/name",
    "/listeners/1/name",
    "/listeners/2/name",
    "/rules/0/name",
    "/rules/1/name",
    "/rules/2/name",
    "/rules/3/name",
    "/rules/4/name",
    // A weight of 0.
    "headers-and-weights.scenario HTTPRoute default/shop: /spec/rules/0/backendRefs/2",
    "headers-and-weights.scenario HTTPRoute default/shop: /spec/rules/0/backendRefs/2/port",
    // More namespaces are allowed, but no object is there.
    "/allowedRoutes/namespaces/selector/matchExpressions/0",
    // The check reports the paths that are no longer matched, with or without this rule.
    "segments.scenario HTTPRoute default/shop: /spec/rules/0",
    "segments.scenario HTTPRoute default/shop: /spec/rules/0/matches/0",
    "segments.scenario HTTPRoute default/shop: /spec/rules/0/matches/0/path/type",
    "segments.scenario HTTPRoute default/shop: /spec/rules/0/matches/0/path/value",
    // A host that the listener does not allow.
    "namespaces.scenario HTTPRoute shop/shop: /spec/hostnames/1",
];

/// The paths of all values below a value.
fn leaves(value: &Json, path: &str, out: &mut Vec<String>) {
    match value {
        Json::Object(fields) => fields.iter().for_each(|(name, value)| leaves(value, &format!("{path}/{name}"), out)),
        Json::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                out.push(format!("{path}/{index}"));
                leaves(item, &format!("{path}/{index}"), out);
            }
        }
        _ => out.push(path.to_owned()),
    }
}

/// Another value at a path: a number is changed, a text too, and an object of a list is removed.
fn mutated(object: &Json, pointer: &str) -> Option<Json> {
    let mut out = object.clone();
    let target = out.pointer_mut(pointer)?;
    match target {
        Json::Number(number) => *target = (number.as_u64()? + 1).into(),
        Json::Bool(value) => *target = (!*value).into(),
        Json::String(text) => *target = other_text(text)?.into(),
        _ => {
            let (parent, index) = pointer.rsplit_once('/')?;
            out.pointer_mut(parent)?.as_array_mut()?.remove(index.parse().ok()?);
        }
    }
    Some(out)
}

/// Another value of the kind of a text.
fn other_text(text: &str) -> Option<String> {
    let known = [
        ("PathPrefix", "Exact"),
        ("Exact", "PathPrefix"),
        ("RegularExpression", "Exact"),
        ("GET", "POST"),
        ("POST", "GET"),
        ("HTTP", "HTTPS"),
        ("https", "http"),
        ("5s", "7s"),
        ("250ms", "251ms"),
        ("MUTUAL", "SIMPLE"),
    ];
    if let Some((_, other)) = known.iter().find(|(one, _)| *one == text) {
        return Some((*other).to_owned());
    }
    Some(match text.strip_prefix("*.") {
        Some(rest) => format!("*.x{rest}"),
        None if text.starts_with('/') => format!("{text}x"),
        None => format!("x{text}"),
    })
}

/// Each valid change of a converted object must be reported.
#[test]
fn the_check_detects_wrong_conversions() {
    let (mut tried, mut missed) = (0, Vec::new());
    for case in cases() {
        let objects = case.objects();
        let options = case.options(&objects);
        let conversion = convert(&objects, &options);
        let right = check(&objects, &conversion, &options).unwrap();
        for (at, object) in conversion.objects.iter().enumerate() {
            let json = to_json(object);
            let mut paths = Vec::new();
            leaves(&json["spec"], "/spec", &mut paths);
            for path in paths {
                let Some(wrong) = mutated(&json, &path) else { continue };
                let read = read_object(&wrong, &ParseOptions::default());
                let Some(wrong) = read.object.filter(|wrong| wrong != object) else { continue };
                let mut conversion = conversion.clone();
                conversion.objects[at] = wrong;
                tried += 1;
                if check(&objects, &conversion, &options).unwrap() == right {
                    let file = case.path.file_name().unwrap().to_string_lossy();
                    missed.push(format!("{file} {}: {path}", object.key()));
                }
            }
        }
    }
    // A Gateway without routes.
    missed.retain(|path| !path.starts_with("ingress-of-others"));
    missed.retain(|path| !HARMLESS.iter().any(|one| path.ends_with(one)));
    eprintln!("{tried} wrong conversions tried");
    assert!(missed.is_empty(), "{} of {tried} not detected:\n{}", missed.len(), missed.join("\n"));
}
