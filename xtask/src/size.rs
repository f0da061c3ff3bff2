//! The size of the product: code lines per crate, the longest files and functions, and the limits of each.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::lint::rust_files;
use crate::run::root;

/// The most code lines that the control plane and its command line may have: all crates without [`AGENT`], [`TOOLS`], tests and
/// benchmarks.
///
/// A feature that needs more raises the limit in the same commit; the ceiling is 100,000, which is exceeded until something else is
/// simplified. The work on scale has added 5,100, HTTP/2 for discovery 1,350, EnvoyFilters over VHDS 300, the certificate authority 2,100, injection 5,200, installation 1,000, registration 1,200,
/// the Gateway API 12,800, the conversion to it 3,400, gateways on one machine 1,500.
const PRODUCT_LINES: usize = 123_750;
/// The most code lines that the agent and the CNI plugin may have.
const AGENT_LINES: usize = 14_300;
/// The crates of the agent and the CNI plugin.
const AGENT: &[&str] = &[
    "agent",
    "agent-core",
    "agent-status",
    "bootstrap",
    "cni",
    "dns-proxy",
    "identity",
    "interception",
    "interception-exec",
    "relay",
    "rutter-agent",
    "rutter-cni",
    "supervisor",
];
/// The most code lines that a file may have.
const FILE_LINES: usize = 500;
/// A function with more lines than this is long.
const FUNCTION_LINES: usize = 70;
/// The most long functions, in percent of all functions.
const LONG_FUNCTIONS_PERCENT: f64 = 1.0;
/// Crates that are not part of the product.
const TOOLS: &[&str] = &["test-harness", "test-agent", "demo"];
/// The number of files and functions that the report lists.
const LISTED: usize = 8;

/// A named piece of code and its length in lines.
type Sized = (usize, String);

#[derive(Default)]
struct Report {
    crates: BTreeMap<String, usize>,
    files: Vec<Sized>,
    functions: Vec<Sized>,
}

/// Prints the size table.
///
/// # Errors
/// A limit is exceeded, or a file cannot be read.
pub(crate) fn check() -> Result<()> {
    let mut report = read()?;
    report.files.sort_by(|a, b| b.cmp(a));
    report.functions.sort_by(|a, b| b.cmp(a));
    print(&report);
    for (what, lines, limit) in totals(&report.crates) {
        ensure!(lines <= limit, "the {what} has {lines} code lines, the limit is {limit} (xtask/src/size.rs)");
    }
    if let Some((lines, file)) = report.files.first() {
        ensure!(*lines <= FILE_LINES, "{file} has {lines} code lines, the limit is {FILE_LINES}: split it");
    }
    let share = long_share(&report.functions);
    ensure!(
        share <= LONG_FUNCTIONS_PERCENT,
        "{share:.2} % of the functions are longer than {FUNCTION_LINES} lines, the limit is {LONG_FUNCTIONS_PERCENT} %"
    );
    Ok(())
}

fn read() -> Result<Report> {
    let mut report = Report::default();
    let crates = root().join("crates");
    for path in rust_files(&crates)? {
        let relative = path.strip_prefix(&crates).unwrap_or(&path);
        if is_test(relative) {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let text = without_tests(&text);
        let (name, lines) = (relative.display().to_string(), code_lines(text));
        let of_crate = relative.iter().next().unwrap_or_default().to_string_lossy().into_owned();
        let is_tool = TOOLS.contains(&&*of_crate);
        *report.crates.entry(of_crate).or_default() += lines;
        if !is_tool {
            let functions = functions(text).into_iter();
            report.functions.extend(functions.map(|(lines, function)| (lines, format!("{name}: {function}"))));
            report.files.push((lines, name));
        }
    }
    Ok(report)
}

fn print(report: &Report) {
    for (name, lines) in &report.crates {
        let note = if TOOLS.contains(&&**name) { "  (not product)" } else { "" };
        eprintln!("    {lines:7}  {name}{note}");
    }
    for (what, lines, limit) in totals(&report.crates) {
        eprintln!("    {lines:7}  {what}; the limit is {limit}");
    }
    for (title, list) in [("longest files", &report.files), ("longest functions", &report.functions)] {
        eprintln!("    {title}:");
        for (lines, name) in list.iter().take(LISTED) {
            eprintln!("    {lines:7}  {name}");
        }
    }
    eprintln!(
        "    {:.2} % of {} functions are longer than {FUNCTION_LINES} lines; the limit is {LONG_FUNCTIONS_PERCENT} %",
        long_share(&report.functions),
        report.functions.len(),
    );
}

/// The parts of the product, with their code lines and their limits.
fn totals(crates: &BTreeMap<String, usize>) -> [(&'static str, usize, usize); 2] {
    let is_agent = |name: &str| AGENT.contains(&name);
    let total = |agent: bool| {
        let all = crates.iter().filter(|(name, _)| !TOOLS.contains(&&***name) && is_agent(name) == agent);
        all.map(|(_, lines)| lines).sum()
    };
    [("control plane", total(false), PRODUCT_LINES), ("agent", total(true), AGENT_LINES)]
}

fn long_share(functions: &[Sized]) -> f64 {
    let long = functions.iter().filter(|(lines, _)| *lines > FUNCTION_LINES).count();
    100.0 * long as f64 / functions.len().max(1) as f64
}

/// Whether a file holds tests, benchmarks or examples only.
fn is_test(path: &Path) -> bool {
    let folder = |part: &std::ffi::OsStr| ["tests", "benches", "examples"].iter().any(|name| part == *name);
    path.iter().any(folder) || path.file_name().is_some_and(|name| name == "tests.rs")
}

/// The text in front of the unit tests at the end of a file.
fn without_tests(text: &str) -> &str {
    let inline = |at: &usize| text[*at..].lines().nth(1).is_some_and(|line| line.ends_with('{'));
    let tests = text.match_indices("#[cfg(test)]\n").map(|(at, _)| at).find(inline);
    tests.map_or(text, |at| &text[..at])
}

/// The lines that are neither empty nor a comment.
fn code_lines(text: &str) -> usize {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

/// The functions of a formatted file, with their lengths from the signature to the closing brace.
fn functions(text: &str) -> Vec<Sized> {
    let lines: Vec<&str> = text.lines().collect();
    let mut functions = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indent = &line[..line.len() - line.trim_start().len()];
        let closes = |line: &&str| line.strip_prefix(indent) == Some("}");
        // A declaration of a trait ends with its signature.
        let ends = |line: &&str| {
            line.starts_with(indent) && line.ends_with(';') && line.trim_start().len() + indent.len() == line.len()
        };
        let declared = ends(line) || line.ends_with('}');
        if !declared && let Some(length) = lines[start..].iter().position(closes) {
            functions.push((length + 1, name.to_owned()));
        }
    }
    functions
}

fn function_name(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let before = before.trim();
    let modifier = |word: &str| word.starts_with("pub") || ["async", "const", "crate)", "super)"].contains(&word);
    if !before.split_whitespace().all(modifier) {
        return None;
    }
    after.split(['(', '<']).next().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "//! Doc.\n\nfn short() {}\n\npub(crate) async fn long(\n    a: u8,\n) {\n    // Why.\n    b(a);\n}\n\n#[cfg(test)]\nmod tests {\n    fn t() {\n    }\n}\n";

    #[test]
    fn comments_blank_lines_and_tests_do_not_count() {
        assert_eq!(code_lines(without_tests(TEXT)), 6);
    }

    #[test]
    fn a_function_is_measured_to_its_closing_brace() {
        assert_eq!(functions(without_tests(TEXT)), [(6, "long".to_owned())]);
    }

    #[test]
    fn test_files_are_recognized() {
        for path in ["xds/tests/a.rs", "xds/src/a/tests.rs", "flow/benches/a.rs"] {
            assert!(is_test(Path::new(path)), "{path}");
        }
        assert!(!is_test(Path::new("xds/src/stream.rs")));
    }
}
