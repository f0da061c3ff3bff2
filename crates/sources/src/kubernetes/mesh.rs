//! The mesh's settings: from our own ConfigMap, or a file in its place, over those of a shared ConfigMap.
//!
//! What our own says holds, field by field; some fields are joined: `defaultConfig` at all depths, `defaultProviders` by
//! field, `extensionProviders` by name, `trustDomainAliases` as a set. A text that is not valid leaves its last good
//! version in force.

mod merging;
#[cfg(test)]
mod tests;

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::{AnyObject, Diagnostic, MeshConfig, MeshNetworks, Object, ParseOptions};
use serde_json::{Map, Value};

use super::table::Gathered;
use merging::merged;

/// Where the settings are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeshOptions {
    /// The namespace of both ConfigMaps.
    pub namespace: String,
    /// Our own ConfigMap.
    pub name: String,
    /// The one that holds where ours says nothing.
    pub shared: Option<String>,
    /// A file in place of our own `mesh`, where it is there.
    pub file: Option<PathBuf>,
}

/// One of the two ConfigMaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// The shared one.
    Shared,
    /// Our own.
    Own,
}

/// A text, and its last good version.
#[derive(Clone, PartialEq, Debug, Default)]
struct Text {
    text: Option<Arc<str>>,
    good: Option<(Value, AnyObject)>,
    rejected: bool,
}

/// The settings, as they are known by now.
#[derive(Debug)]
pub(crate) struct Mesh {
    options: MeshOptions,
    /// By place: `mesh` and `meshNetworks`.
    texts: [[Text; 2]; 2],
    file: Text,
    file_bytes: Option<Vec<u8>>,
    /// What was said last.
    config: Option<AnyObject>,
    networks: Option<AnyObject>,
    rejected: bool,
}

impl Mesh {
    /// Nothing is known yet but the file, which is read at once.
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

    /// The ConfigMaps to follow, with their names.
    pub(crate) fn places(&self) -> Vec<(Place, String)> {
        let shared = self.options.shared.clone().map(|name| (Place::Shared, name));
        shared
            .into_iter()
            .chain([(Place::Own, self.options.name.clone())])
            .collect()
    }

    /// The settings that are in force.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &AnyObject> {
        self.config.iter().chain(&self.networks)
    }

    /// Begins with settings from an earlier life, unless there are others already. Whether they count.
    pub(crate) fn seed(&mut self, object: &AnyObject) -> bool {
        let slot = match object {
            AnyObject::MeshConfig(_) => &mut self.config,
            _ => &mut self.networks,
        };
        let counts = slot.is_none();
        slot.get_or_insert_with(|| object.clone());
        counts
    }

    /// Whether anything of it is not valid now.
    pub(crate) fn is_rejected(&self) -> bool {
        self.rejected || self.file.rejected || self.texts.iter().flatten().any(|text| text.rejected)
    }

    /// Takes in a ConfigMap (none: it is gone), and adds what that changes.
    pub(crate) fn take(&mut self, place: Place, map: Option<&Value>, out: &mut Gathered) {
        let name = match place {
            Place::Shared => self.options.shared.clone().unwrap_or_default(),
            Place::Own => self.options.name.clone(),
        };
        for (at, key) in ["mesh", "meshNetworks"].into_iter().enumerate() {
            let text = map.and_then(|map| map["data"][key].as_str());
            let file = format!("ConfigMap {}/{name}: {key}", self.options.namespace);
            let slot = &mut self.texts[place as usize][at];
            if slot.text.as_deref() != text {
                slot.text = text.map(Into::into);
                let checked = text.map(|text| {
                    if at == 0 {
                        config(text, &file)
                    } else {
                        networks(text, &file)
                    }
                });
                slot.settle(checked, file.into(), out);
            }
        }
        self.settle(out);
    }

    /// Looks at the file, and adds what that changes.
    pub(crate) fn look(&mut self, out: &mut Gathered) {
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

    /// Compares the whole with what was said last.
    fn settle(&mut self, out: &mut Gathered) {
        let [shared, own] = &self.texts;
        let own_config = self.file.good.as_ref().or(own[0].good.as_ref());
        let config = match (&shared[0].good, own_config) {
            (Some((base, _)), Some((over, _))) => {
                let text = merged(base.clone(), over.clone()).to_string();
                let file: Arc<str> = "the shared mesh configuration with our own over it".into();
                let (object, problems) = config(&text, &file);
                self.rejected = object.is_none();
                // What is wrong with one of them was said there.
                let problems = if self.rejected { problems } else { Vec::new() };
                out.say(file, problems);
                object.map(|(_, object)| object).or_else(|| self.config.clone())
            }
            (one, other) => one.as_ref().or(other).map(|(_, object)| object.clone()),
        };
        let networks = own[1]
            .good
            .as_ref()
            .or(shared[1].good.as_ref())
            .map(|(_, object)| object.clone());
        say(&mut self.config, config, out);
        say(&mut self.networks, networks, out);
    }
}

/// Adds the difference to what was said last.
fn say(before: &mut Option<AnyObject>, now: Option<AnyObject>, out: &mut Gathered) {
    if *before == now {
        return;
    }
    match (&now, &before) {
        (Some(object), _) => out.put(object.clone()),
        (None, Some(object)) => out.remove(object.key()),
        (None, None) => {}
    }
    *before = now;
}

type Checked = (Option<(Value, AnyObject)>, Vec<Diagnostic>);

impl Text {
    fn settle(&mut self, checked: Option<Checked>, file: Arc<str>, out: &mut Gathered) {
        let Some((good, diagnostics)) = checked else {
            out.say(file, Vec::new());
            *self = Text::default();
            return;
        };
        self.rejected = good.is_none();
        if self.rejected {
            let effect = match self.good {
                Some(_) => "its last good version stays in force",
                None => "it has no effect",
            };
            tracing::error!(%file, "the mesh configuration is not valid: {effect}");
        } else {
            self.good = good;
        }
        out.say(file, diagnostics);
    }
}

fn config(text: &str, file: &str) -> Checked {
    let options = ParseOptions::default();
    let (config, diagnostics) = config::parse_mesh_config(text.as_bytes(), file, &options);
    let object = config.map(|config| Object::new("", MeshConfig::NAME, config).into());
    (object.map(|object| (value(text, file), object)), diagnostics)
}

fn networks(text: &str, file: &str) -> Checked {
    let options = ParseOptions::default();
    let (networks, diagnostics) = config::parse_mesh_networks(text.as_bytes(), file, &options);
    let object = networks.map(|networks| Object::new("", &*MeshNetworks::key().name, networks).into());
    (object.map(|object| (Value::Null, object)), diagnostics)
}

/// The fields of a text that is valid.
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
