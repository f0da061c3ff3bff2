//! Wasm modules: filters with a remote module are changed to filters with a local file.
//!
//! A module that cannot be fetched never rejects a response: its filter is replaced by one that allows or denies all requests, as its
//! failure policy says. A response with a filter that cannot be read is rejected.

mod archive;
mod cache;
mod client;
mod credentials;
mod error;
mod filter;
mod oci;
mod reference;
mod settings;
mod tls;

use std::io::Read as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use futures::{FutureExt as _, StreamExt as _};
use http::Uri;
use protos::envoy::config::core::v3::TypedExtensionConfig;
use protos::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse};
use protos::{Any, Message, any};
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;
use tokio::sync::watch;

use crate::envelope::Variant;
use crate::grpc::Framed;
use crate::metrics::WasmMetrics;
use archive::Draft;
use cache::{Cache, Key};
use client::{Client, shown};
use filter::Filter;
use oci::Registry;
use reference::Reference;

pub use error::FetchError;
pub use settings::Settings;

#[doc(hidden)]
pub use filter::fuzz as fuzz_filter;
#[doc(hidden)]
pub use oci::fuzz as fuzz_registry;

/// The number of modules of a response that are fetched at a time.
const PARALLEL: usize = 4;
/// The first bytes of a module.
const MAGIC: &[u8] = b"\0asm";

/// The modules on this machine.
pub(crate) struct Modules {
    settings: Settings,
    metrics: WasmMetrics,
    client: Client,
    cache: Mutex<Cache>,
}

impl Modules {
    pub(crate) fn new(settings: Settings, metrics: WasmMetrics) -> Modules {
        let client = Client::new(&settings);
        Modules { settings, metrics, client, cache: Mutex::default() }
    }

    /// Whether filters are converted at all.
    pub(crate) fn converts(&self) -> bool {
        self.settings.convert
    }

    /// Replaces the remote modules of a response. A response without any is returned as it is.
    ///
    /// # Errors
    /// A filter cannot be read.
    pub(crate) async fn convert(&self, variant: Variant, message: Framed) -> Result<Framed, String> {
        let started = Instant::now();
        let converted = match variant {
            Variant::Sotw => {
                let mut response = DiscoveryResponse::decode(message.payload()).map_err(|error| error.to_string())?;
                let changed = self.convert_all(response.resources.iter_mut().collect()).await;
                changed.map(|changed| if changed { Framed::of(&response) } else { message })
            }
            Variant::Delta => {
                let mut response =
                    DeltaDiscoveryResponse::decode(message.payload()).map_err(|error| error.to_string())?;
                let resources = response.resources.iter_mut().filter_map(|resource| resource.resource.as_mut());
                let changed = self.convert_all(resources.collect()).await;
                changed.map(|changed| if changed { Framed::of(&response) } else { message })
            }
        };
        self.metrics.duration.observe(started.elapsed().as_secs_f64() * 1e3);
        converted
    }

    /// True if a resource was changed.
    async fn convert_all(&self, resources: Vec<&mut Any>) -> Result<bool, String> {
        let mut conversions = Vec::with_capacity(resources.len());
        for resource in resources {
            conversions.push(self.convert_one(resource).boxed());
        }
        let outcomes: Vec<_> = futures::stream::iter(conversions).buffer_unordered(PARALLEL).collect().await;
        let mut changed = false;
        for outcome in outcomes {
            changed |= outcome?;
        }
        Ok(changed)
    }

    /// Replaces the remote module of a resource. False if it has none.
    async fn convert_one(&self, resource: &mut Any) -> Result<bool, String> {
        let count = |result| self.metrics.conversions.with_label_values(&[result]).inc();
        let read = TypedExtensionConfig::decode(resource.value.clone())
            .map_err(|error| error.to_string())
            .and_then(|config| Ok((Filter::read(&config)?, config)));
        let (filter, config) = match read {
            Ok((Some(filter), config)) => (filter, config),
            Ok((None, _)) => {
                count("no_remote_load");
                return Ok(false);
            }
            Err(error) => {
                count("unmarshal_failure");
                return Err(error);
            }
        };
        let name = config.name.clone();
        let converted = match self.file(&name, &filter).await {
            Ok(file) => {
                count("success");
                filter.with_file(config, &file.to_string_lossy()).map_err(|error| error.to_string())?
            }
            Err(error) => {
                count(if filter.uri.is_some() { "fetch_failure" } else { "miss_remote_fetch_hint" });
                let instead = if filter.fail_open { "allows" } else { "denies" };
                tracing::error!(name, %error, "no Wasm module: the filter is replaced by one that {instead} all requests");
                filter.replacement(name)
            }
        };
        *resource = any(&converted);
        Ok(true)
    }

    /// The local file of a filter's module.
    async fn file(&self, name: &str, filter: &Filter) -> Result<PathBuf, FetchError> {
        let url = filter.uri.as_deref().ok_or(FetchError::NoUri)?;
        if filter.pull_secret.as_deref() == Some("") {
            return Err(FetchError::NoSecret);
        }
        tokio::time::timeout(filter.timeout, self.get(name, url, filter))
            .await
            .unwrap_or(Err(FetchError::Timeout(filter.timeout)))
    }

    async fn get(&self, name: &str, url: &str, filter: &Filter) -> Result<PathBuf, FetchError> {
        let image = match url.strip_prefix("oci://") {
            Some(image) => Some(Reference::parse(image).ok_or_else(|| FetchError::Url(shown(url)))?),
            None => None,
        };
        let key = Key {
            name: image.as_ref().map_or_else(|| url.to_owned(), Reference::name),
            url: url.to_owned(),
            resource: name.to_owned(),
            version: filter.resource_version.clone(),
            is_fixed: image.as_ref().is_some_and(|image| image.digest.is_some()),
        };
        let mut checksum = filter.sha256.clone();
        if checksum.is_empty()
            && let Some(digest) = image.as_ref().and_then(|image| image.digest.as_deref()?.strip_prefix("sha256:"))
        {
            checksum = digest.to_owned();
        }
        let ignore_version = filter.ignores_version(image.as_ref());
        if let Some(path) = self.cached(&key, &checksum, ignore_version) {
            return Ok(path);
        }
        match image {
            Some(image) => self.fetch_image(&key, checksum, &image, filter).await,
            None => self.fetch_url(&key, checksum, url).await,
        }
    }

    /// The file of a cached module.
    fn cached(&self, key: &Key, checksum: &str, ignore_version: bool) -> Option<PathBuf> {
        let path = self.cache().find(key, checksum, ignore_version, Instant::now()).filter(|path| path.exists());
        self.metrics.lookups.with_label_values(&[if path.is_some() { "true" } else { "false" }]).inc();
        path
    }

    async fn fetch_url(&self, key: &Key, checksum: String, url: &str) -> Result<PathBuf, FetchError> {
        let uri: Uri = url.parse().map_err(|_| FetchError::Url(shown(url)))?;
        let file = self.counted("download_failure", self.draft())?;
        let fetched = self.client.download(&uri, &[], file.file.as_file()).await;
        self.counted("download_failure", fetched)?;
        let opened = blocking(move || archive::open(file)).await;
        let (file, sum) = self.counted("download_failure", opened)?;
        self.check(url, &checksum, &sum)?;
        self.keep(key, sum, file)
    }

    async fn fetch_image(
        &self,
        key: &Key,
        checksum: String,
        image: &Reference,
        filter: &Filter,
    ) -> Result<PathBuf, FetchError> {
        tracing::info!(registry = image.registry, repository = image.repository, "fetching a Wasm module");
        let docker_config = self.settings.docker_config.as_deref();
        let credentials = credentials::find(filter.pull_secret.as_deref(), docker_config, &image.registry)?;
        let registry = Registry::new(&self.client, image, credentials);
        let manifest = self.counted("manifest_failure", registry.manifest().await)?;
        let digest = if checksum.is_empty() { manifest.sha256.clone() } else { checksum };
        if !manifest.has_digest(&digest) {
            self.check(&key.url, &digest, &manifest.sha256)?;
        }
        if let Some(path) = self.cached(key, &digest, true) {
            return Ok(path);
        }
        let layer = self.counted("download_failure", manifest.layer().map_err(FetchError::Image))?;
        let file = self.counted("download_failure", self.draft())?;
        let fetched = registry.layer(&layer, file.file.as_file()).await;
        self.counted("download_failure", fetched)?;
        let opened = if layer.is_archive { blocking(move || archive::plugin(file)).await } else { Ok(file.file) };
        let file = self.counted("download_failure", opened)?;
        self.keep(key, digest, file)
    }

    fn check(&self, url: &str, expected: &str, found: &str) -> Result<(), FetchError> {
        if expected.is_empty() || expected == found {
            return Ok(());
        }
        let error = FetchError::Checksum { url: shown(url), found: found.to_owned(), expected: expected.to_owned() };
        self.counted("checksum_mismatched", Err(error))
    }

    /// Moves a fetched module to its place.
    fn keep(&self, key: &Key, checksum: String, file: NamedTempFile) -> Result<PathBuf, FetchError> {
        let mut start = [0; 8];
        if file.reopen()?.read_exact(&mut start).is_err() || !start.starts_with(MAGIC) {
            return self.counted("fetch_failure", Err(FetchError::NotWasm(shown(&key.url))));
        }
        let directory = self.settings.directory.join(hex(&Sha256::digest(&key.name)));
        std::fs::create_dir_all(&directory)?;
        let path = directory.join(format!("{checksum}.wasm"));
        readable(&file)?;
        file.persist(&path).map_err(|error| error.error)?;
        self.metrics.fetches.with_label_values(&["success"]).inc();
        let mut cache = self.cache();
        cache.add(key, checksum, path.clone(), Instant::now());
        self.metrics.entries.set(i64::try_from(cache.len()).unwrap_or(i64::MAX));
        Ok(path)
    }

    /// Counts a failed fetch.
    fn counted<T>(&self, result: &str, outcome: Result<T, FetchError>) -> Result<T, FetchError> {
        outcome.inspect_err(|_| self.metrics.fetches.with_label_values(&[result]).inc())
    }

    fn draft(&self) -> Result<Draft, FetchError> {
        std::fs::create_dir_all(&self.settings.directory)?;
        Ok(Draft { file: NamedTempFile::new_in(&self.settings.directory)?, limit: self.settings.max_bytes })
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes modules that were not used for some time, until the agent stops.
    pub(crate) async fn purge(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval(self.settings.purge_interval);
        ticks.tick().await;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            let mut cache = self.cache();
            for path in cache.expire(self.settings.expiry, Instant::now()) {
                if let Err(error) = std::fs::remove_file(&path) {
                    tracing::warn!(path = %path.display(), %error, "cannot remove an unused Wasm module");
                }
            }
            self.metrics.entries.set(i64::try_from(cache.len()).unwrap_or(i64::MAX));
        }
    }
}

/// Lets the proxy read the file, which may run as another user.
fn readable(file: &NamedTempFile) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FetchError> + Send + 'static,
) -> Result<T, FetchError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(std::io::Error::other(error).into()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
