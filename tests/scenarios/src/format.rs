//! The file format: sections that start with a line `=== KIND ARGUMENTS`.

use anyhow::{Context, Result, bail};

/// One section of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The step.
    pub step: Step,
    /// The heading as written, without `=== `.
    pub heading: String,
    /// The lines up to the next heading.
    pub body: String,
    /// Line number of the heading, from 1.
    pub line: usize,
}

/// A step of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A description.
    About,
    /// The sources from which the file cannot be played; the body is the reason.
    NotIn(Vec<String>),
    /// Objects to add or replace in one commit, in the home cluster or (`objects in CLUSTER`) in another one.
    Objects(String),
    /// Resolved addresses in one commit: a line `NAME: ADDRESSES` each; without addresses the name does not exist.
    Addresses,
    /// What is known of sources of token keys in one commit, a line each: `URL: KEY-IDS`, `issuer URL: KEY-IDS` for those with a
    /// discovery document, `URL: failed REASON`. With neither, nothing is known of it.
    Keys,
    /// Service accounts that may list Secrets from now on or no longer: a line `NAMESPACE/NAME: yes` or `no` each, with
    /// ` in CLUSTER` before the colon for another cluster.
    Readers,
    /// Features to enable, one per line, until the next such section.
    Features,
    /// A proxy connects.
    Proxy(String),
    /// A proxy disconnects.
    Disconnect(String),
    /// Objects to delete in one commit (`KIND NAMESPACE/NAME`, followed by ` in CLUSTER` for another cluster), in the
    /// heading or one per line in the body.
    Delete(Option<String>),
    /// Answer: the resources of a proxy.
    Show(Show),
    /// Answer: the resources that the last commit changed, by proxy.
    Changed,
    /// Answer: the rules that ran in the last commit, and how often.
    Recomputed,
    /// Objects whose conflicts with others, or whose facts for a status of the Gateway API, are watched (`KIND NAMESPACE/NAME`,
    /// one per line in the body).
    Watch,
    /// Answer: the conflicts of the watched objects.
    Conflicts,
    /// Answer: the facts for the statuses of the watched objects.
    Standings,
    /// Answer: the diagnostics of all documents so far.
    Diagnostics,
}

/// The output to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Show {
    /// The proxy.
    pub proxy: String,
    /// `CDS`, `EDS`, `LDS`, `RDS`, `ECDS` or `NDS`.
    pub kind: String,
    /// One resource; `None` for the list of all names, or for the name table, which has no name.
    pub name: Option<String>,
    /// Paths into the resource; the whole resource if there are none.
    pub paths: Vec<String>,
}

impl Step {
    /// Whether the body is an answer that can be rewritten.
    pub fn is_answer(&self) -> bool {
        matches!(
            self,
            Step::Show(_) | Step::Changed | Step::Recomputed | Step::Conflicts | Step::Standings | Step::Diagnostics
        )
    }

    fn parse(heading: &str) -> Result<Step> {
        let (kind, rest) = heading.split_once(' ').unwrap_or((heading, ""));
        let rest = rest.trim();
        Ok(match kind {
            "about" => Step::About,
            "not-in" => Step::NotIn(rest.split_whitespace().map(str::to_owned).collect()),
            "objects" | "edit" => Step::Objects(rest.strip_prefix("in ").unwrap_or(rest).trim().to_owned()),
            "addresses" => Step::Addresses,
            "readers" => Step::Readers,
            "features" => Step::Features,
            "keys" => Step::Keys,
            "proxy" => Step::Proxy(rest.to_owned()),
            "disconnect" => Step::Disconnect(rest.to_owned()),
            "delete" => Step::Delete((!rest.is_empty()).then(|| rest.to_owned())),
            "show" => Step::Show(Show::parse(rest)?),
            "changed" => Step::Changed,
            "recomputed" => Step::Recomputed,
            "watch" => Step::Watch,
            "conflicts" => Step::Conflicts,
            "standings" => Step::Standings,
            "diagnostics" => Step::Diagnostics,
            other => bail!("unknown section {other:?}"),
        })
    }
}

impl Show {
    fn parse(text: &str) -> Result<Show> {
        // Cluster names contain bars, so only a bar between spaces separates the paths.
        let (head, paths) = text.split_once(" | ").unwrap_or((text, ""));
        let mut words = head.split_whitespace();
        let proxy = words.next().context("show needs a proxy")?.to_owned();
        let kind = words.next().context("show needs a resource type")?.to_owned();
        let paths = paths.split(',').map(str::trim).filter(|p| !p.is_empty()).map(str::to_owned).collect();
        Ok(Show { proxy, kind, name: words.next().map(str::to_owned), paths })
    }
}

/// Splits a file into sections.
///
/// # Errors
/// The line with an invalid heading, and the reason.
pub fn parse(text: &str) -> Result<Vec<Section>> {
    let mut sections: Vec<Section> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        if let Some(heading) = line.strip_prefix("=== ") {
            let step = Step::parse(heading.trim()).with_context(|| format!("line {number}"))?;
            sections.push(Section { step, heading: heading.trim().to_owned(), body: String::new(), line: number });
        } else if let Some(section) = sections.last_mut() {
            section.body.push_str(line);
            section.body.push('\n');
        } else if !line.trim().is_empty() {
            bail!("line {number}: text before the first section");
        }
    }
    Ok(sections)
}

/// The text of a file with these sections.
pub fn print(sections: &[Section]) -> String {
    sections.iter().map(|s| format!("=== {}\n{}", s.heading, s.body)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parsed_file_prints_unchanged() {
        let text = "=== about\nWords.\n=== show client EDS outbound|80||a | endpoints[].x, y\n- 1\n";
        let sections = parse(text).unwrap();
        assert_eq!(print(&sections), text);
        let Step::Show(show) = &sections[1].step else { panic!("not a show: {:?}", sections[1]) };
        assert_eq!(show.name.as_deref(), Some("outbound|80||a"));
        assert_eq!(show.paths, ["endpoints[].x", "y"]);
    }

    #[test]
    fn unknown_sections_are_rejected() {
        assert!(parse("=== nonsense\n").unwrap_err().to_string().contains("line 1"));
        assert!(parse("words\n").is_err());
    }
}
