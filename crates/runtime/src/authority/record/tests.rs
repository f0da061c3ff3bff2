use std::time::SystemTime;

use ca::KeyKind;
use ca::self_signed::{SECRET, Settings, create, rotate, to_secret};

use super::*;
use crate::file_objects::fresh_store;

fn authority() -> ca::Authority {
    create(&Settings { key: KeyKind::P256, ..Settings::new("cluster.local") }, SystemTime::now()).unwrap()
}

fn with_file(store: &Arc<dyn Store>, path: &Path, create: bool) -> Record {
    Record { store: store.clone(), sealing: Sealing::File { path: path.to_owned(), create } }
}

/// The parts of a key in PEM that would give it away.
fn lines(pem: &str) -> Vec<&str> {
    pem.lines().filter(|line| line.len() > 20 && !line.starts_with("-----")).collect()
}

#[tokio::test]
async fn the_record_opens_with_its_key_file_only_and_contains_no_key() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("authority.key");
    let store = fresh_store();
    let record = with_file(&store, &path, true);
    assert_eq!(record.read(SECRET).await.unwrap(), None);
    let authority = authority();
    let data = to_secret(&authority, SECRET);
    let version = record.write(SECRET, &data, None).await.unwrap().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(record.write(SECRET, &data, None).await.unwrap(), None, "another replica was first");
    let found = record.read(SECRET).await.unwrap().unwrap();
    assert_eq!(found.version, version);
    assert_eq!(ca::self_signed::from_secret(&found.data, SystemTime::now()).unwrap(), authority);

    let stored = store.get(&Record::key()).await.unwrap().unwrap();
    let text = String::from_utf8_lossy(&stored.json).into_owned();
    let secret = lines(authority.key().expose_pem());
    assert!(!secret.is_empty() && secret.iter().all(|line| !text.contains(line)), "the key is in the store");

    // A stolen store is useless without the file, or with another one.
    std::fs::remove_file(&path).unwrap();
    let error = record.read(SECRET).await.unwrap_err().to_string();
    assert!(error.contains("it is missing") && !path.exists(), "{error}");
    std::fs::write(&path, [7; 32]).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let error = record.read(SECRET).await.unwrap_err().to_string();
    assert!(error.contains("cannot be opened"), "{error}");
}

#[tokio::test]
async fn replicas_with_the_same_file_share_the_authority() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shared");
    let store = fresh_store();
    let etcd = with_file(&store, &path, false);
    let first = authority();
    let error = etcd.write(SECRET, &to_secret(&first, SECRET), None).await.unwrap_err().to_string();
    assert!(error.contains("No such file") && !path.exists(), "the file is never created: {error}");
    create_file(&path).unwrap();
    let version = etcd.write(SECRET, &to_secret(&first, SECRET), None).await.unwrap().unwrap();
    let (sender, mut events) = mpsc::channel(4);
    tokio::spawn(with_file(&store, &path, false).follow(sender));
    let (Place::SelfSigned, Content::Present(found)) = events.recv().await.unwrap() else { panic!("absent") };
    assert_eq!(found.version, version);
    let settings = Settings { key: KeyKind::P256, ..Settings::new("cluster.local") };
    let second = rotate(&first, &settings, SystemTime::now()).unwrap();
    etcd.write(SECRET, &to_secret(&second, SECRET), Some(&version)).await.unwrap().unwrap();
    let (_, Content::Present(found)) = events.recv().await.unwrap() else { panic!("absent") };
    assert_eq!(ca::self_signed::from_secret(&found.data, SystemTime::now()).unwrap(), second);
    assert_eq!(etcd.write(SECRET, &to_secret(&first, SECRET), Some(&version)).await.unwrap(), None, "it is outdated");
}

#[tokio::test]
async fn a_file_that_everyone_can_read_and_a_missing_setting_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    std::fs::write(&path, [1; 32]).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let store = fresh_store();
    let write = async |record: Record| {
        record.write(SECRET, &to_secret(&authority(), SECRET), None).await.unwrap_err().to_string()
    };
    assert!(write(with_file(&store, &path, true)).await.contains("chmod 600"));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&path, "short").unwrap();
    assert!(write(with_file(&store, &path, true)).await.contains("fewer than 32 bytes"));
    assert!(write(Record { store, sealing: Sealing::Missing }).await.contains("--ca-key-file"));
}

#[tokio::test]
async fn a_damaged_record_is_named() {
    let store = fresh_store();
    let record = Record { store: store.clone(), sealing: Sealing::process().unwrap() };
    let value = json!({"metadata": {}, "certificates": {"ca-cert.pem": 1}});
    put(&*store, Operation::Put { key: Record::key(), value, expect: Expect::Absent }).await.unwrap();
    assert_eq!(record.read(SECRET).await.unwrap_err().to_string(), "the record in the store is damaged");
}
