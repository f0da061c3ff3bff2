//! CNI configurations: lists of plugins that the container runtime runs one after the other.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::settings::Settings;

/// The type of our plugin: the name of its program. Also its name.
pub(crate) const PLUGIN: &str = "istio-cni";
/// The version of the specification of a configuration that we make.
const VERSION: &str = "0.3.1";
/// The name of our file if the plugin is not chained. It comes after those of others.
const STANDALONE: &str = "YYY-istio-cni.conf";
/// The largest configuration.
const MAX_FILE: u64 = 1 << 20;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConflistError {
    /// It cannot be read.
    #[error("cannot read {path}: {1}", path = .0.display())]
    Read(PathBuf, io::Error),
    /// It is not valid.
    #[error("{path} is not a CNI configuration: {1}", path = .0.display())]
    Invalid(PathBuf, String),
}

/// The entry of our plugin.
pub(crate) fn entry(settings: &Settings) -> Value {
    json!({
        "name": PLUGIN,
        "type": PLUGIN,
        "plugin_log_level": settings.log_level,
        "cni_agent_run_dir": settings.run_dir,
        "ambient_enabled": false,
        "exclude_namespaces": settings.exclude_namespaces,
        "pod_namespace": settings.pod_namespace,
        "native_nftables": settings.native_nftables,
    })
}

/// A configuration that consists of our plugin only.
pub(crate) fn standalone(settings: &Settings) -> Value {
    let mut entry = entry(settings);
    entry["cniVersion"] = VERSION.into();
    entry
}

/// A configuration with our plugin at its end. A configuration of a single plugin becomes a list. `None` if it is neither.
pub(crate) fn with_plugin(existing: &Value, entry: Value) -> Option<Value> {
    let mut list = existing.clone();
    if existing.get("type").is_some() {
        list.as_object_mut()?.remove("cniVersion");
        return Some(json!({ "name": "k8s-pod-network", "cniVersion": VERSION, "plugins": [list, entry] }));
    }
    let plugins = list.get_mut("plugins")?.as_array_mut()?;
    plugins.retain(|plugin| plugin["type"] != PLUGIN);
    plugins.push(entry);
    Some(list)
}

/// A list without our plugin. `None` if it is not there.
pub(crate) fn without_plugin(existing: &Value) -> Option<Value> {
    let mut list = existing.clone();
    let plugins = list.get_mut("plugins")?.as_array_mut()?;
    let before = plugins.len();
    plugins.retain(|plugin| plugin["type"] != PLUGIN);
    (plugins.len() < before).then_some(list)
}

/// The file that our plugin is added to: the one of the settings, or the first valid one. `None` if it is not there yet.
pub(crate) fn find(settings: &Settings) -> io::Result<Option<PathBuf>> {
    let dir = &settings.net_dir;
    if !settings.chained {
        let name = if settings.cni_conf_name.is_empty() { STANDALONE } else { &settings.cni_conf_name };
        return Ok(Some(dir.join(name)));
    }
    if !settings.cni_conf_name.is_empty() {
        // The file may have become a list, or have been one.
        let path = dir.join(&settings.cni_conf_name);
        let other =
            path.with_extension(if path.extension().is_some_and(|of| of == "conf") { "conflist" } else { "conf" });
        return Ok([path, other].into_iter().find(|path| path.is_file()));
    }
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    let is_valid = |path: &PathBuf| match path.extension().and_then(|extension| extension.to_str()) {
        Some("conf") => read(path).is_ok_and(|conf| conf["type"].is_string()),
        Some("conflist") => read(path).is_ok_and(|list| list["plugins"].as_array().is_some_and(|all| !all.is_empty())),
        _ => false,
    };
    Ok(files.into_iter().find(is_valid))
}

/// Reads a configuration.
pub(crate) fn read(path: &Path) -> Result<Value, ConflistError> {
    use std::io::Read as _;
    let failed = |error| ConflistError::Read(path.to_owned(), error);
    let mut text = Vec::new();
    std::fs::File::open(path).map_err(failed)?.take(MAX_FILE).read_to_end(&mut text).map_err(failed)?;
    serde_json::from_slice(&text).map_err(|error| ConflistError::Invalid(path.to_owned(), error.to_string()))
}

/// Adds our plugin to a configuration, or makes it anew. `None` if nothing changes; else the path and the text to write.
pub(crate) fn installed(settings: &Settings, path: &Path) -> Result<Option<(PathBuf, String)>, ConflistError> {
    let (target, wanted) = match settings.chained {
        false => (path.to_owned(), standalone(settings)),
        true => {
            let existing = read(path)?;
            let list = with_plugin(&existing, entry(settings))
                .ok_or_else(|| ConflistError::Invalid(path.to_owned(), "it has neither type nor plugins".to_owned()))?;
            if list == existing {
                return Ok(None);
            }
            (path.with_extension("conflist"), list)
        }
    };
    let same = read(&target).is_ok_and(|existing| existing == wanted);
    Ok((!same).then(|| (target, format!("{wanted:#}\n"))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ours() -> Value {
        json!({ "type": PLUGIN, "new": true })
    }

    #[test]
    fn a_single_plugin_becomes_a_list() {
        let single = json!({ "cniVersion": "0.4.0", "type": "bridge", "bridge": "cni0" });
        let expected = json!({
            "name": "k8s-pod-network", "cniVersion": "0.3.1",
            "plugins": [{ "type": "bridge", "bridge": "cni0" }, { "type": "istio-cni", "new": true }],
        });
        assert_eq!(with_plugin(&single, ours()), Some(expected));
    }

    #[test]
    fn our_plugin_is_replaced_and_goes_to_the_end() {
        let list = json!({ "name": "a", "x": 1, "plugins": [{ "type": "istio-cni", "old": 1 }, { "type": "bridge" }] });
        let expected =
            json!({ "name": "a", "x": 1, "plugins": [{ "type": "bridge" }, { "type": "istio-cni", "new": true }] });
        assert_eq!(with_plugin(&list, ours()), Some(expected));
        assert_eq!(without_plugin(&list), Some(json!({ "name": "a", "x": 1, "plugins": [{ "type": "bridge" }] })));
        assert_eq!(without_plugin(&json!({ "plugins": [{ "type": "bridge" }] })), None);
        for other in [json!(null), json!([]), json!({}), json!({ "plugins": {} })] {
            assert_eq!(with_plugin(&other, ours()), None);
        }
    }

    proptest! {
        #[test]
        fn a_list_is_restored(names in proptest::collection::vec("[a-z]{1,5}|istio-cni", 0..5)) {
            let plugins: Vec<Value> = names.iter().map(|name| json!({ "type": name })).collect();
            let list = json!({ "name": "n", "plugins": plugins });
            let with = with_plugin(&list, ours()).ok_or(TestCaseError::fail("a list"))?;
            prop_assert_eq!(with_plugin(&with, ours()), Some(with.clone()));
            let others: Vec<Value> = plugins.into_iter().filter(|plugin| plugin["type"] != PLUGIN).collect();
            prop_assert_eq!(without_plugin(&with), Some(json!({ "name": "n", "plugins": others })));
        }
    }
}
