//! The mesh configuration: the ConfigMap of this revision, or a file in its place, merged over a shared ConfigMap.
//!
//! Fields of the revision's configuration override the shared one. Some fields are merged: `defaultConfig` deeply,
//! `defaultProviders` by field, `extensionProviders` by name, `trustDomainAliases` as a set. If a text is invalid, its
//! last valid version stays in effect.

mod merging;
#[cfg(test)]
mod tests;

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::{AnyObject, ChangeSet, Diagnostic, MeshConfig, MeshNetworks, Object, ParseOptions};
use serde_json::{Map, Value};

use merging::merged;

/// The location of the mesh configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeshOptions {
    /// The namespace of both ConfigMaps.
    pub namespace: String,
    /// The ConfigMap of this revision.
    pub name: String,
    /// The shared ConfigMap, with lower precedence.
    pub shared: Option<String>,
    /// A file that replaces the `mesh` key of the revision's ConfigMap, if it exists.
    pub file: Option<PathBuf>,
}

/// One of the two ConfigMaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConfigMapRole {
    /// The shared one.
    Shared,
    /// The one of this revision.
    Own,
}

/// A text and its last valid version.
#[derive(Clone, PartialEq, Debug, Default)]
struct Text {
    text: Option<Arc<str>>,
    good: Option<(Value, AnyObject)>,
    rejected: bool,
}

/// The current mesh configuration.
#[derive(Debug)]
pub(crate) struct Mesh {
    options: MeshOptions,
    /// By ConfigMap: `mesh` and `meshNetworks`.
    texts: [[Text; 2]; 2],
    file: Text,
    file_bytes: Option<Vec<u8>>,
    /// The last emitted objects.
    config: Option<AnyObject>,
    networks: Option<AnyObject>,
    rejected: bool,
}

impl Mesh {
    /// The initial state, without any texts.
    pub(crate) fn new(options: MeshOptions) -> Mesh {
        Mesh {
            options,
            texts: Default::default(),
            file: Text::default(),
            file_bytes: None,
            config: None,
            networks: None,
            rejected: false,
        }
    }

    /// The ConfigMaps to watch, with their names.
    pub(crate) fn places(&self) -> Vec<(ConfigMapRole, String)> {
        let shared = self.options.shared.clone().map(|name| (ConfigMapRole::Shared, name));
        shared.into_iter().chain([(ConfigMapRole::Own, self.options.name.clone())]).collect()
    }

    /// The objects in effect.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &AnyObject> {
        self.config.iter().chain(&self.networks)
    }

    /// Adds an object of a snapshot, unless there is one already. Returns whether it was added.
    pub(crate) fn seed(&mut self, object: &AnyObject) -> bool {
        let slot = match object {
            AnyObject::MeshConfig(_) => &mut self.config,
            _ => &mut self.networks,
        };
        let counts = slot.is_none();
        slot.get_or_insert_with(|| object.clone());
        counts
    }

    /// Whether any text is invalid.
    pub(crate) fn is_rejected(&self) -> bool {
        self.rejected || self.file.rejected || self.texts.iter().flatten().any(|text| text.rejected)
    }

    /// Handles a ConfigMap (`None` if deleted).
    pub(crate) fn take(&mut self, place: ConfigMapRole, map: Option<&Value>, out: &mut ChangeSet) {
        let name = match place {
            ConfigMapRole::Shared => self.options.shared.clone().unwrap_or_default(),
            ConfigMapRole::Own => self.options.name.clone(),
        };
        for (at, key) in ["mesh", "meshNetworks"].into_iter().enumerate() {
            let text = map.and_then(|map| map["data"][key].as_str());
            let file = format!("ConfigMap {}/{name}: {key}", self.options.namespace);
            let slot = &mut self.texts[place as usize][at];
            if slot.text.as_deref() != text {
                slot.text = text.map(Into::into);
                let checked = text.map(|text| if at == 0 { config(text, &file) } else { networks(text, &file) });
                slot.settle(checked, file.into(), out);
            }
        }
        self.settle(out);
    }

    /// Reads the file if it changed.
    pub(crate) fn look(&mut self, out: &mut ChangeSet) {
        let Some(path) = self.options.file.clone() else { return };
        let bytes = read(&path);
        if bytes == self.file_bytes {
            return;
        }
        let file = path.display().to_string();
        let text = bytes.as_deref().map(String::from_utf8_lossy);
        self.file.text = text.as_deref().map(Into::into);
        let checked = text.map(|text| config(&text, &file));
        self.file.settle(checked, file.into(), out);
        self.file_bytes = bytes;
        self.settle(out);
    }

    /// Emits the merged configuration if it changed.
    fn settle(&mut self, out: &mut ChangeSet) {
        let [shared, own] = &self.texts;
        let own_config = self.file.good.as_ref().or(own[0].good.as_ref());
        let config = match (&shared[0].good, own_config) {
            (Some((base, _)), Some((over, _))) => {
                let text = merged(base.clone(), over.clone()).to_string();
                let file: Arc<str> = "the merged mesh configuration".into();
                let (object, problems) = config(&text, &file);
                self.rejected = object.is_none();
                // Diagnostics of each text were reported separately.
                let problems = if self.rejected { problems } else { Vec::new() };
                out.report(file, problems);
                object.map(|(_, object)| object).or_else(|| self.config.clone())
            }
            (one, other) => one.as_ref().or(other).map(|(_, object)| object.clone()),
        };
        let networks = own[1].good.as_ref().or(shared[1].good.as_ref()).map(|(_, object)| object.clone());
        emit(&mut self.config, config, out);
        emit(&mut self.networks, networks, out);
    }
}

/// Emits an object if it differs from the last one.
fn emit(before: &mut Option<AnyObject>, now: Option<AnyObject>, out: &mut ChangeSet) {
    if *before == now {
        return;
    }
    match (&now, &before) {
        (Some(object), _) => out.upsert(object.clone()),
        (None, Some(object)) => out.delete(object.key()),
        (None, None) => {}
    }
    *before = now;
}

type Checked = (Option<(Value, AnyObject)>, Vec<Diagnostic>);

impl Text {
    fn settle(&mut self, checked: Option<Checked>, file: Arc<str>, out: &mut ChangeSet) {
        let Some((good, diagnostics)) = checked else {
            out.report(file, Vec::new());
            *self = Text::default();
            return;
        };
        self.rejected = good.is_none();
        if self.rejected {
            let effect = match self.good {
                Some(_) => "its last valid version stays in effect",
                None => "it has no effect",
            };
            tracing::error!(%file, "the mesh configuration is invalid: {effect}");
        } else {
            self.good = good;
        }
        out.report(file, diagnostics);
    }
}

fn config(text: &str, file: &str) -> Checked {
    let options = ParseOptions::default().degrading();
    let (config, diagnostics) = config::parse_mesh_config(text.as_bytes(), file, &options);
    let object = config.map(|config| Object::new("", MeshConfig::NAME, config).into());
    (object.map(|object| (value(text, file), object)), diagnostics)
}

fn networks(text: &str, file: &str) -> Checked {
    let options = ParseOptions::default().degrading();
    let (networks, diagnostics) = config::parse_mesh_networks(text.as_bytes(), file, &options);
    let object = networks.map(|networks| Object::new("", &*MeshNetworks::key().name, networks).into());
    (object.map(|object| (Value::Null, object)), diagnostics)
}

/// The fields of a valid text.
fn value(text: &str, file: &str) -> Value {
    let read = config::parse_yaml_json(text.as_bytes(), file, &ParseOptions::default().limits);
    let document = read.documents.into_iter().next();
    document.map_or(Value::Object(Map::new()), |document| document.value)
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let limit = ParseOptions::default().limits.file_bytes as u64 + 1;
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(limit).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
