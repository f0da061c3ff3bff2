use std::fs;
use std::os::unix::fs::symlink;

use prometheus::Registry;
use rcgen::{CertificateParams, KeyPair};
use tokio::task::JoinHandle;

use super::*;
use crate::wanted::Lease;

fn issued() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    (CertificateParams::default().self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// Watched files, and what is read from them.
struct Watched {
    table: watch::Receiver<Table>,
    wanted: Arc<Wanted>,
    task: JoinHandle<()>,
}

impl Watched {
    fn start(folder: &Path) -> Watched {
        let variables = [("FILE_DEBOUNCE_DURATION", "1ms")];
        let mut settings = Settings::from_environment(&variables.into_iter().collect(), "istiod:15012").unwrap();
        settings.folder = folder.to_owned();
        let (table, receiver) = watch::channel(Table::default());
        let wanted: Arc<Wanted> = Arc::default();
        let metrics = Metrics::new(&Registry::new()).unwrap();
        let files = Files { settings: Arc::new(settings), wanted: wanted.clone(), table: Arc::new(table), metrics };
        Watched { table: receiver, wanted, task: tokio::spawn(files.run()) }
    }

    fn lease(&self, name: &FileName) -> Lease {
        self.wanted.lease(name).unwrap()
    }

    /// Waits until the certificate chain of a pair, or the reason for which there is none, has a text.
    async fn wait_for(&mut self, name: &FileName, text: &str) {
        let has = |table: &Table| match table.files.get(name) {
            Some(Entry::Ready(secret)) => match &secret.content {
                Content::Pair(pair) => pair.chain.contains(text),
                Content::Roots(roots, _) => roots.contains(text),
            },
            Some(Entry::Failed(reason)) => reason.contains(text),
            _ => false,
        };
        let waiting = self.table.wait_for(has);
        tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("timed out").unwrap();
    }
}

fn pair(folder: &Path) -> FileName {
    FileName::Pair(folder.join("cert-chain.pem"), folder.join("key.pem"))
}

fn write(folder: &Path, (chain, key): &(String, String)) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("cert-chain.pem"), chain).unwrap();
    fs::write(folder.join("key.pem"), key).unwrap();
}

#[tokio::test]
async fn files_are_read_when_they_appear_and_change() {
    let folder = tempfile::tempdir().unwrap();
    let mut watched = Watched::start(folder.path());
    let certs = folder.path().join("a/certs");
    let name = pair(&certs);
    let lease = watched.lease(&name);
    watched.wait_for(&name, "cannot read").await;
    let (one, two) = (issued(), issued());
    write(&certs, &one);
    watched.wait_for(&name, &one.0).await;
    fs::write(certs.join("cert-chain.pem"), &two.0).unwrap();
    fs::write(certs.join("key.pem"), &two.1).unwrap();
    watched.wait_for(&name, &two.0).await;
    // A folder that another one replaces.
    fs::remove_dir_all(&certs).unwrap();
    write(&certs, &one);
    watched.wait_for(&name, &one.0).await;
    drop(lease);
    let gone = watched.table.wait_for(|table| table.files.is_empty());
    tokio::time::timeout(Duration::from_secs(30), gone).await.unwrap().unwrap();
    watched.task.abort();
}

#[tokio::test]
async fn a_volume_of_the_kubelet_is_followed() {
    let volume = tempfile::tempdir().unwrap();
    let at = |name: &str| volume.path().join(name);
    let publish = |version: &str, certificate: &(String, String)| {
        write(&at(version), certificate);
        symlink(version, at("..data_tmp")).unwrap();
        fs::rename(at("..data_tmp"), at("..data")).unwrap();
    };
    let (one, two, three) = (issued(), issued(), issued());
    publish("..1", &one);
    for file in ["cert-chain.pem", "key.pem"] {
        symlink(Path::new("..data").join(file), at(file)).unwrap();
    }
    let mut watched = Watched::start(volume.path());
    let name = pair(volume.path());
    let _lease = watched.lease(&name);
    watched.wait_for(&name, &one.0).await;
    for (version, certificate) in [("..2", &two), ("..3", &three)] {
        publish(version, certificate);
        watched.wait_for(&name, &certificate.0).await;
    }
    watched.task.abort();
}

#[test]
fn a_path_is_traced_through_its_links() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().canonicalize().unwrap();
    let at = |name: &str| base.join(name);
    fs::create_dir_all(at("real/deep")).unwrap();
    fs::write(at("real/deep/file"), "").unwrap();
    symlink("real/../real/deep", at("link")).unwrap();
    symlink("loop", at("loop")).unwrap();
    for (path, folders) in [
        ("real/deep/file", &["real/deep"][..]),
        ("link/file", &["", "real/deep"]),
        ("real/none/file", &["real"]),
        ("loop/file", &[""]),
    ] {
        let mut trace = Trace::default();
        trace.follow(&at(path));
        let expected: BTreeSet<PathBuf> = folders.iter().map(|name| at(name).components().collect()).collect();
        assert_eq!(trace.folders, expected, "{path}");
    }
}

#[test]
fn only_files_of_a_bounded_size_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let large = folder.path().join("large");
    fs::File::create(&large).unwrap().set_len(MAX_FILE + 1).unwrap();
    for path in [&large, folder.path(), Path::new("/dev/zero")] {
        let error = load(&FileName::Roots(path.to_owned()), None).unwrap_err().to_string();
        assert!(error.contains("not a file of at most 1 MiB"), "{error}");
    }
}
