//! Reads kubeconfigs from a directory instead of Secrets. Each file describes one cluster.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::mpsc;

use super::Event;

/// The polling interval of the directory.
const LOOK: Duration = Duration::from_secs(2);
/// The maximum number of files.
const MOST: usize = 1000;
/// The maximum number of bytes read from a file: one more than a valid file may have, so that larger ones are detected.
const LARGEST: u64 = (1 << 20) + 1;

/// The contents of the files, by name.
pub(super) type Files = BTreeMap<String, Vec<u8>>;

/// Reports the files, and again after each change, until the receiver is dropped.
pub(super) async fn watch(directory: PathBuf, events: mpsc::Sender<Event>) {
    let mut known: Option<Files> = None;
    let mut failing = false;
    let mut looks = tokio::time::interval(LOOK);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let looked = directory.clone();
        let read = tokio::task::spawn_blocking(move || read(&looked)).await;
        let event = match read {
            Ok(Ok(files)) if known.as_ref() != Some(&files) => {
                known = Some(files.clone());
                failing = false;
                Event::Files(files)
            }
            Ok(Err(error)) if !std::mem::replace(&mut failing, true) => {
                tracing::warn!(directory = %directory.display(), %error, "kubeconfigs of other clusters cannot be read");
                Event::Failing(format!("{}: {error}", directory.display()))
            }
            _ => continue,
        };
        if events.send(event).await.is_err() {
            return;
        }
    }
}

/// Reads the files of a directory except hidden ones, in which a mounted Secret keeps its versions.
fn read(directory: &Path) -> io::Result<Files> {
    let mut files = Files::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(name) = name.filter(|name| !name.starts_with('.')) else {
            continue;
        };
        // Symbolic links are followed. A file that was removed meanwhile is skipped.
        if !std::fs::metadata(&path).is_ok_and(|meta| meta.is_file()) {
            continue;
        }
        if files.len() >= MOST {
            return Err(io::Error::other(format!("more than {MOST} files")));
        }
        let mut text = Vec::new();
        match std::fs::File::open(&path).and_then(|file| file.take(LARGEST).read_to_end(&mut text)) {
            Ok(_) => drop(files.insert(name.to_owned(), text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_files_are_skipped() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("east.yaml"), "a").unwrap();
        std::fs::write(directory.path().join(".hidden"), "b").unwrap();
        std::fs::create_dir(directory.path().join("folder")).unwrap();
        std::os::unix::fs::symlink("nowhere", directory.path().join("broken")).unwrap();
        let files = read(directory.path()).unwrap();
        assert_eq!(files, Files::from([("east.yaml".to_owned(), b"a".to_vec())]));
        assert!(read(&directory.path().join("missing")).is_err());
    }
}
