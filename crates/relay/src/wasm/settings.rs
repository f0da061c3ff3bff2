//! The settings of Wasm modules.

use std::path::PathBuf;
use std::time::Duration;

use agent_core::environment::{Environment, EnvironmentError};
use ipnet::IpNet;

/// The first pause before a request is repeated. It doubles.
const BACKOFF: Duration = Duration::from_millis(500);
/// The default limit of modules: 256 MiB.
const MAX_BYTES: u64 = 256 << 20;

/// The settings of Wasm modules.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether filters with remote modules are changed to filters with local files.
    pub convert: bool,
    /// The directory of modules.
    pub directory: PathBuf,
    /// The time after which an unused module is removed.
    pub expiry: Duration,
    /// The interval at which unused modules are removed.
    pub purge_interval: Duration,
    /// The timeout of a request.
    pub request_timeout: Duration,
    /// The number of attempts of a request.
    pub attempts: u32,
    /// The first pause before a request is repeated.
    pub backoff: Duration,
    /// Hosts (with their ports) whose certificates are not verified; `*` for all.
    pub insecure: Vec<String>,
    /// Networks that are not connected to, besides link-local addresses and the metadata services of clouds.
    pub blocked: Vec<IpNet>,
    /// The maximum size of a module, in bytes.
    pub max_bytes: u64,
    /// The file with the credentials of registries for modules without a pull secret.
    pub docker_config: Option<PathBuf>,
}

impl Settings {
    /// The settings, with the defaults of Istio's agent.
    ///
    /// # Errors
    /// A variable has a value that cannot be used.
    pub fn from_environment(environment: &Environment) -> Result<Settings, EnvironmentError> {
        let hour = Duration::from_secs(3600);
        let positive =
            |name, default| environment.duration(name, default).map(|d| if d.is_zero() { default } else { d });
        let docker = environment.text("DOCKER_CONFIG").map(PathBuf::from);
        let home = environment.text("HOME").map(|home| PathBuf::from(home).join(".docker"));
        Ok(Settings {
            convert: environment.flag("ISTIO_AGENT_ENABLE_WASM_REMOTE_LOAD_CONVERSION", true)?,
            directory: PathBuf::from("/var/lib/istio/data"),
            expiry: positive("WASM_MODULE_EXPIRY", 24 * hour)?,
            purge_interval: positive("WASM_PURGE_INTERVAL", hour)?,
            request_timeout: positive("WASM_HTTP_REQUEST_TIMEOUT", Duration::from_secs(15))?,
            attempts: environment.parsed("WASM_HTTP_REQUEST_MAX_RETRIES", 5)?,
            backoff: BACKOFF,
            insecure: list(environment, "WASM_INSECURE_REGISTRIES").map(str::to_owned).collect(),
            blocked: list(environment, "BLOCKED_CIDRS_IN_WASM_FETCH").filter_map(network).collect(),
            max_bytes: environment.parsed("ISTIO_WASM_MAX_BINARY_SIZE_BYTES", MAX_BYTES)?,
            docker_config: docker.or(home).map(|directory| directory.join("config.json")),
        })
    }

    /// Whether the certificate of a host is not verified.
    pub(super) fn is_insecure(&self, authority: &str) -> bool {
        self.insecure.iter().any(|host| host == "*" || host == authority)
    }
}

fn list<'a>(environment: &'a Environment, name: &'a str) -> impl Iterator<Item = &'a str> {
    environment.text_or(name, "").split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// A network. One that is not valid has no effect, as in Istio's agent.
fn network(text: &str) -> Option<IpNet> {
    let network = text.parse();
    if network.is_err() {
        tracing::warn!(text, "BLOCKED_CIDRS_IN_WASM_FETCH: not a network, like 10.0.0.0/8");
    }
    network.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_and_variables() {
        let none = Settings::from_environment(&Environment::default()).unwrap();
        assert_eq!((none.attempts, none.max_bytes, none.expiry), (5, MAX_BYTES, Duration::from_secs(86_400)));
        assert!(none.convert && !none.is_insecure("localhost:5000"));
        let environment = [
            ("WASM_INSECURE_REGISTRIES", "localhost:5000, b"),
            ("BLOCKED_CIDRS_IN_WASM_FETCH", "10.0.0.0/8,x"),
            ("WASM_MODULE_EXPIRY", "1m"),
            ("DOCKER_CONFIG", "/d"),
        ];
        let some = Settings::from_environment(&environment.into_iter().collect()).unwrap();
        assert!(some.is_insecure("localhost:5000") && some.is_insecure("b") && !some.is_insecure("c"));
        assert_eq!(some.blocked, ["10.0.0.0/8".parse::<IpNet>().unwrap()]);
        assert_eq!(some.docker_config, Some(PathBuf::from("/d/config.json")));
        assert_eq!(some.expiry, Duration::from_secs(60));
        let wrong = Settings::from_environment(&[("WASM_PURGE_INTERVAL", "often")].into_iter().collect());
        assert!(wrong.unwrap_err().to_string().contains("WASM_PURGE_INTERVAL"));
    }
}
