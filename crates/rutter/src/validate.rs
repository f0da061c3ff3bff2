//! `rutter validate`: what a control plane would say about files, without one.

use std::fs;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use resources::{Diagnostic, ParseOptions, Severity};

/// The command line.
pub(crate) fn command() -> Command {
    let paths = |name: &'static str| {
        Arg::new(name)
            .value_parser(value_parser!(PathBuf))
            .action(ArgAction::Append)
    };
    Command::new("validate")
        .about("Check files of resources; each problem with file, line and column")
        .arg(
            paths("paths")
                .num_args(0..)
                .value_name("PATH")
                .help("Files or directories; `-` is standard input"),
        )
        .arg(
            paths("file")
                .short('f')
                .long("filename")
                .value_name("PATH")
                .help("The same"),
        )
        .arg(
            Arg::new("lenient")
                .long("lenient")
                .action(ArgAction::SetTrue)
                .help("Take a field that a kind does not have for a warning, as serving does, and not for an error"),
        )
}

/// Checks the files; returns whether there was no error.
pub(crate) fn run(matches: &ArgMatches) -> Result<bool> {
    let options = ParseOptions {
        strict: !matches.get_flag("lenient"),
        ..ParseOptions::default()
    };
    let given = |name| matches.get_many::<PathBuf>(name).into_iter().flatten();
    let paths: Vec<&PathBuf> = given("paths").chain(given("file")).collect();
    anyhow::ensure!(!paths.is_empty(), "which files? `rutter validate FILE…`");
    let (mut objects, mut said) = (0, Vec::new());
    for path in paths {
        if path.is_dir() {
            let change = sources::files::load(path, &options)?;
            objects += change.upserts.len();
            said.extend(change.diagnostics.into_values().flatten());
        } else {
            let parsed = resources::parse_documents(&read(path)?, &path.display().to_string(), &options);
            objects += parsed.objects.len();
            said.extend(parsed.diagnostics);
        }
    }
    report(objects, &said)?;
    Ok(!said.iter().any(Diagnostic::is_error))
}

fn read(path: &PathBuf) -> Result<Vec<u8>> {
    let limit = ParseOptions::default().limits.file_bytes as u64 + 1;
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        io::stdin()
            .take(limit)
            .read_to_end(&mut bytes)
            .context("standard input")?;
    } else {
        let file = fs::File::open(path).with_context(|| path.display().to_string())?;
        file.take(limit)
            .read_to_end(&mut bytes)
            .with_context(|| path.display().to_string())?;
    }
    Ok(bytes)
}

fn report(objects: usize, said: &[Diagnostic]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for diagnostic in said {
        writeln!(out, "{diagnostic}")?;
    }
    let count = |severity| said.iter().filter(|d| d.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    writeln!(out, "{objects} valid objects, {errors} errors, {warnings} warnings")
}
