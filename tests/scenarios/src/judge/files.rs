//! Certificates and keys on disk: users name files that are not here, and Envoy reads them when it is told of them.

use anyhow::Result;
use rcgen::{CertificateParams, KeyPair};
use serde_json::Value;
use tempfile::TempDir;

/// A certificate and its key in a directory of their own.
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

    /// Puts these files wherever others are named. Whether there were any.
    pub(super) fn replace(&self, value: &mut Value) -> bool {
        match value {
            Value::Array(items) => items.iter_mut().fold(false, |any, item| self.replace(item) | any),
            Value::Object(fields) => {
                // A list of revoked certificates must be signed by who signed them: there is none.
                let mut any = fields.remove("crl").is_some();
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
