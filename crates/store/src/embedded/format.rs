//! The format on disk. Format 1.
//!
//! A directory (mode 0700) with three files (0600):
//!
//! - `store.redb`: a [redb](https://www.redb.org) database of three tables. Each group of transactions is one redb
//!   commit in two phases: its pages are on disk before the header points at them, and the header is on disk before any
//!   transaction is acknowledged. All pages have checksums, which are verified when the store is opened.
//! - `store.lock`: locked (`flock`) by the process that uses the directory; contains that process's id.
//! - `store.newest`: the newest acknowledged revision, twice: plain and inverted, 8 bytes each, little-endian. It
//!   detects a database that has lost its end (an older copy, a damaged header). It may lag behind after a power
//!   failure, but is never ahead.
//!
//! | table | key | value |
//! |---|---|---|
//! | `meta` | `format` | 1 |
//! | | `compacted` | the log contains all later revisions, and the versions that were current at this one |
//! | `log` | revision | time (µs since 1970, u64) and the encoded keys written at it, each preceded by its length (u32)
//! |
//! | `versions` | encoded key, a zero byte, revision (big-endian) | 1, time and the object's JSON; or 0 and time:
//! deleted |
//!
//! Revisions of the log have no gaps. Numbers in values are little-endian. An encoded key is group, plural, namespace
//! and name separated by zero bytes. Parts contain no zero bytes, so encoded keys have the order of keys.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use redb::TableDefinition;

use crate::{GroupResource, Key, Revision, Stored, Version};

/// The format that this program writes.
pub(super) const FORMAT: u64 = 1;

pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
pub(super) const META_FORMAT: &str = "format";
pub(super) const META_COMPACTED: &str = "compacted";
pub(super) const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
pub(super) const VERSIONS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("versions");

const DELETED: u8 = 0;
const OBJECT: u8 = 1;

pub(super) fn encode_key(key: &Key) -> Vec<u8> {
    let parts = [&key.resource.group, &key.resource.plural, &key.namespace, &key.name];
    parts.map(|part| part.as_bytes()).join(&0)
}

/// Encodes a key of `versions`.
pub(super) fn encode_place(encoded_key: &[u8], revision: Revision) -> Vec<u8> {
    let mut place = Vec::with_capacity(encoded_key.len() + 9);
    place.extend_from_slice(encoded_key);
    place.push(0);
    place.extend_from_slice(&revision.to_be_bytes());
    place
}

/// Splits a key of `versions` into encoded key and revision.
pub(super) fn split_place(place: &[u8]) -> Option<(&[u8], Revision)> {
    let (rest, revision) = place.split_last_chunk::<8>()?;
    let (zero, key) = rest.split_last()?;
    (*zero == 0).then_some((key, u64::from_be_bytes(*revision)))
}

pub(super) fn decode_key(encoded: &[u8]) -> Option<Key> {
    let parts = encoded.split(|byte| *byte == 0).map(std::str::from_utf8);
    let parts: Vec<&str> = parts.collect::<Result<_, _>>().ok()?;
    let [group, plural, namespace, name] = parts[..] else {
        return None;
    };
    Some(Key::new(GroupResource::new(group, plural), namespace, name))
}

/// The range of `versions` for a type, or a type and namespace: inclusive start, exclusive end.
pub(super) fn range_of(resource: &GroupResource, namespace: Option<&str>) -> (Vec<u8>, Vec<u8>) {
    let mut start = [resource.group.as_bytes(), resource.plural.as_bytes()].join(&0);
    start.push(0);
    if let Some(namespace) = namespace {
        start.extend_from_slice(namespace.as_bytes());
        start.push(0);
    }
    let mut end = start.clone();
    // The zero byte at the end, plus one: after everything with this prefix.
    if let Some(last) = end.last_mut() {
        *last = 1;
    }
    (start, end)
}

/// Encodes a value of `versions`.
pub(super) fn encode_version(time: SystemTime, object: Option<&Stored>) -> Vec<u8> {
    let json = object.map_or(&[][..], |object| &object.json);
    let mut value = Vec::with_capacity(9 + json.len());
    value.push(if object.is_some() { OBJECT } else { DELETED });
    value.extend_from_slice(&micros(time).to_le_bytes());
    value.extend_from_slice(json);
    value
}

/// A decoded value of `versions`.
pub(super) struct Entry<'a> {
    pub(super) time: SystemTime,
    /// `None` if deleted.
    pub(super) json: Option<&'a [u8]>,
}

impl Entry<'_> {
    pub(super) fn decode(value: &[u8]) -> Option<Entry<'_>> {
        let (tag, rest) = value.split_first()?;
        let (time, json) = rest.split_first_chunk::<8>()?;
        let json = match *tag {
            OBJECT => Some(json),
            DELETED if json.is_empty() => None,
            _ => return None,
        };
        let time = time_of(u64::from_le_bytes(*time))?;
        Some(Entry { time, json })
    }

    pub(super) fn object(&self, key: &Key, revision: Revision) -> Result<Option<Stored>, crate::Error> {
        let json = self.json.map(Bytes::copy_from_slice);
        json.map(|json| Stored::from_json(key.clone(), revision, json)).transpose()
    }

    pub(super) fn version(&self, key: &Key, revision: Revision) -> Result<Version, crate::Error> {
        Ok(Version { revision, time: Some(self.time), object: self.object(key, revision)? })
    }
}

/// Encodes a value of `log`.
pub(super) fn encode_log<'k>(time: SystemTime, keys: impl Iterator<Item = &'k [u8]>) -> Vec<u8> {
    let mut value = micros(time).to_le_bytes().to_vec();
    for key in keys {
        let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
        value.extend_from_slice(&length.to_le_bytes());
        value.extend_from_slice(key);
    }
    value
}

/// Decodes a value of `log`: time and encoded keys.
pub(super) fn decode_log(value: &[u8]) -> Option<(SystemTime, Vec<&[u8]>)> {
    let (time, mut rest) = value.split_first_chunk::<8>()?;
    let mut keys = Vec::new();
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        keys.push(after.get(..length)?);
        rest = &after[length..];
    }
    Some((time_of(u64::from_le_bytes(*time))?, keys))
}

fn micros(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn time_of(micros: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn key() -> impl Strategy<Value = Key> {
        ("[a-c.]{0,3}", "[a-c]{1,3}", "[a-c-]{0,3}", "[a-c.-]{1,3}")
            .prop_map(|(group, plural, namespace, name)| Key::new(GroupResource::new(group, plural), namespace, name))
    }

    proptest! {
        /// Encoded keys decode to the same key and have the order of keys; ranges contain the right keys.
        #[test]
        fn keys_survive_a_round_trip_in_order(a in key(), b in key(), x: u64, y: u64) {
            let (ea, eb) = (encode_key(&a), encode_key(&b));
            prop_assert_eq!(decode_key(&ea), Some(a.clone()));
            prop_assert_eq!(ea.cmp(&eb), a.cmp(&b));
            let (pa, pb) = (encode_place(&ea, x), encode_place(&eb, y));
            prop_assert_eq!(split_place(&pa), Some((&ea[..], x)));
            prop_assert_eq!(pa.cmp(&pb), (&a, x).cmp(&(&b, y)));
            let (start, end) = range_of(&b.resource, None);
            prop_assert_eq!(start <= pa && pa < end, a.resource == b.resource);
            let (start, end) = range_of(&b.resource, Some(&b.namespace));
            prop_assert_eq!(start <= pa && pa < end, a.resource == b.resource && a.namespace == b.namespace);
        }

        /// No bytes make the decoder panic.
        #[test]
        fn any_bytes_are_decoded_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Some((time, keys)) = decode_log(&bytes) {
                prop_assert_eq!(encode_log(time, keys.into_iter()), bytes.clone());
            }
            if let Some(entry) = Entry::decode(&bytes) {
                let key = Key::new(GroupResource::new("", "pods"), "", "a");
                let _ = entry.version(&key, 1);
            }
            let _ = (split_place(&bytes), decode_key(&bytes));
        }
    }

    #[test]
    fn versions_survive_a_round_trip() {
        let key = Key::new(GroupResource::new("", "pods"), "default", "a");
        let object = Stored::new(key.clone(), 7, json!({"metadata": {"labels": {"app": "x"}}}));
        let time = UNIX_EPOCH + Duration::from_secs(5);
        let value = encode_version(time, Some(&object));
        let version = Entry::decode(&value).expect("an entry").version(&key, 7).expect("a version");
        let read = version.object.expect("an object");
        assert_eq!((version.time, read.json, read.labels), (Some(time), object.json, object.labels));
        let value = encode_version(time, None);
        assert!(Entry::decode(&value).expect("an entry").json.is_none());
    }
}
