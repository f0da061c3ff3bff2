//! Snapshots of read objects, so that a replica can start while the API server is unavailable.
//!
//! A new file is written completely and then renamed, so a crash leaves the old or the new one. It starts with its
//! owner and ends with a hash. Damaged files, other versions and snapshots of other servers are reported and ignored.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use config::{AnyObject, Kind, Meta, ParseOptions, StatusPart};
use serde_json::{Map, Value, json};
use xxhash_rust::xxh3::xxh3_128;

/// The start of a file, with the format version.
const MAGIC: &[u8] = b"rutter snapshot 1\n";
/// The maximum size of a snapshot, in bytes.
const LARGEST: u64 = 4 << 30;
/// The size of a hash, in bytes.
const HASH: usize = 16;

/// Snapshot options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotOptions {
    /// The file. Its directory is created if necessary.
    pub file: PathBuf,
    /// The owner of the objects: server address and revision. Snapshots of other owners are not used.
    pub of: String,
    /// The minimum interval between two writes.
    pub interval: Duration,
    /// How long the server may be unavailable at the start before the snapshot is used.
    pub patience: Duration,
}

/// An object with the hash of its content on the server.
pub(crate) type Entry = (u128, AnyObject);

/// The reason why a snapshot is not usable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it is {0}")]
    Damaged(&'static str),
    #[error("it is of {0}")]
    Foreign(String),
}

/// Replaces the snapshot.
pub(crate) fn write(options: &SnapshotOptions, entries: &[Entry]) -> io::Result<()> {
    let bytes = encode(&options.of, entries);
    let directory = options.file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let beside = options.file.with_extension("new");
    let mut file = File::create(&beside)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&beside, &options.file)?;
    File::open(directory)?.sync_all()
}

/// Reads a snapshot. Objects that this version of Rutter considers invalid are skipped.
pub(crate) fn read(options: &SnapshotOptions) -> Result<Vec<Entry>, SnapshotError> {
    let file = File::open(&options.file)?;
    if file.metadata()?.len() > LARGEST {
        return Err(SnapshotError::Damaged("too large"));
    }
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes)?;
    decode(&options.of, &bytes)
}

fn encode(of: &str, entries: &[Entry]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    piece(&mut bytes, of.as_bytes());
    for (hash, object) in entries {
        if let Some(text) = text(object) {
            bytes.extend_from_slice(&hash.to_le_bytes());
            piece(&mut bytes, text.as_bytes());
        }
    }
    let hash = xxh3_128(&bytes);
    bytes.extend_from_slice(&hash.to_le_bytes());
    bytes
}

fn piece(bytes: &mut Vec<u8>, text: &[u8]) {
    // No server sends an object of more than 4 GiB.
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&text[..length as usize]);
}

fn decode(of: &str, bytes: &[u8]) -> Result<Vec<Entry>, SnapshotError> {
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return Err(SnapshotError::Damaged("no snapshot of this version"));
    };
    let cut = SnapshotError::Damaged("cut off");
    let Some(body) = bytes.len().checked_sub(HASH).filter(|body| *body >= MAGIC.len()) else {
        return Err(cut);
    };
    if xxh3_128(&bytes[..body]).to_le_bytes() != bytes[body..] {
        return Err(SnapshotError::Damaged("damaged"));
    }
    let mut rest = &rest[..body - MAGIC.len()];
    let theirs = String::from_utf8_lossy(take_piece(&mut rest).ok_or(cut)?);
    if theirs != of {
        return Err(SnapshotError::Foreign(theirs.into_owned()));
    }
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let entry = rest.split_off(..HASH).and_then(|hash| {
            let hash = u128::from_le_bytes(hash.try_into().ok()?);
            Some((hash, take_piece(&mut rest)?))
        });
        let (hash, text) = entry.ok_or(SnapshotError::Damaged("cut off"))?;
        entries.extend(object(text).map(|object| (hash, object)));
    }
    Ok(entries)
}

fn take_piece<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let length = u32::from_le_bytes(rest.split_off(..4)?.try_into().ok()?);
    rest.split_off(..usize::try_from(length).ok()?)
}

fn object(text: &[u8]) -> Option<AnyObject> {
    let value: Value = serde_json::from_slice(text).ok()?;
    config::read_object(&value, &ParseOptions::default().degrading()).object
}

/// Serializes the kept parts of an object as the server would send it.
fn text(object: &AnyObject) -> Option<String> {
    if object.kind().is_credential() {
        // Secrets are never written to snapshots.
        return None;
    }
    if let Some(raw) = object.raw() {
        return match status(object.meta()) {
            None => Some(raw.to_string()),
            Some(status) => with_status(raw, status),
        };
    }
    let Value::Object(mut content) = object.spec_json() else {
        return None;
    };
    let kind = object.kind();
    let mut whole = Map::new();
    match kind {
        Kind::EndpointSlice => whole = content,
        Kind::Namespace => drop(whole.insert("status".into(), content.into())),
        Kind::Node => {
            let addresses = content.remove("addresses").unwrap_or_default();
            whole.insert("status".into(), json!({ "addresses": addresses }));
            whole.insert("spec".into(), content.into());
        }
        Kind::Service | Kind::Pod => {
            whole.extend(content.remove("status").map(|status| ("status".to_owned(), status)));
            whole.insert("spec".into(), content.into());
        }
        _ => drop(whole.insert("spec".into(), content.into())),
    }
    whole.insert("apiVersion".into(), kind.api_version().into());
    whole.insert("kind".into(), kind.name().into());
    whole.insert("metadata".into(), metadata(object.meta()));
    Some(Value::Object(whole).to_string())
}

/// The part of a status that is read: assigned addresses, or the health of a workload.
fn status(meta: &Meta) -> Option<Value> {
    let address = |(host, address): &(Arc<str>, IpAddr)| json!({ "host": &**host, "value": address.to_string() });
    Some(match meta.status.as_deref()? {
        StatusPart::Addresses(assigned) => json!({ "addresses": assigned.iter().map(address).collect::<Vec<_>>() }),
        StatusPart::Healthy(healthy) => {
            let status = if *healthy { "True" } else { "False" };
            json!({ "conditions": [{ "type": "Healthy", "status": status }] })
        }
    })
}

/// An object as written, with a status.
fn with_status(raw: &str, status: Value) -> Option<String> {
    let mut whole: Value = serde_json::from_str(raw).ok()?;
    whole["status"] = status;
    Some(whole.to_string())
}

fn metadata(meta: &Meta) -> Value {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| {
        let empty = match &value {
            Value::String(text) => text.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            value => value.is_null() || *value == json!(0),
        };
        if !empty {
            fields.insert(name.to_owned(), value);
        }
    };
    let map = |map: &config::StringMap| -> Value {
        let entries = map.iter().map(|(key, value)| (key.to_string(), Value::from(&**value)));
        Value::Object(entries.collect())
    };
    put("name", (&*meta.name).into());
    put("namespace", (&*meta.namespace).into());
    put("labels", map(&meta.labels));
    put("annotations", map(&meta.annotations));
    put("uid", (&*meta.uid).into());
    put("generation", meta.generation.into());
    put("generateName", (&*meta.generate_name).into());
    let time = |time: &Option<config::Timestamp>| time.as_ref().map_or(Value::Null, |time| time.to_string().into());
    put("creationTimestamp", time(&meta.creation_timestamp));
    put("deletionTimestamp", time(&meta.deletion_timestamp));
    if let Some(owner) = &meta.owner {
        let owner = json!([{ "kind": &*owner.kind, "name": &*owner.name, "controller": true }]);
        put("ownerReferences", owner);
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXTS: &[&str] = &[
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"x","labels":{"app":"a"},"generateName":"p-","creationTimestamp":"2026-01-01T00:00:00Z","ownerReferences":[{"kind":"ReplicaSet","name":"r","controller":true}]},"spec":{"nodeName":"n","serviceAccountName":"s","containers":[{"name":"c","ports":[{"containerPort":80,"name":"http"}]}]},"status":{"phase":"Running","podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"}],"conditions":[{"type":"Ready","status":"True"}]}}"#,
        r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"s","namespace":"x","uid":"u"},"spec":{"clusterIP":"10.1.0.1","clusterIPs":["10.1.0.1"],"selector":{"app":"a"},"ports":[{"name":"http","port":80,"targetPort":"http"}]},"status":{"loadBalancer":{"ingress":[{"ip":"1.1.1.1"}]}}}"#,
        r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","labels":{"topology.kubernetes.io/zone":"z"}},"status":{"addresses":[{"type":"InternalIP","address":"1.1.1.1"}]}}"#,
        r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x"},"status":{"phase":"Active"}}"#,
        r#"{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"s-1","namespace":"x","labels":{"kubernetes.io/service-name":"s"}},"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":true},"targetRef":{"kind":"Pod","name":"p","namespace":"x"}}],"ports":[{"name":"http","port":80,"protocol":"TCP"}]}"#,
        r#"{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"e","namespace":"x","uid":"1","generation":3},"spec":{"hosts":["a.com"],"ports":[{"number":80,"name":"http","protocol":"HTTP"}],"resolution":"DNS"}}"#,
        r#"{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"f","namespace":"x"},"spec":{"hosts":["b.com"],"ports":[{"number":80,"name":"http","protocol":"HTTP"}],"resolution":"DNS"},"status":{"addresses":[{"host":"b.com","value":"240.240.0.1"},{"host":"b.com","value":"2001:2::1"}]}}"#,
        r#"{"apiVersion":"mesh.istio.io/v1alpha1","kind":"MeshConfig","metadata":{"name":"default"},"spec":{"trustDomain":"td"}}"#,
    ];

    fn entries() -> Vec<Entry> {
        let objects = TEXTS.iter().map(|text| object(text.as_bytes()).unwrap());
        objects.enumerate().map(|(number, object)| (number as u128, object)).collect()
    }

    fn options(directory: &Path) -> SnapshotOptions {
        SnapshotOptions {
            file: directory.join("below/snapshot"),
            of: "https://server, revision default".into(),
            interval: Duration::ZERO,
            patience: Duration::ZERO,
        }
    }

    #[test]
    fn snapshots_survive_a_round_trip() {
        let directory = tempfile::tempdir().unwrap();
        let options = options(directory.path());
        write(&options, &entries()).unwrap();
        let found = read(&options).unwrap();
        for ((hash, read), (wanted, object)) in found.iter().zip(&entries()) {
            assert_eq!((hash, read), (wanted, object));
        }
        assert_eq!(found.len(), TEXTS.len());
        write(&options, &entries()[..1]).unwrap();
        assert_eq!(read(&options).unwrap().len(), 1);
    }

    #[test]
    fn unusable_snapshots_have_different_errors() {
        let directory = tempfile::tempdir().unwrap();
        let options = options(directory.path());
        assert!(matches!(read(&options), Err(SnapshotError::Io(_))));
        write(&options, &entries()).unwrap();
        let other = SnapshotOptions { of: "another".into(), ..options.clone() };
        assert!(matches!(read(&other), Err(SnapshotError::Foreign(_))));
        let mut bytes = fs::read(&options.file).unwrap();
        bytes[100] ^= 1;
        fs::write(&options.file, bytes).unwrap();
        assert!(matches!(read(&options), Err(SnapshotError::Damaged("damaged"))));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn no_bytes_cause_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in 0..2000usize, flip in 0..2000usize) {
            let _ = decode("a", &bytes);
            let whole = encode("a", &entries());
            prop_assert!(decode("a", &whole[..cut.min(whole.len() - 1)]).is_err());
            // Correct hash, invalid content.
            let mut body = MAGIC.to_vec();
            piece(&mut body, b"a");
            body.extend_from_slice(&bytes);
            let hash = xxh3_128(&body);
            body.extend_from_slice(&hash.to_le_bytes());
            let _ = decode("a", &body);
            let mut flipped = whole;
            let at = flip % flipped.len();
            flipped[at] ^= 1;
            prop_assert!(decode("a", &flipped).is_err());
        }
    }
}
