//! Certificates, keys and logs on disk: replaces files that users name and Envoy would read, and files that Envoy would
//! create.

use anyhow::Result;
use rcgen::{CertificateParams, KeyPair};
use serde_json::Value;
use tempfile::TempDir;

/// The type of file access logs.
const FILE_LOG: &str = "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog";

/// A certificate and its key in a temporary directory.
pub(super) struct Files(TempDir);

impl Files {
    pub(super) fn new() -> Result<Files> {
        let dir = tempfile::tempdir()?;
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(["judged.example".to_owned()])?.self_signed(&key)?;
        std::fs::write(dir.path().join("certificate"), certificate.pem())?;
        std::fs::write(dir.path().join("key"), key.serialize_pem())?;
        Ok(Files(dir))
    }

    /// Replaces the files that a message names by these. Returns whether there were any.
    pub(super) fn replace(&self, value: &mut Value) -> bool {
        match value {
            Value::Array(items) => items.iter_mut().fold(false, |any, item| self.replace(item) | any),
            Value::Object(fields) => {
                // A CRL must be signed by the CA of the certificates, so there is none.
                let mut any = fields.remove("crl").is_some();
                if fields.get("@type").is_some_and(|of| of == FILE_LOG) {
                    let log = self.0.path().join("log").to_string_lossy().into_owned();
                    fields.insert("path".to_owned(), log.into());
                    any = true;
                }
                for (name, inner) in fields {
                    match name.as_str() {
                        "privateKey" | "trustedCa" | "certificateChain" if inner["filename"].is_string() => {
                            let file = if name == "privateKey" { "key" } else { "certificate" };
                            inner["filename"] = self.0.path().join(file).to_string_lossy().into();
                            any = true;
                        }
                        "watchedDirectory" => {
                            inner["path"] = self.0.path().to_string_lossy().into();
                            any = true;
                        }
                        _ => any |= self.replace(inner),
                    }
                }
                any
            }
            _ => false,
        }
    }
}
