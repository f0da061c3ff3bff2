//! The Unix socket of xDS: the kernel proves the user of a client.

use std::io::{Error, ErrorKind, Result};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use listeners::bind_unix;
use tokio::net::UnixListener;

use crate::peer::Peer;

/// The maximum length of a socket's path, in bytes.
const PATH_BYTES: usize = 107;

/// A Unix socket and the users that may connect. The control plane's own user and root may always connect, as proxies of
/// any namespace: they can read its files, too.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnixSocket {
    /// The path.
    pub path: PathBuf,
    /// Further users, each with the only namespace of its proxies.
    pub users: Vec<(u32, Arc<str>)>,
    /// Whether the server must not start without the socket.
    pub required: bool,
}

impl UnixSocket {
    /// The peer for a client of this user; `None` if the user may not connect.
    pub(crate) fn peer(&self, user: u32) -> Option<Peer> {
        if user == 0 || user == rustix::process::geteuid().as_raw() {
            return Some(Peer::Local { namespace: None });
        }
        let found = self.users.iter().find(|(id, _)| *id == user);
        found.map(|(_, namespace)| Peer::Local { namespace: Some(namespace.clone()) })
    }
}

/// Binds the socket. Replaces a socket that no process listens on. If the socket is not required, an error is only logged.
///
/// # Errors
/// The socket cannot be bound; the error names it.
pub(crate) fn bind(socket: &UnixSocket) -> Result<Option<(UnixListener, UnixSocket)>> {
    match listen(socket) {
        Ok(listener) => Ok(Some((listener, socket.clone()))),
        Err(error) => {
            let text = format!("cannot listen for discovery on {} (--xds-socket): {error}", socket.path.display());
            if socket.required {
                return Err(Error::new(error.kind(), text));
            }
            tracing::warn!("{text}; proxies cannot receive secrets over it");
            Ok(None)
        }
    }
}

fn listen(socket: &UnixSocket) -> Result<UnixListener> {
    let path = &*socket.path;
    if path.as_os_str().len() > PATH_BYTES {
        let text = format!("the path is longer than {PATH_BYTES} bytes; select a shorter one");
        return Err(Error::new(ErrorKind::InvalidInput, text));
    }
    if UnixStream::connect(path).is_ok() {
        return Err(Error::new(ErrorKind::AddrInUse, "another process listens on it"));
    }
    // Others are refused by their user ID anyway.
    bind_unix(path, 0o700, if socket.users.is_empty() { 0o600 } else { 0o666 })
}

/// Removes the socket at the end. If that fails, the next start replaces it.
pub(crate) fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(path: &Path, required: bool) -> UnixSocket {
        UnixSocket { path: path.to_owned(), users: vec![(64_000, "shop".into())], required }
    }

    #[test]
    fn only_listed_users_connect_and_only_to_their_namespace() {
        let socket = socket(Path::new("s"), true);
        let own = rustix::process::geteuid().as_raw();
        for user in [0, own] {
            assert_eq!(socket.peer(user), Some(Peer::Local { namespace: None }));
        }
        assert_eq!(socket.peer(64_000), Some(Peer::Local { namespace: Some("shop".into()) }));
        assert_eq!(socket.peer(64_001), None);
    }

    #[tokio::test]
    async fn a_socket_in_use_and_a_file_are_not_replaced_and_an_old_socket_is() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("new/xds.sock");
        let (first, _) = bind(&socket(&path, true)).expect("it is bound").expect("it is bound");
        let in_use = bind(&socket(&path, true)).expect_err("it is in use").to_string();
        assert!(in_use.contains("another process listens on it"), "{in_use}");
        assert!(bind(&socket(&path, false)).expect("only a warning").is_none());
        drop(first);
        assert!(path.exists());
        assert!(bind(&socket(&path, true)).expect("the old socket is replaced").is_some());
        let file = directory.path().join("file");
        std::fs::write(&file, "x").expect("a file");
        assert_eq!(bind(&socket(&file, true)).expect_err("a file").kind(), ErrorKind::AlreadyExists);
        let long = directory.path().join("x".repeat(120));
        assert!(bind(&socket(&long, true)).expect_err("too long").to_string().contains("longer than 107 bytes"));
    }
}
