//! The bootstrap file of gRPC applications that use xDS without a proxy.

use std::fs::{DirBuilder, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The default file, relative to the agent's directory. `GRPC_XDS_BOOTSTRAP` names another.
pub const FILE: &str = "etc/istio/proxy/grpc-bootstrap.json";

/// The bootstrap file cannot be written.
#[derive(thiserror::Error, Debug)]
#[error("cannot write the gRPC bootstrap {path} (GRPC_XDS_BOOTSTRAP): {error}")]
pub struct WriteError {
    path: PathBuf,
    error: io::Error,
}

/// The bootstrap of an application that connects to this socket. The node has `id`, `metadata` and `locality`; the generator is set
/// here. The directory of certificates is that of `OUTPUT_CERTS`.
#[must_use]
pub fn bootstrap(mut node: Value, socket: &Path, certificates: Option<&Path>) -> Value {
    // Only for these clients: the proxy beside the application has the same metadata.
    node["metadata"]["GENERATOR"] = "grpc".into();
    bootstrap::grpc(node, &format!("unix:///{}", socket.display()), certificates)
}

/// Replaces the file atomically, so that a starting application reads the old or the new content.
///
/// # Errors
/// The file or its directory cannot be written.
pub fn write(path: &Path, bootstrap: &Value) -> Result<(), WriteError> {
    replace(path, bootstrap).map_err(|error| WriteError { path: path.to_owned(), error })
}

fn replace(path: &Path, bootstrap: &Value) -> io::Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut draft = tempfile::NamedTempFile::new_in(directory)?;
    writeln!(draft, "{bootstrap:#}")?;
    // Applications may run as any user; the file has no secrets.
    draft.as_file().set_permissions(Permissions::from_mode(0o644))?;
    draft.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_file_has_the_socket_the_node_and_the_certificates() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/grpc.json");
        let node =
            json!({"id": "sidecar~10.0.0.1~a.b~b.svc", "metadata": {"NAMESPACE": "b"}, "locality": {"region": "r"}});
        write(&path, &json!("a longer content than the next one, which is replaced")).unwrap();
        let written = bootstrap(node.clone(), Path::new("etc/istio/proxy/XDS"), Some(Path::new("/certs")));
        write(&path, &written).unwrap();
        let read: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(read, written);
        assert_eq!(read["xds_servers"][0]["server_uri"], "unix:///etc/istio/proxy/XDS");
        assert_eq!(read["node"]["metadata"], json!({"NAMESPACE": "b", "GENERATOR": "grpc"}));
        assert_eq!(read["certificate_providers"]["default"]["config"]["private_key_file"], "/certs/key.pem");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert!(bootstrap(node, Path::new("XDS"), None).get("certificate_providers").is_none());
        let error = write(Path::new("/proc/none/file"), &written).unwrap_err().to_string();
        assert!(error.contains("/proc/none/file"), "{error}");
    }
}
