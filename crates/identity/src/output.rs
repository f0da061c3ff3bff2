//! Certificates in a folder, for other programs and for the next start of the agent.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest;

use crate::Certificates;
use crate::pem;
use crate::settings::CertificateFiles;

/// The file with the hash of the join token that was used.
const USED_TOKEN: &str = "join-token.used";

/// A draft of a file, beside it.
fn draft(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.new"))
}

fn write_draft(path: &Path, content: &str, mode: u32) -> io::Result<()> {
    let draft = draft(path);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&draft)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(content.as_bytes())?;
    file.sync_all()
}

/// Replaces a file at once.
fn replace(path: &Path, content: &str, mode: u32) -> io::Result<()> {
    write_draft(path, content, mode)?;
    fs::rename(draft(path), path)
}

/// Writes the files that differ. Key and chain are both on the disk before the first of them is replaced.
pub(crate) fn write(folder: &Path, mode: u32, certificates: &Certificates) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let files = CertificateFiles::of_folder(folder);
    let contents =
        [(&files.key, &certificates.key), (&files.chain, &certificates.chain), (&files.roots, &certificates.roots)];
    let differs = |(path, content): &(&PathBuf, &std::sync::Arc<str>)| {
        fs::read(path).map_or(true, |old| old != content.as_bytes())
    };
    let changed: Vec<_> = contents.into_iter().filter(differs).collect();
    for (path, content) in &changed {
        write_draft(path, content, mode)?;
    }
    changed.iter().try_for_each(|(path, _)| fs::rename(draft(path), path))
}

/// Completes a replacement that was interrupted after the key and before the chain.
pub(crate) fn recover(folder: &Path) {
    let files = CertificateFiles::of_folder(folder);
    let read = |path: &Path| fs::read(path).unwrap_or_default();
    let key = read(&files.key);
    let drafted = draft(&files.chain);
    if pem::check_pair(&read(&files.chain), &key).is_err() && pem::check_pair(&read(&drafted), &key).is_ok() {
        let _ = fs::rename(drafted, files.chain);
    }
}

/// The hash by which a token is remembered.
pub(crate) fn fingerprint(token: &str) -> String {
    let hash = digest::digest(&digest::SHA256, token.as_bytes());
    hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The fingerprint of the join token that was used, if there was one.
pub(crate) fn used_token(folder: &Path) -> Option<String> {
    Some(fs::read_to_string(folder.join(USED_TOKEN)).ok()?.trim().to_owned())
}

/// Remembers a join token as used.
pub(crate) fn remember_token(folder: &Path, fingerprint: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    replace(&folder.join(USED_TOKEN), fingerprint, 0o600)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn certificates() -> Certificates {
        let key = KeyPair::generate().unwrap();
        let chain = CertificateParams::default().self_signed(&key).unwrap().pem();
        Certificates {
            roots: chain.as_str().into(),
            chain: chain.into(),
            key: key.serialize_pem().into(),
            expires: SystemTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn files_are_replaced_with_their_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let files = CertificateFiles::of_folder(&folder.path().join("certs"));
        for mode in [0o600, 0o644] {
            let certificates = certificates();
            write(&folder.path().join("certs"), mode, &certificates).unwrap();
            for (path, content) in [(&files.chain, &certificates.chain), (&files.key, &certificates.key)] {
                assert_eq!(fs::read_to_string(path).unwrap(), **content);
                assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, mode);
            }
        }
        assert_eq!(fs::read_dir(folder.path().join("certs")).unwrap().count(), 3, "no drafts remain");
    }

    #[test]
    fn an_interrupted_replacement_is_completed() {
        let folder = tempfile::tempdir().unwrap();
        let (files, new) = (CertificateFiles::of_folder(folder.path()), certificates());
        write(folder.path(), 0o600, &certificates()).unwrap();
        write_draft(&files.chain, &new.chain, 0o600).unwrap();
        recover(folder.path());
        assert_ne!(fs::read_to_string(&files.chain).unwrap(), *new.chain, "the draft belongs to another key");
        replace(&files.key, &new.key, 0o600).unwrap();
        recover(folder.path());
        assert_eq!(fs::read_to_string(&files.chain).unwrap(), *new.chain);
    }

    #[test]
    fn a_used_token_is_remembered_by_its_hash() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(used_token(folder.path()), None);
        remember_token(folder.path(), &fingerprint("rutter-join.a.b")).unwrap();
        assert_eq!(used_token(folder.path()), Some(fingerprint("rutter-join.a.b")));
        assert!(!fs::read_to_string(folder.path().join(USED_TOKEN)).unwrap().contains("join"));
    }
}
