//! Configuration sources beside the store: directories and `MeshConfig.configSources`.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use config::{ChangeSet, Kind, MeshConfig, ParseOptions, mesh};
use sources::xds::{self, Location, Node};
use sources::{ChangeSender, files, kubernetes};
use store::Store;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::file_objects;
use super::intake::Source;

/// One entry of `configSources`.
pub(super) struct ConfigSource {
    index: usize,
    address: Arc<str>,
    location: Location,
}

/// The running sources. Dropping it stops them.
#[derive(Default)]
pub(super) struct Running {
    watches: Vec<files::Watch>,
    tasks: JoinSet<()>,
}

/// An invalid entry of `configSources`.
#[derive(Debug, thiserror::Error)]
enum InvalidSource {
    #[error("MeshConfig.configSources[{index}].{}: {:?}: {}", error.field, error.address, error.reason)]
    Address { index: usize, error: xds::AddressError },
    #[error("MeshConfig.configSources[{index}].address: configSources[{other}] names the same place")]
    Repeated { index: usize, other: usize },
}

/// Reads the entries of `MeshConfig.configSources`.
///
/// # Errors
/// Lists every invalid entry with its field path.
pub(super) fn read(config: &MeshConfig) -> Result<Vec<ConfigSource>> {
    let mut places: Vec<ConfigSource> = Vec::new();
    let mut wrong = Vec::new();
    for (index, source) in config.config_sources.iter().enumerate() {
        match one(&places, index, source) {
            Ok(place) => places.push(place),
            Err(error) => wrong.push(error.to_string()),
        }
    }
    if !wrong.is_empty() {
        bail!(wrong.join("\n"));
    }
    Ok(places)
}

fn one(before: &[ConfigSource], index: usize, source: &mesh::ConfigSource) -> Result<ConfigSource, InvalidSource> {
    let location = xds::locate(source).map_err(|error| InvalidSource::Address { index, error })?;
    match before.iter().find(|other| other.location == location) {
        Some(same) => Err(InvalidSource::Repeated { index, other: same.index }),
        None => Ok(ConfigSource { index, address: source.address.clone(), location }),
    }
}

impl ConfigSource {
    /// The name of the source, and whether it is remote.
    pub(super) fn source(&self) -> Source {
        Source {
            name: format!("configSources[{}] {}", self.index, self.address).into(),
            remote: !matches!(self.location, Location::Directory(_)),
        }
    }
}

impl Running {
    /// Reads a directory and follows it. Returns after its content was sent.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(super) async fn directory(&mut self, directory: &Path, changes: ChangeSender) -> Result<()> {
        let sink = move |change| {
            // Fails only during shutdown.
            let _ = changes.send_blocking(change);
        };
        self.watch(directory, ParseOptions::default(), sink).await
    }

    /// Reads a directory and follows it. Its objects are also written to the store.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(super) async fn stored_directory(
        &mut self,
        directory: &Path,
        store: Arc<dyn Store>,
        changes: ChangeSender,
    ) -> Result<()> {
        let (sender, receiver) = mpsc::channel(1);
        self.tasks.spawn(file_objects::relay(store, receiver, changes));
        let sink = move |change| {
            // Fails only during shutdown.
            let _ = sender.blocking_send(change);
        };
        self.watch(directory, ParseOptions { originals: true, ..ParseOptions::default() }, sink).await
    }

    async fn watch(
        &mut self,
        directory: &Path,
        options: ParseOptions,
        sink: impl FnMut(ChangeSet) + Send + 'static,
    ) -> Result<()> {
        let root = directory.to_owned();
        // Blocks while the queue is full.
        let reading = tokio::task::spawn_blocking(move || files::watch(&root, &options, sink));
        self.watches.push(reading.await??);
        Ok(())
    }

    /// Starts to follow a configuration source. `node` identifies this process to other control planes.
    ///
    /// # Errors
    /// A directory cannot be read, or the Kubernetes client cannot be created. Another control plane may be
    /// unavailable.
    pub(super) async fn place(&mut self, place: ConfigSource, node: Node, changes: ChangeSender) -> Result<()> {
        let field = format!("MeshConfig.configSources[{}].address: {:?}", place.index, place.address);
        match place.location {
            Location::Directory(directory) => self.directory(&directory, changes).await.context(field),
            Location::Xds(address) => {
                let mut options = xds::Options::new(address, node);
                // The mesh settings of this cluster apply, not those of another.
                options.kinds.retain(|kind| *kind != Kind::MeshConfig);
                self.tasks.spawn(xds::follow(options, changes));
                Ok(())
            }
            Location::Kubernetes => {
                let client = kubernetes::client().await.context(field)?;
                let report = watch::Sender::default();
                self.tasks.spawn(kubernetes::follow(kubernetes::Options::new(client), changes, report));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(addresses: &[&str]) -> MeshConfig {
        let source =
            |address: &&str| mesh::ConfigSource { address: (*address).into(), ..mesh::ConfigSource::default() };
        MeshConfig { config_sources: addresses.iter().map(source).collect(), ..MeshConfig::default() }
    }

    #[test]
    fn sources_have_names_and_keep_their_order() {
        let places = read(&config(&["fs:///etc/mesh", "xds://a:15010", "k8s://"])).unwrap();
        let sources: Vec<Source> = places.iter().map(ConfigSource::source).collect();
        let named: Vec<(&str, bool)> = sources.iter().map(|s| (&*s.name, s.remote)).collect();
        let wanted = [
            ("configSources[0] fs:///etc/mesh", false),
            ("configSources[1] xds://a:15010", true),
            ("configSources[2] k8s://", true),
        ];
        assert_eq!(named, wanted);
    }

    #[test]
    fn every_invalid_entry_is_reported_with_its_field_path() {
        let error = read(&config(&["xds://a", "k8s://", "k8s://"])).err().unwrap().to_string();
        let lines: Vec<&str> = error.lines().collect();
        assert!(
            lines[0].starts_with("MeshConfig.configSources[0].address: \"xds://a\": the port is missing"),
            "{error}"
        );
        assert_eq!(lines[1], "MeshConfig.configSources[2].address: configSources[1] names the same place");
    }
}
