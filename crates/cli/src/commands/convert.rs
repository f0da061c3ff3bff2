//! `rutter convert`: turns Ingresses and Istio's Gateways and VirtualServices into objects of the Gateway API.

use std::collections::HashMap;

use anyhow::{Result, ensure};
use clap::{ArgMatches, Command};
use config::{AnyObject, Diagnostic, Kind, ObjectKey, Origin, ParseOptions, Severity, read_object};
use convert::{Conversion, Options, Prefixes, Report, check, convert};
use model::service::ObjectId;

use crate::failure::{self, FAILURE, SUCCESS, USAGE, usage};
use crate::flags::{flag, option, yaml_or_json};
use crate::io::Io;
use crate::manifests::{self, Manifest};
use crate::{output, snippet};

/// The kinds that are converted.
const SOURCES: [Kind; 3] = [Kind::Gateway, Kind::VirtualService, Kind::Ingress];

pub(super) fn command() -> Command {
    let command = Command::new("convert")
        .about("Convert Ingresses and Istio's Gateways and VirtualServices to the Gateway API")
        .after_help(
            "Prints Gateways, HTTPRoutes, TLSRoutes, TCPRoutes and ReferenceGrants. Standard error has the fields that the Gateway API does not have, with a \
             remedy, and the result of a check: the configuration of simulated gateway proxies is derived from both, and compared host by \
             host. Services, ServiceEntries, DestinationRules, IngressClasses and the mesh configuration among the files are read, but not \
             converted. No server is needed.\n\n\
             A new Gateway has proxies of its own, unless --service names the Service of existing ones.\n\n\
             Exit codes: 0 nothing is lost and all hosts are equal, 1 something is lost or differs, 2 an error.\n\n\
             Examples:\n  rutter convert -f gateway.yaml,routes.yaml > new.yaml\n  \
             rutter convert -Rf config/ --service istio-system/istio-ingressgateway\n  \
             kubectl get gw,vs,svc,dr -A -o yaml | rutter convert -f -",
        )
        .arg(option("gateway-class", "NAME", "Class of the new Gateways").default_value("istio"))
        .arg(option(
            "service",
            "[NAMESPACE/]NAME",
            "Service of existing gateway proxies that serve the new Gateways, which are put into its namespace",
        ))
        .arg(
            option("prefixes", "FORM", "Form of path prefixes that end within a segment: exact (a regular expression) or segments (PathPrefix)")
                .value_parser(["exact", "segments"])
                .default_value("exact"),
        )
        .arg(flag("no-check", "Do not compare the results"))
        .arg(
            option("namespace", "NAME", "Namespace of objects without one").short('n').default_value("default"),
        )
        .arg(yaml_or_json());
    manifests::arguments(command, true)
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    match all(matches, io) {
        Ok(code) => Ok(code),
        // Exit code 1 means that something is lost or differs.
        Err(error) => {
            failure::report(&error, io);
            Ok(USAGE)
        }
    }
}

fn all(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let files = manifests::read(matches, io)?;
    let namespace = matches.get_one::<String>("namespace").map_or("default", String::as_str);
    let mut input = Input::read(files, namespace);
    let found = input.objects.iter().any(|object| SOURCES.contains(&object.kind()));
    let problems = std::mem::take(&mut input.problems);
    for problem in &problems {
        input.print(problem, io);
    }
    ensure!(found, "there is no Ingress, Gateway or VirtualService of Istio in the files");
    let options = options(matches, namespace, &input.objects)?;
    let conversion = convert(&input.objects, &options);
    for remark in &conversion.remarks {
        input.print(remark, io);
    }
    print(&conversion, matches, io)?;
    summarize(&conversion, io);
    let mut complete = conversion.is_complete() && problems.is_empty();
    if !matches.get_flag("no-check") {
        let report = check(&input.objects, &conversion, &options)?;
        print_report(&report, io);
        complete &= report.is_equal();
    }
    Ok(if complete { SUCCESS } else { FAILURE })
}

/// The objects of the files.
struct Input {
    objects: Vec<AnyObject>,
    /// The files of the objects.
    manifests: HashMap<ObjectKey, Manifest>,
    /// Problems of objects, whose parts with errors are left out.
    problems: Vec<Diagnostic>,
}

impl Input {
    /// Reads objects like the control plane. Of several of one name, the last one counts.
    fn read(files: Vec<Manifest>, namespace: &str) -> Input {
        let mut input = Input { objects: Vec::new(), manifests: HashMap::new(), problems: Vec::new() };
        let options = ParseOptions { default_namespace: namespace.into(), ..ParseOptions::default() }.degrading();
        for manifest in files {
            let read = read_object(&manifest.value, &options);
            let is_source = |one: &Diagnostic| {
                one.object.as_ref().is_some_and(|key| SOURCES.contains(&key.kind)) && one.severity > Severity::Info
            };
            // Deprecated fields and the like are no concern of a conversion.
            let left_out = |one: &Diagnostic| one.message.contains("left out") || one.is_error();
            let bad = read.diagnostics.into_iter().filter(|one| is_source(one) && left_out(one));
            input
                .problems
                .extend(bad.map(|one| Diagnostic { file: Some(manifest.source.name.as_str().into()), ..one }));
            let Some(mut object) = read.object else { continue };
            let file = manifest.source.name.as_str().into();
            object.meta_mut().origin = Some(Origin { file, line: manifest.line });
            let key = object.key();
            input.objects.retain(|other| other.key() != key);
            input.objects.push(object);
            input.manifests.insert(key, manifest);
        }
        input
    }

    /// Prints a remark with the line of its field.
    fn print(&self, remark: &Diagnostic, io: &mut Io) {
        let manifest = remark.object.as_ref().and_then(|key| self.manifests.get(key));
        let Some(manifest) = manifest else {
            return io.eprint(snippet::render(remark, b"", io.terminal.color_err));
        };
        let (line, column) = manifest.locate(&remark.path.to_string());
        let remark = Diagnostic { line, column, ..remark.clone() };
        io.eprint(snippet::render(&remark, &manifest.source.bytes, io.terminal.color_err));
    }
}

fn options(matches: &ArgMatches, namespace: &str, objects: &[AnyObject]) -> Result<Options> {
    let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let service = text("service").map(|service| service.split_once('/').unwrap_or((namespace, service)));
    let empty = service.is_some_and(|(namespace, name)| namespace.is_empty() || name.is_empty());
    ensure!(!empty, usage("--service: expected NAMESPACE/NAME"));
    let mesh = objects.iter().rev().find_map(|object| match object {
        AnyObject::MeshConfig(mesh) => Some(mesh.spec.clone()),
        _ => None,
    });
    Ok(Options {
        gateway_class: text("gateway-class").unwrap_or("istio").into(),
        service: service.map(|(namespace, name)| ObjectId { namespace: namespace.into(), name: name.into() }),
        prefixes: if text("prefixes") == Some("segments") { Prefixes::Segments } else { Prefixes::Exact },
        mesh: mesh.unwrap_or_default(),
        ..Options::default()
    })
}

fn print(conversion: &Conversion, matches: &ArgMatches, io: &mut Io) -> Result<()> {
    let objects = conversion.json();
    match matches.get_one::<String>("output").map(String::as_str) {
        Some("json") => io.print(serde_json::to_string_pretty(&output::list(objects))?)?,
        _ => output::documents(&objects, io)?,
    }
    Ok(())
}

fn summarize(conversion: &Conversion, io: &mut Io) {
    let lost = conversion.remarks.iter().filter(|one| one.severity > Severity::Info).count();
    io.eprint(format!(
        "{} new objects; {lost} remark{} about lost behavior",
        conversion.objects.len(),
        if lost == 1 { "" } else { "s" }
    ));
    if !conversion.replaced.is_empty() {
        let replaced: Vec<String> = conversion.replaced.iter().map(ToString::to_string).collect();
        io.eprint(format!("replaced, to be deleted when the new objects are in use: {}", replaced.join(", ")));
    }
}

fn print_report(report: &Report, io: &mut Io) {
    for key in &report.assumed {
        io.eprint(format!("check: assumed that there is {key}"));
    }
    for host in &report.hosts {
        let protocol = host.protocol();
        let result = if host.differences.is_empty() { "equal" } else { "differs" };
        io.eprint(format!("check: {protocol} port {}, host {}: {result}", host.port, host.host));
        for difference in &host.differences {
            io.eprint(format!("  {difference}"));
        }
    }
    for cluster in &report.clusters {
        io.eprint(format!("check: cluster {}: differs", cluster.name));
        for difference in &cluster.differences {
            io.eprint(format!("  {difference}"));
        }
    }
    let differing = report.hosts.iter().filter(|host| !host.differences.is_empty()).count();
    io.eprint(match (differing, report.hosts.len()) {
        (_, 0) => "check: there are no routes to compare".to_owned(),
        (0, count) => format!("check: all {count} hosts are equal"),
        (some, count) => format!("check: {some} of {count} hosts differ"),
    });
}
