//! Self-contained kubeconfigs, which can be copied, mounted and put into Secrets.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::certificates::Identity;
use crate::run::Result;

/// The credentials of a user.
pub(super) enum Proof<'a> {
    Token(&'a str),
    Certificate(&'a Identity),
}

/// Creates a kubeconfig for one server and one user.
pub(super) fn kubeconfig(server: &str, authority: &str, user: &str, proof: &Proof<'_>) -> String {
    let authority = STANDARD.encode(authority);
    // Quoted as JSON, which is valid YAML, because user names contain colons.
    let name = serde_json::Value::from(user).to_string();
    let proof = match proof {
        Proof::Token(token) => format!("token: {token}"),
        Proof::Certificate(identity) => format!(
            "client-certificate-data: {}\n    client-key-data: {}",
            STANDARD.encode(&identity.certificate),
            STANDARD.encode(&identity.key)
        ),
    };
    format!(
        "\
apiVersion: v1
kind: Config
current-context: cluster
clusters:
- name: cluster
  cluster:
    server: {server}
    certificate-authority-data: {authority}
contexts:
- name: cluster
  context:
    cluster: cluster
    user: {name}
    namespace: default
users:
- name: {name}
  user:
    {proof}
"
    )
}

/// Writes a file that only its owner can read.
pub(super) fn write_private(path: &Path, text: &str) -> Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    Ok(())
}
