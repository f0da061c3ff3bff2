//! The settings of the node agent, with the names, variables and defaults of Istio's `install-cni`.

use std::path::PathBuf;

use protos::parse_bool;

/// A setting. Its environment variable is the name in upper case with `_` for `-`.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The name of the flag.
    pub name: &'static str,
    /// The default, as it is written.
    pub default: &'static str,
    /// The meaning, for the help text.
    pub help: &'static str,
    set: fn(&mut Settings, &str) -> Option<()>,
}

impl Setting {
    /// The environment variable.
    #[must_use]
    pub fn variable(&self) -> String {
        self.name.to_ascii_uppercase().replace('-', "_")
    }
}

/// A value that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{name} is {value:?}: {remedy}")]
pub struct SettingError {
    name: String,
    value: String,
    remedy: &'static str,
}

/// Declares the settings: the table and the struct with their fields.
macro_rules! settings {
    ($($name:literal, $default:literal, $field:ident: $type:ty = $parse:expr, $help:literal;)*) => {
        /// All settings, in the order of the help text.
        pub const SETTINGS: &[Setting] = &[$(Setting {
            name: $name,
            default: $default,
            help: $help,
            set: |settings, text| {
                let parse: fn(&str) -> Option<$type> = $parse;
                settings.$field = parse(text)?;
                Some(())
            },
        }),*];

        /// The settings of the node agent.
        #[derive(Clone, Debug, Default)]
        #[allow(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
        pub struct Settings {
            $(#[doc = $help] pub $field: $type,)*
        }
    };
}

fn text(value: &str) -> Option<String> {
    Some(value.to_owned())
}

fn path(value: &str) -> Option<PathBuf> {
    Some(PathBuf::from(value))
}

fn list(value: &str) -> Option<Vec<String>> {
    Some(value.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect())
}

/// The mode of a file: a decimal number, or an octal one with `0` or `0o` before it, as Go reads it.
fn mode(value: &str) -> Option<u32> {
    let octal = value.strip_prefix("0o").or_else(|| value.strip_prefix('0')).filter(|digits| !digits.is_empty());
    let mode = octal.map_or_else(|| value.parse(), |digits| u32::from_str_radix(digits, 8)).ok()?;
    (mode <= 0o777).then_some(mode)
}

settings! {
    "cni-conf-name", "", cni_conf_name: String = text,
        "The name of the file with the CNI configuration. Default: the first valid one in the directory";
    "chained-cni-plugin", "true", chained: bool = parse_bool,
        "Add the plugin to the configuration of another one. If false, it has a configuration of its own";
    "mounted-cni-net-dir", "/host/etc/cni/net.d", net_dir: PathBuf = path,
        "The directory with the CNI configuration of the node";
    "cni-bin-source-dir", "/opt/cni/bin", bin_source_dir: PathBuf = path,
        "The directory with the programs to install";
    "cni-bin-target-dir", "/host/opt/cni/bin", bin_target_dir: PathBuf = path,
        "The directory on the node to install them in";
    "cni-agent-run-dir", "/var/run/istio-cni", run_dir: PathBuf = path,
        "The directory of the agent on the node: for the kubeconfig of the plugin";
    "log-level", "warn", log_level: String = text,
        "The log level of the plugin";
    "kubeconfig-mode", "0600", kubeconfig_mode: u32 = mode,
        "The mode of the plugin's kubeconfig";
    "cni-conf-group-read", "false", conf_group_read: bool = parse_bool,
        "Let the group read the CNI configuration that the agent writes";
    "kube-ca-file", "", kube_ca_file: String = text,
        "The file with the certificate of the API server's authority. Default: the one of the service account";
    "skip-tls-verify", "false", skip_tls_verify: bool = parse_bool,
        "Do not verify the certificate of the API server";
    "monitoring-port", "15014", monitoring_port: u16 = |value| value.parse().ok(),
        "The port with /metrics. 0 serves none";
    "ambient-enabled", "false", ambient_enabled: bool = parse_bool,
        "Ambient mode. Not supported: the agent does not start if it is true";
    "exclude-namespaces", "", exclude_namespaces: Vec<String> = list,
        "The namespaces whose pods are not captured, separated by commas";
    "pod-namespace", "", pod_namespace: String = text,
        "The namespace of the agent. Its own pods need no capture";
    "native-nftables", "false", native_nftables: bool = parse_bool,
        "Use nft instead of iptables";
    "repair-enabled", "true", repair_enabled: bool = parse_bool,
        "Look for pods that were started before the plugin was installed";
    "repair-repair-pods", "false", repair_pods: bool = parse_bool,
        "Make the rules in such pods. It has precedence over the next two";
    "repair-delete-pods", "false", repair_delete: bool = parse_bool,
        "Delete such pods, so that they start again";
    "repair-label-pods", "false", repair_label: bool = parse_bool,
        "Label such pods";
    "repair-broken-pod-label-key", "cni.istio.io/uninitialized", repair_label_key: String = text,
        "The key of the label";
    "repair-broken-pod-label-value", "true", repair_label_value: String = text,
        "The value of the label";
    "repair-node-name", "", repair_node: String = text,
        "The node whose pods are looked at. Default: all nodes";
    "repair-sidecar-annotation", "sidecar.istio.io/status", repair_annotation: String = text,
        "The annotation of pods that are looked at. If empty, all pods";
    "repair-init-container-name", "istio-validation", repair_container: String = text,
        "The init container that fails without rules. If empty, any";
    "repair-init-container-termination-message", "", repair_message: String = text,
        "Its termination message. If empty, any";
    "repair-init-container-exit-code", "126", repair_exit_code: i64 = |value| value.parse().ok(),
        "Its exit code. If 0, any";
    "repair-label-selectors", "", repair_labels: String = text,
        "A label selector for the pods";
    "repair-field-selectors", "", repair_fields: String = text,
        "A field selector for the pods";
    "kubernetes-service-protocol", "https", service_protocol: String = text,
        "The protocol of the API server";
    "kubernetes-service-host", "", service_host: String = text,
        "The address of the API server. Kubernetes sets the variable";
    "kubernetes-service-port", "", service_port: String = text,
        "The port of the API server. Kubernetes sets the variable";
    "service-account-path", "/var/run/secrets/kubernetes.io/serviceaccount", service_account: PathBuf = path,
        "The directory with the token of the agent's service account";
    "readiness-port", "8000", readiness_port: u16 = |value| value.parse().ok(),
        "The port with /healthz and /readyz";
    "host-proc-dir", "/host/proc", host_proc: PathBuf = path,
        "The directory with the processes of the node, to find the network namespace of a pod to repair";
}

impl Settings {
    /// Reads the settings. `value` returns the value of a setting: that of its flag, else that of its variable.
    ///
    /// # Errors
    /// A value cannot be used.
    pub fn read(value: impl Fn(&Setting) -> Option<String>) -> Result<Settings, SettingError> {
        let mut settings = Settings::default();
        for setting in SETTINGS {
            let given = value(setting).filter(|value| !value.is_empty() || setting.default.is_empty());
            let value = given.unwrap_or_else(|| setting.default.to_owned());
            (setting.set)(&mut settings, &value).ok_or_else(|| SettingError {
                name: setting.variable(),
                value: value.chars().take(60).collect(),
                remedy: "give a value like the default",
            })?;
        }
        Ok(settings)
    }
}
