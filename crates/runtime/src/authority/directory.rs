//! The directory of plugged-in certificates (`ROOT_CA_DIR`), which is polled for changes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ca::keeper::{Content, Found, Place};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::keeping::Event;

/// The files of a set, in both forms.
const FILES: [&str; 9] = [
    "ca-cert.pem",
    "ca-key.pem",
    "cert-chain.pem",
    "root-cert.pem",
    "ca-crl.pem",
    "tls.crt",
    "tls.key",
    "ca.crt",
    "istio-generated",
];
/// The maximum size of a file, in bytes.
const LIMIT: u64 = 1 << 20;
/// The polling interval. The directory may be a mounted Secret, whose files are replaced by symbolic links, or be missing.
const POLL: Duration = Duration::from_secs(1);
/// A set is written file by file; it is read again after this time, until it stays the same.
const SETTLE: Duration = Duration::from_millis(100);

/// Reports the content at the start and after each change, until the receiver is dropped.
pub(super) async fn follow(directory: PathBuf, events: mpsc::Sender<Event>) {
    let (mut last, mut settling) = (None, None);
    loop {
        let path = directory.clone();
        // Fails only during shutdown.
        let Ok(content) = tokio::task::spawn_blocking(move || read(&path)).await else { return };
        if last.as_ref() == Some(&content) {
            settling = None;
        } else if last.is_some() && settling.as_ref() != Some(&content) {
            settling = Some(content);
            sleep(SETTLE).await;
            continue;
        } else {
            last = Some(content.clone());
            settling = None;
            if events.send((Place::Directory, content)).await.is_err() {
                return;
            }
        }
        sleep(POLL).await;
    }
}

fn read(directory: &Path) -> Content {
    let mut data = BTreeMap::new();
    for name in FILES {
        match file(&directory.join(name)) {
            Ok(Some(bytes)) => drop(data.insert(name.to_owned(), bytes)),
            Ok(None) => {}
            Err(error) => return Content::Unreadable(format!("{}: {error}", directory.join(name).display())),
        }
    }
    match data.is_empty() {
        true => Content::Absent,
        false => Content::Present(Found { data, version: String::new() }),
    }
}

fn file(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Err(std::io::Error::other("is not a file")),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(LIMIT + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > LIMIT {
        true => Err(std::io::Error::other(format!("is larger than {LIMIT} bytes"))),
        false => Ok(Some(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn changes_are_reported_once_the_set_stays_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let (sender, mut events) = mpsc::channel(1);
        tokio::spawn(follow(directory.path().join("cacerts"), sender));
        assert_eq!(events.recv().await.unwrap(), (Place::Directory, Content::Absent));
        let place = directory.path().join("cacerts");
        std::fs::create_dir(&place).unwrap();
        std::fs::write(place.join("ca-cert.pem"), "a").unwrap();
        std::fs::write(place.join("other"), "b").unwrap();
        let (_, Content::Present(found)) = events.recv().await.unwrap() else { panic!("absent") };
        assert_eq!(found.data, BTreeMap::from([("ca-cert.pem".to_owned(), b"a".to_vec())]));
        std::fs::remove_file(place.join("ca-cert.pem")).unwrap();
        std::fs::create_dir(place.join("ca-cert.pem")).unwrap();
        let (_, Content::Unreadable(reason)) = events.recv().await.unwrap() else { panic!("readable") };
        assert!(reason.ends_with("ca-cert.pem: is not a file"), "{reason}");
    }

    #[test]
    fn a_file_that_is_too_large_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca-key.pem"), vec![b'a'; (1 << 20) + 1]).unwrap();
        assert!(matches!(read(directory.path()), Content::Unreadable(reason) if reason.contains("larger")));
    }
}
