//! The store backend that the settings select.

use std::path::Path;

use server::{SecretAccess, UnixSocket};
use settings::{Address, SecretsFor, Settings, StoreBackend};

/// The path of the token of a pod's service account.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// The default port of the monitoring pages.
const MONITORING_PORT: u16 = 15014;

/// The store backend, with `auto` resolved.
pub(super) fn chosen(settings: &Settings) -> StoreBackend {
    match settings.store {
        StoreBackend::Auto if in_a_pod() => StoreBackend::Kubernetes,
        StoreBackend::Auto if settings.config_dir.is_some() => StoreBackend::Files,
        StoreBackend::Auto => StoreBackend::Embedded,
        home => home,
    }
}

/// The clients that may read secrets.
pub(super) fn secret_access(settings: &Settings) -> SecretAccess {
    let in_kubernetes = chosen(settings) == StoreBackend::Kubernetes;
    match settings.secrets_for {
        SecretsFor::Nobody => SecretAccess::None,
        SecretsFor::Auto | SecretsFor::Authenticated if in_kubernetes => SecretAccess::Reviewed,
        SecretsFor::Auto | SecretsFor::Authenticated => SecretAccess::Authenticated,
    }
}

/// The Unix socket of xDS; in Kubernetes only if it is set.
pub(super) fn socket(settings: &Settings) -> Option<UnixSocket> {
    let default = || Some(settings.data_dir.join("xds.sock")).filter(|_| chosen(settings) != StoreBackend::Kubernetes);
    let users = settings.xds_socket_users.0.iter().map(|(user, namespace)| (*user, namespace.as_str().into()));
    let path = settings.xds_socket.clone().or_else(default)?;
    Some(UnixSocket { path, users: users.collect(), required: settings.xds_socket.is_some() })
}

/// The address of the monitoring pages. On a machine, other machines do not see them unless that is set.
pub(super) fn monitoring_address(settings: &Settings) -> Address {
    let default = if in_a_pod() { Address::any(MONITORING_PORT) } else { Address::loopback(MONITORING_PORT) };
    settings.monitoring_addr.0.unwrap_or(default)
}

/// The name of the store among the sources.
pub(super) fn name(settings: &Settings) -> String {
    let home = match chosen(settings) {
        StoreBackend::Kubernetes => return "the Kubernetes API".to_owned(),
        StoreBackend::Memory => "memory",
        StoreBackend::Etcd => "etcd",
        // They are not a source beside the directory.
        StoreBackend::Files | StoreBackend::None => "no",
        StoreBackend::Auto | StoreBackend::Embedded => "embedded",
    };
    format!("the {home} store")
}

/// Whether this process runs in a pod with access to the Kubernetes API.
pub(super) fn in_a_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty()) && Path::new(TOKEN).exists()
}
