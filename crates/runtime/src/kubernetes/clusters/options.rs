//! Options for reading other clusters.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use server::SecretAccess;
use settings::Settings;
use sources::clusters::Allowed;
use sources::kubernetes::Kinds;

use super::super::kinds;
use crate::backend;

/// Options for reading other clusters.
#[derive(Clone)]
pub(in crate::kubernetes) struct Options {
    /// The id of the home cluster.
    pub(super) home: Arc<str>,
    /// The namespace of the Secrets.
    pub(super) namespace: Arc<str>,
    /// The directory with kubeconfigs that replaces the Secrets, if set.
    pub(super) directory: Option<PathBuf>,
    /// How long a cluster may delay the start; zero for no limit.
    pub(super) timeout: Duration,
    pub(super) allowed: Allowed,
    pub(super) filter: Kinds,
    /// Whether to read the Secrets of gateways there.
    pub(super) credentials: bool,
    /// The directory of snapshots, their owner, and the interval of writes. `None` if snapshots are disabled.
    pub(super) kept: Option<(PathBuf, String, Duration)>,
}

impl Options {
    /// Reads the settings. `address` is the address of the home cluster.
    pub(in crate::kubernetes) fn new(settings: &Settings, address: &str) -> Options {
        let namespace = match settings.cluster_registries_namespace.as_str() {
            "" => settings.namespace.as_str(),
            given => given,
        };
        let allowed = Allowed::parse(settings.insecure_kubeconfig_options.as_str()).unwrap_or_else(|error| {
            tracing::warn!(
                %error,
                "--insecure-kubeconfig-options is invalid: no additional kubeconfig features are allowed"
            );
            Allowed::default()
        });
        let whose = format!("{address}, namespace {namespace}");
        let kept = (settings.data_dir.clone(), whose, settings.snapshot_interval);
        Options {
            home: settings.cluster_id.as_str().into(),
            namespace: namespace.into(),
            directory: settings.multicluster_kubeconfig_path.clone(),
            timeout: settings.remote_cluster_timeout,
            allowed,
            filter: kinds(settings),
            credentials: backend::secret_access(settings) != SecretAccess::None,
            kept: Some(kept).filter(|(.., interval)| !interval.is_zero()),
        }
    }
}
