//! The store backend that the settings select.

use std::path::Path;

use server::SecretAccess;
use settings::{SecretsFor, Settings, StoreBackend};

/// The path of the token of a pod's service account.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// The store backend, with `auto` resolved.
pub(super) fn chosen(settings: &Settings) -> StoreBackend {
    match settings.store {
        StoreBackend::Auto if in_a_pod() => StoreBackend::Kubernetes,
        StoreBackend::Auto if settings.config_dir.is_some() => StoreBackend::None,
        StoreBackend::Auto => StoreBackend::Embedded,
        home => home,
    }
}

/// The clients that may read secrets.
pub(super) fn secret_access(settings: &Settings) -> SecretAccess {
    match settings.secrets_for {
        SecretsFor::Nobody => SecretAccess::None,
        SecretsFor::Local => SecretAccess::Local,
        SecretsFor::Auto if chosen(settings) == StoreBackend::Kubernetes => SecretAccess::None,
        SecretsFor::Auto => SecretAccess::Local,
    }
}

/// The name of the store among the sources.
pub(super) fn name(settings: &Settings) -> String {
    let home = match chosen(settings) {
        StoreBackend::Kubernetes => return "the Kubernetes API".to_owned(),
        StoreBackend::Memory => "memory",
        StoreBackend::Etcd => "etcd",
        StoreBackend::None => "no",
        StoreBackend::Auto | StoreBackend::Embedded => "embedded",
    };
    format!("the {home} store")
}

/// Whether this process runs in a pod with access to the Kubernetes API.
pub(super) fn in_a_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty()) && Path::new(TOKEN).exists()
}
