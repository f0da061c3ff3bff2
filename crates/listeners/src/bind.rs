//! Binding of sockets.

use std::fs::{DirBuilder, Permissions};
use std::io::{self, Error, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _};
use std::path::Path;

use tokio::net::{TcpListener, UnixListener};

/// Binds a Unix socket with these permissions, in place of one that an earlier process left. Its directory is created, with these
/// permissions, if it does not exist.
///
/// # Errors
/// The socket cannot be bound, or the path is another kind of file.
pub fn bind_unix(path: &Path, directory_mode: u32, mode: u32) -> io::Result<UnixListener> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(directory_mode).create(directory)?;
    }
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(Error::new(ErrorKind::AlreadyExists, "the path exists and is not a socket"));
        }
        Ok(_) => std::fs::remove_file(path)?,
        Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(mode))?;
    Ok(listener)
}

/// Binds a port on all addresses of both families, or of IPv4 if the machine has no IPv6.
///
/// # Errors
/// The port is in use, or cannot be bound.
pub async fn bind_any(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Err(error) if error.kind() != ErrorKind::AddrInUse => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await,
        bound => bound,
    }
}
