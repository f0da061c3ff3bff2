//! `rutter validate`: what a control plane would say about files, without one.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use resources::{Diagnostic, ParseOptions, Severity};
use serde_json::{Value as Json, json};

use crate::failure::{FAILURE, SUCCESS, usage};
use crate::io::Io;
use crate::{manifests, snippet};

pub(super) fn command() -> Command {
    let paths = |name: &'static str| {
        Arg::new(name)
            .value_parser(value_parser!(PathBuf))
            .action(ArgAction::Append)
    };
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
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
    let options = ParseOptions {
        strict: !matches.get_flag("lenient"),
        default_namespace: namespace.into(),
        ..ParseOptions::default()
    };
    let given = |name| matches.get_many::<PathBuf>(name).into_iter().flatten();
    let paths: Vec<&PathBuf> = given("paths").chain(given("file")).collect();
    ensure!(!paths.is_empty(), usage("which files? `rutter validate FILE…`"));
    let mut checked = Checked::default();
    for path in paths {
        checked.path(path, &options, io)?;
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

#[derive(Default)]
struct Checked {
    objects: usize,
    said: Vec<Diagnostic>,
    /// What the files hold that something is said about.
    texts: HashMap<Arc<str>, Vec<u8>>,
}

impl Checked {
    fn path(&mut self, path: &Path, options: &ParseOptions, io: &mut Io) -> Result<()> {
        if !path.is_dir() {
            let bytes = manifests::bytes_of(path, io)?;
            let file = path.display().to_string();
            let parsed = resources::parse_documents(&bytes, &file, options);
            self.objects += parsed.objects.len();
            self.said.extend(parsed.diagnostics);
            self.texts.insert(file.into(), bytes);
            return Ok(());
        }
        let change = sources::files::load(path, options)?;
        self.objects += change.upserts.len();
        for diagnostic in change.diagnostics.into_values().flatten() {
            if let Some(file) = diagnostic.file.clone().filter(|file| !self.texts.contains_key(file)) {
                // A file that is gone meanwhile has no lines to show.
                let bytes = [path.join(&*file), PathBuf::from(&*file)]
                    .iter()
                    .find_map(|path| manifests::bytes_of(path, io).ok());
                self.texts.insert(file, bytes.unwrap_or_default());
            }
            self.said.push(diagnostic);
        }
        Ok(())
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
        Ok(io.say(format!(
            "{} valid objects, {errors} errors, {warnings} warnings",
            self.objects
        ))?)
    }
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
