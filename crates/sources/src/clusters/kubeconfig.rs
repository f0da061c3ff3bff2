//! Kubeconfigs from untrusted Secrets.

use std::fmt;
use std::time::Duration;

use config::FieldPath;
use kube::config::{AuthInfo, KubeConfigOptions, KubeconfigError};
use kube::{Client, Config};

/// The maximum size of a kubeconfig, in bytes: that of a Secret.
const LONGEST: usize = 1 << 20;
/// The connect timeout.
const CONNECT: Duration = Duration::from_secs(10);

/// The features of a kubeconfig that are allowed although they access this machine. None by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Allowed {
    /// `exec`: runs a local program.
    pub exec: bool,
    /// `tokenFile`: sends a local file to the server.
    pub token_file: bool,
    /// `client-certificate`: sends a local file to the server.
    pub client_certificate: bool,
    /// `client-key`: uses a local file towards the server.
    pub client_key: bool,
}

impl Allowed {
    /// Parses a comma-separated list of istiod's names: `exec`, `tokenFile`, `clientCertificate`, `clientKey`.
    ///
    /// # Errors
    /// The first unknown name.
    pub fn parse(list: &str) -> Result<Allowed, UnknownFeature> {
        let mut allowed = Allowed::default();
        for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word {
                "exec" => allowed.exec = true,
                "tokenFile" => allowed.token_file = true,
                "clientCertificate" => allowed.client_certificate = true,
                "clientKey" => allowed.client_key = true,
                other => return Err(UnknownFeature(other.to_owned())),
            }
        }
        Ok(allowed)
    }
}

/// Not a name of a kubeconfig feature.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown kubeconfig feature {0:?}")]
pub struct UnknownFeature(pub String);

/// The reason why a kubeconfig is rejected. Contains nothing of its text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RejectedKubeconfig {
    /// The field, such as `users[0].user.exec`; empty for the whole text.
    pub path: FieldPath,
    /// The problem, without a full stop.
    pub message: String,
    /// The remedy.
    pub hint: Option<&'static str>,
}

impl RejectedKubeconfig {
    fn new(path: FieldPath, message: impl Into<String>) -> RejectedKubeconfig {
        RejectedKubeconfig { path, message: message.into(), hint: None }
    }

    fn hint(self, hint: &'static str) -> RejectedKubeconfig {
        RejectedKubeconfig { hint: Some(hint), ..self }
    }
}

/// A validated kubeconfig.
#[derive(Clone)]
pub struct Kubeconfig(kube::config::Kubeconfig);

impl fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kubeconfig")
    }
}

impl Kubeconfig {
    /// Parses and validates a kubeconfig.
    ///
    /// # Errors
    /// It is invalid or uses a feature that is not allowed.
    pub fn read(bytes: &[u8], allowed: Allowed) -> Result<Kubeconfig, RejectedKubeconfig> {
        let whole = |message: &str| RejectedKubeconfig::new(FieldPath::root(), message);
        if bytes.is_empty() {
            return Err(whole("it is empty"));
        }
        if bytes.len() > LONGEST {
            return Err(whole("it is longer than 1 MiB"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| whole("it is not text"))?;
        // The parser's message contains parts of the text.
        let config = kube::config::Kubeconfig::from_yaml(text).map_err(|_| {
            whole("it is no kubeconfig").hint("`kubectl config view --kubeconfig FILE` says what is wrong")
        })?;
        let users = FieldPath::root().field("users");
        for (at, user) in config.auth_infos.iter().enumerate() {
            if let Some(user) = &user.auth_info {
                check_user(user, &users.index(at).field("user"), allowed)?;
            }
        }
        check_context(&config)?;
        Ok(Kubeconfig(config))
    }

    /// The name of the current context's cluster.
    pub fn cluster(&self) -> &str {
        let current = self.0.contexts.iter().find(|context| Some(&context.name) == self.0.current_context.as_ref());
        let context = current.and_then(|context| context.context.as_ref());
        context.map_or("", |context| &context.cluster)
    }

    /// Creates a client. Sends no request.
    ///
    /// # Errors
    /// The certificates or keys are unusable.
    pub async fn connect(&self) -> Result<Client, RejectedKubeconfig> {
        let options = KubeConfigOptions::default();
        let mut config =
            Config::from_custom_kubeconfig(self.0.clone(), &options).await.map_err(|error| unusable(&error))?;
        config.connect_timeout = Some(CONNECT);
        // The callers retry.
        config.default_retry = false;
        Client::try_from(config).map_err(|_| {
            let message = "no connection can be made of its certificates, its key and its proxy-url";
            RejectedKubeconfig::new(FieldPath::root(), message)
        })
    }
}

/// Rejects users that run programs or send files.
fn check_user(user: &AuthInfo, path: &FieldPath, allowed: Allowed) -> Result<(), RejectedKubeconfig> {
    const EMBED: &str = "embed the credentials: `rutter create-remote-secret` makes such a Secret";
    let refuse = |field: &'static str, what: &str| {
        let message = format!("{what} is not allowed in a kubeconfig of another cluster");
        Err(RejectedKubeconfig::new(path.field(field), message).hint(EMBED))
    };
    let given = |field: &Option<String>| field.as_deref().is_some_and(|text| !text.is_empty());
    if user.auth_provider.is_some() {
        return refuse("auth-provider", "an auth provider");
    }
    if user.exec.is_some() && !allowed.exec {
        return refuse("exec", "a program");
    }
    if given(&user.token_file) && !allowed.token_file {
        return refuse("tokenFile", "a file of this machine");
    }
    if given(&user.client_certificate) && !allowed.client_certificate {
        return refuse("client-certificate", "a file of this machine");
    }
    if given(&user.client_key) && !allowed.client_key {
        return refuse("client-key", "a file of this machine");
    }
    Ok(())
}

/// Rejects contexts without a server.
fn check_context(config: &kube::config::Kubeconfig) -> Result<(), RejectedKubeconfig> {
    let root = FieldPath::root();
    let current = config.current_context.as_deref().filter(|name| !name.is_empty());
    let Some(current) = current else {
        return Err(RejectedKubeconfig::new(root.field("current-context"), "there is none"));
    };
    let context = config.contexts.iter().find(|context| context.name == current);
    let Some(context) = context.and_then(|context| context.context.as_ref()) else {
        return Err(RejectedKubeconfig::new(root.field("current-context"), "there is no context of this name"));
    };
    let at = config.clusters.iter().position(|cluster| cluster.name == context.cluster);
    let cluster = at.and_then(|at| Some((at, config.clusters[at].cluster.as_ref()?)));
    let Some((at, cluster)) = cluster else {
        return Err(RejectedKubeconfig::new(root.field("contexts"), "the cluster of the current context is not there"));
    };
    let user = context.user.as_deref().unwrap_or_default();
    if !user.is_empty() && !config.auth_infos.iter().any(|known| known.name == user) {
        return Err(RejectedKubeconfig::new(root.field("contexts"), "the user of the current context is not there"));
    }
    let server = root.field("clusters").index(at).field("cluster").field("server");
    match cluster.server.as_deref().unwrap_or_default() {
        "" => Err(RejectedKubeconfig::new(server, "there is none")),
        text if !text.starts_with("https://") && !text.starts_with("http://") => {
            Err(RejectedKubeconfig::new(server, "it is no address").hint("https://HOST:PORT"))
        }
        _ => Ok(()),
    }
}

/// The problem, without parts of the text.
fn unusable(error: &KubeconfigError) -> RejectedKubeconfig {
    let (field, message) = match error {
        KubeconfigError::ParseClusterUrl(_) => ("server", "it is no address"),
        KubeconfigError::ParseProxyUrl(_) => ("proxy-url", "it is no address"),
        KubeconfigError::LoadCertificateAuthority(_) => {
            ("certificate-authority-data", "it is no base64, or its file cannot be read")
        }
        KubeconfigError::ParseCertificates(_) => ("certificate-authority-data", "it holds no certificates"),
        KubeconfigError::LoadClientCertificate(_) => {
            ("client-certificate-data", "it is no base64, or its file cannot be read")
        }
        KubeconfigError::LoadClientKey(_) => ("client-key-data", "it is no base64, or its file cannot be read"),
        _ => return RejectedKubeconfig::new(FieldPath::root(), "it leads to no server"),
    };
    RejectedKubeconfig::new(FieldPath::root().field(field), message)
}
