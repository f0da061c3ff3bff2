//! The dependencies of the workspace, from `cargo metadata --no-deps`.

use anyhow::{Context, Result};
use serde_json::Value;

use super::table::{self, Place};

/// The dependencies that the table does not allow, as text.
pub(super) fn faults(metadata: &Value) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for package in packages(metadata)? {
        let name = text(package, "name");
        let Some(place) = place(name) else {
            faults.push(format!("{name} is not in the table: add it to xtask/src/layers/table.rs and ARCHITECTURE.md"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            // Tests may use impure packages and all lower layers, but no crate of a higher layer.
            let for_tests = dependency["kind"].as_str() == Some("dev");
            let other = text(dependency, "name");
            if let Some(fault) = fault(name, place, other, for_tests) {
                faults.push(fault);
            }
        }
    }
    Ok(faults)
}

/// The number of crates.
pub(super) fn count(metadata: &Value) -> usize {
    packages(metadata).map_or(0, |packages| packages.len())
}

fn fault(name: &str, from: Place, other: &str, for_tests: bool) -> Option<String> {
    if let Some((_, reason)) = table::BANNED_PACKAGES.iter().find(|(banned, _)| *banned == other) {
        return Some(format!("{name} uses {other}, which nobody does: {reason}"));
    }
    let Some(to) = place(other) else {
        let pure = matches!(from, Place::Layer(layer, _) if layer <= table::PURE_UP_TO);
        let impure = pure && !for_tests && table::IMPURE_PACKAGES.contains(&other);
        return impure.then(|| format!("{name} is in a pure layer and uses {other}"));
    };
    let allowed = match (from, to) {
        (Place::Tests, _) => true,
        (Place::Layer(layer, same), Place::Layer(below, _)) => {
            table::may_read(layer, below) || same.contains(&other) || (for_tests && below < layer)
        }
        (Place::Beside(list), _) => list.contains(&other),
        (Place::Layer(..), Place::Beside(_)) => table::EXCEPTIONS.contains(&(name, other)),
        (Place::Layer(..), Place::Tests) => false,
    };
    (!allowed).then(|| format!("{name} ({}) depends on {other} ({})", shown(from), shown(to)))
}

fn place(name: &str) -> Option<Place> {
    table::CRATES.iter().find(|(known, _)| *known == name).map(|(_, place)| *place)
}

fn shown(place: Place) -> String {
    match place {
        Place::Layer(layer, _) => format!("L{layer}"),
        Place::Beside(_) => "beside".to_owned(),
        Place::Tests => "tests".to_owned(),
    }
}

fn packages(metadata: &Value) -> Result<&Vec<Value>> {
    metadata["packages"].as_array().context("cargo metadata has no list of packages")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::faults;

    fn check(name: &str, dependencies: serde_json::Value) -> Vec<String> {
        faults(&json!({ "packages": [{ "name": name, "dependencies": dependencies }] })).unwrap()
    }

    #[test]
    fn dependencies_on_lower_layers_are_allowed() {
        assert!(check("world", json!([{"name": "flow"}, {"name": "model"}, {"name": "traffic"}])).is_empty());
        assert!(check("rutter", json!([{"name": "runtime"}, {"name": "cli"}, {"name": "tokio"}])).is_empty());
        assert!(check("demo", json!([{"name": "rutter"}, {"name": "test-harness"}])).is_empty());
        assert!(check("server", json!([{"name": "xds"}, {"name": "hyper"}])).is_empty());
        assert!(check("e2e", json!([{"name": "rutter"}, {"name": "test-harness"}])).is_empty());
    }

    #[test]
    fn dependencies_on_higher_and_equal_layers_are_refused() {
        assert_eq!(check("model", json!([{"name": "world"}])), ["model (L1) depends on world (L2)"]);
        assert_eq!(check("registry", json!([{"name": "traffic"}])), ["registry (L2) depends on traffic (L2)"]);
        assert_eq!(check("sources", json!([{"name": "server"}])), ["sources (L4) depends on server (L4)"]);
        assert_eq!(
            check("server", json!([{"name": "test-harness"}])),
            ["server (L4) depends on test-harness (beside)"]
        );
        assert_eq!(check("rutter", json!([{"name": "demo"}])), ["rutter (L5) depends on demo (beside)"]);
        assert_eq!(
            check("world", json!([{"name": "scenarios", "kind": "dev"}])),
            ["world (L2) depends on scenarios (tests)"]
        );
    }

    #[test]
    fn xds_may_not_depend_on_the_world() {
        assert_eq!(check("xds", json!([{"name": "world"}])), ["xds (L3) depends on world (L2)"]);
        assert!(check("xds", json!([{"name": "model"}, {"name": "protos"}])).is_empty());
    }

    #[test]
    fn pure_layers_may_use_a_runtime_only_in_tests() {
        assert_eq!(check("xds", json!([{"name": "tokio"}])), ["xds is in a pure layer and uses tokio"]);
        assert_eq!(
            check("protos", json!([{"name": "tonic", "kind": "build"}])),
            ["protos is in a pure layer and uses tonic"]
        );
        assert!(check("xds", json!([{"name": "tokio", "kind": "dev"}])).is_empty());
    }

    #[test]
    fn banned_and_unknown_crates_are_reported() {
        assert!(check("rutter", json!([{"name": "openssl"}]))[0].starts_with("rutter uses openssl"));
        assert!(check("newcomer", json!([]))[0].starts_with("newcomer is not in the table"));
    }
}
