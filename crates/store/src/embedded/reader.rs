//! Reads of history that is no longer in memory. They block on the disk.

use redb::ReadableDatabase;

use super::disk::{Disk, Failure, unreadable};
use super::format::{
    Entry, META, META_COMPACTED, VERSIONS, decode_key, encode_key, encode_place, range_of, split_place,
};
use crate::state::Page;
use crate::{Error, Key, List, Query, Revision, Version};

/// Answers a query at a revision.
///
/// # Errors
/// [`Error::Compacted`]; or the disk fails.
pub(super) fn list(disk: &Disk, query: &Query, revision: Revision) -> Result<List, Error> {
    disk.guarded(|| {
        let reader = disk.database.begin_read()?;
        let oldest = reader.open_table(META)?.get(META_COMPACTED)?.ok_or_else(unreadable)?.value();
        if revision < oldest {
            let requested = revision;
            return Err(Failure::Store(Error::Compacted { requested, oldest }));
        }
        let (mut start, end) = range_of(&query.resource, query.namespace.as_deref());
        if let Some(token) = &query.after {
            let last = Key::new(query.resource.clone(), token.namespace.clone(), token.name.clone());
            // After all versions of the last object: no revision is this large.
            start = start.max(encode_place(&encode_key(&last), u64::MAX));
        }
        let mut page = Page::new(query);
        if start >= end {
            return Ok(page.finish(revision));
        }
        // The newest version so far of the object that is being scanned.
        let mut current: Option<Scanned> = None;
        for item in reader.open_table(VERSIONS)?.range(&start[..]..&end[..])? {
            let (place, value) = item?;
            let (encoded, written) = split_place(place.value()).ok_or_else(unreadable)?;
            if let Some(passed) = current.take_if(|current| current.encoded != encoded)
                && !passed.offer(&mut page)?
            {
                return Ok(page.finish(revision));
            }
            if written <= revision {
                current = Some(Scanned { encoded: encoded.to_vec(), written, value: value.value().to_vec() });
            }
        }
        if let Some(passed) = current {
            passed.offer(&mut page)?;
        }
        Ok(page.finish(revision))
    })
}

/// Returns the versions of an object up to a revision, newest first.
///
/// # Errors
/// The disk fails.
pub(super) fn history(disk: &Disk, key: &Key, upto: Revision, limit: usize) -> Result<Vec<Version>, Error> {
    disk.guarded(|| {
        let encoded = encode_key(key);
        let (start, end) = (encode_place(&encoded, 0), encode_place(&encoded, upto));
        let versions = disk.database.begin_read()?.open_table(VERSIONS)?;
        let mut found = Vec::new();
        for item in versions.range(&start[..]..=&end[..])?.rev().take(limit) {
            let (place, value) = item?;
            let (_, revision) = split_place(place.value()).ok_or_else(unreadable)?;
            let entry = Entry::decode(value.value()).ok_or_else(unreadable)?;
            found.push(entry.version(key, revision).map_err(Failure::Store)?);
        }
        Ok(found)
    })
}

/// A version that was not decoded yet.
struct Scanned {
    encoded: Vec<u8>,
    written: Revision,
    value: Vec<u8>,
}

impl Scanned {
    fn offer(&self, page: &mut Page<'_>) -> Result<bool, Failure> {
        let key = decode_key(&self.encoded).ok_or_else(unreadable)?;
        let entry = Entry::decode(&self.value).ok_or_else(unreadable)?;
        let object = entry.object(&key, self.written).map_err(Failure::Store)?;
        Ok(object.is_none_or(|object| page.offer(&object)))
    }
}
