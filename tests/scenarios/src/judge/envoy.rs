//! Starts an Envoy with a file of resources, and reads its messages about them.

use envoy::types;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Result, anyhow};
use model::xds::ResourceType;
use protos::envoy::service::discovery::v3::DiscoveryResponse;
use protos::{Any, Message};
use regex::Regex;
use serde_json::{Value, json};
use test_harness::run::{Envoy, wait_for};

/// The maximum time for one file.
const PATIENCE: Duration = Duration::from_secs(180);
/// The maximum number of starts of Envoy.
const STARTS: usize = 400;

/// The start of Envoy's message about a violated validation rule, which follows the printed resource.
const RULE: &str = "Proto constraint validation failed";

/// The pieces that Envoy rejects, with its messages. `clusters` exist before.
pub(super) async fn refused(
    binary: &Path,
    kind: ResourceType,
    pieces: Vec<(usize, Vec<u8>)>,
    clusters: &BTreeSet<String>,
) -> Result<Vec<(usize, String)>> {
    let mut refused = BTreeMap::new();
    let mut open = vec![pieces];
    for _ in 0..STARTS {
        let Some(mut pieces) = open.pop() else {
            return Ok(refused.into_iter().collect());
        };
        if pieces.is_empty() {
            continue;
        }
        let (words, found) = match ask(binary, kind, &pieces, clusters).await.map_err(|e| anyhow!("{e}"))? {
            Answer::Taken => continue,
            Answer::Refused(words) => {
                let found = read(&words);
                (words, found)
            }
            Answer::Crashed(log) => (format!("Envoy crashes: {log}"), BTreeMap::new()),
        };
        match (&pieces[..], found.is_empty()) {
            ([(index, _)], true) => {
                let rule = words.rfind(RULE).unwrap_or_default();
                refused.insert(*index, words[rule..].lines().next().unwrap_or_default().trim().to_owned());
            }
            // Envoy does not name the resource, so the halves are checked separately.
            (_, true) => {
                let other = pieces.split_off(pieces.len() / 2);
                open.extend([other, pieces]);
            }
            (_, false) => {
                pieces.retain(|(index, _)| !found.contains_key(index));
                refused.extend(found);
                if is_about_the_first(&words) {
                    open.push(pieces);
                }
            }
        }
    }
    Err(anyhow!("Envoy refuses file after file; so far: {refused:#?}"))
}

/// Whether Envoy stopped at one resource: a violated validation rule rejects the whole file.
fn is_about_the_first(words: &str) -> bool {
    !words.contains("Error adding/updating")
}

/// The outcome for a file.
enum Answer {
    /// Envoy accepts all of it.
    Taken,
    /// Envoy's message.
    Refused(String),
    /// The end of its log.
    Crashed(String),
}

/// Envoy's answer to a file.
async fn ask(
    binary: &Path,
    kind: ResourceType,
    pieces: &[(usize, Vec<u8>)],
    clusters: &BTreeSet<String>,
) -> test_harness::run::Result<Answer> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("resources.pb");
    let resources =
        pieces.iter().map(|(_, bytes)| Any { type_url: kind.type_url.to_owned(), value: bytes.clone().into() });
    let response = DiscoveryResponse {
        version_info: "1".to_owned(),
        type_url: kind.type_url.to_owned(),
        resources: resources.collect(),
        ..DiscoveryResponse::default()
    };
    std::fs::write(&file, response.encode_to_vec())?;
    let envoy = Envoy::start_with(binary, &bootstrap(kind, &file, clusters)).await?;
    let about = match kind == types::CLUSTER {
        true => "cluster_manager.cds",
        false => "listener_manager.lds",
    };
    let answered = || async {
        let Ok(stats) = envoy.stats(&format!("^{about}.update_(success|rejected)$")).await else {
            let log = envoy.log().ok()?;
            let (_, crash) = log.split_once("[critical]")?;
            return Some(Answer::Crashed(crash.lines().next().unwrap_or_default().to_owned()));
        };
        let count = |what: &str| stats.get(&format!("{about}.update_{what}")).copied().unwrap_or(0);
        match (count("success"), count("rejected")) {
            (0, 0) => None,
            (_, 0) => Some(Answer::Taken),
            _ => {
                let log = envoy.log().ok()?;
                let (_, words) = log.split_once("update rejected:")?;
                Some(Answer::Refused(words.to_owned()))
            }
        }
    };
    match wait_for("Envoy's answer to a file of resources", PATIENCE, answered).await {
        Ok(answer) => Ok(answer),
        Err(error) => Err(format!("{error}; its log:\n{}", envoy.log()?).into()),
    }
}

/// The resources that Envoy names, with the message after each name.
fn read(words: &str) -> BTreeMap<usize, String> {
    static NAME: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"judged-(\d{6})").expect("a regular expression"));
    let mut found: BTreeMap<usize, String> = BTreeMap::new();
    let names: Vec<_> = NAME.captures_iter(words).filter_map(|c| Some((c.get(0)?, c[1].parse().ok()?))).collect();
    if is_about_the_first(words) {
        let first = names.first().map(|(_, index)| (*index, words.trim().chars().take(2000).collect()));
        return first.into_iter().collect();
    }
    for (position, (name, index)) in names.iter().enumerate() {
        let end = names.get(position + 1).map_or(words.len(), |(next, _)| next.start());
        let said = &words[name.end()..end];
        let said = said[said.rfind(RULE).unwrap_or_default()..].trim_matches([':', ' ', ',', '\n']);
        found.entry(*index).or_default().push_str(said);
    }
    found
}

fn bootstrap(kind: ResourceType, file: &Path, clusters: &BTreeSet<String>) -> Value {
    let about = match kind == types::CLUSTER {
        true => "cds_config",
        false => "lds_config",
    };
    let mut bootstrap = json!({
        "node": {"id": "judge", "cluster": "judge"},
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
        "dynamic_resources": {
            // A cluster for discovery sources, which does not answer.
            "ads_config": {"api_type": "GRPC", "transport_api_version": "V3",
                "grpc_services": [{"envoy_grpc": {"cluster_name": "xds-grpc"}}]},
        },
        "static_resources": {"clusters": [{"name": "xds-grpc", "type": "STATIC"}]},
        // As in Istio's bootstrap and in the one of the documentation.
        "layered_runtime": {"layers": [
            {"name": "static", "static_layer": {"re2.max_program_size.error_level": 32768}}
        ]},
    });
    bootstrap["dynamic_resources"][about] = json!({"path_config_source": {"path": file}, "resource_api_version": "V3"});
    let there = clusters.iter().filter(|name| *name != "xds-grpc");
    let list = bootstrap["static_resources"]["clusters"].as_array_mut();
    if let Some(list) = list {
        list.extend(there.map(|name| json!({"name": name, "type": "STATIC"})));
    }
    bootstrap
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envoy_errors_are_parsed() {
        let words = " Error adding/updating cluster(s) judged-000003: no such thing, judged-000005: nor\nthis\n";
        let found = read(words);
        assert_eq!(found[&3], "no such thing");
        assert_eq!(found[&5], "nor\nthis");
        let one = " Proto constraint validation failed (X): name: \"judged-000001\"\nalt: \"judged-000002\"";
        assert_eq!(read(one).keys().collect::<Vec<_>>(), [&1]);
    }
}
