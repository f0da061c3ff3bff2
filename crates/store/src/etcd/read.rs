//! Reads: single objects, lists, history.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protos::etcdserverpb as pb;
use tokio::time::{Instant, sleep};

use super::Shared;
use super::client::{Effect, Failure, number, revision};
use super::keys::Range;
use crate::{At, Continue, Error, Key, List, Query, Revision, Scope, Stored, Version};

const RANGE: &str = "/etcdserverpb.KV/Range";
const TXN: &str = "/etcdserverpb.KV/Txn";

/// The number of keys of the first page; later pages adapt.
const FIRST_PAGE: usize = 200;
/// The maximum number of keys of a page.
const LARGEST_PAGE: usize = 4096;
/// The target size of a page, in bytes.
const PAGE_BYTES: usize = 8 << 20;
/// The wait before another member is asked, if one answered with an old state.
const STALE_WAIT: Duration = Duration::from_millis(20);

impl Shared {
    pub(super) async fn get(&self, key: &Key) -> Result<Option<Stored>, Error> {
        let request = pb::RangeRequest { key: self.layout.key(key), ..Default::default() };
        let answer = self.range(request).await?;
        answer.kvs.into_iter().next().map(|kv| stored(key.clone(), &kv)).transpose()
    }

    pub(super) async fn revision(&self) -> Result<Revision, Error> {
        let request = pb::RangeRequest { key: self.layout.unused(), count_only: true, ..Default::default() };
        let answer = self.range(request).await?;
        Ok(self.client.note(answer.header.as_ref()))
    }

    pub(super) async fn list(&self, query: &Query) -> Result<List, Error> {
        let scope = query.scope();
        let range = self.layout.range(&scope);
        let (at, range) = match &query.after {
            None => (query.at, range),
            Some(token) => {
                let last = Key::new(query.resource.clone(), token.namespace.clone(), token.name.clone());
                (At::Exactly(token.revision), range.after(&self.layout.key(&last)))
            }
        };
        let selecting = !query.labels.is_empty() || !query.fields.is_empty();
        let mut pages = Pages::new(range, if selecting { 0 } else { query.limit });
        let mut items: Vec<Stored> = Vec::new();
        let mut rest = None;
        while let Some(page) = pages.next(self, at).await? {
            let (mut left, more) = (page.kvs.len(), page.more);
            for kv in page.kvs {
                left -= 1;
                let Some(key) = self.layout.parse(&kv.key) else {
                    continue;
                };
                let object = stored(key, &kv)?;
                if scope.contains(&object.key) && query.selects(&object) {
                    items.push(object);
                }
                if query.limit > 0 && items.len() == query.limit && (left > 0 || more) {
                    rest = Some(page.after + left as u64);
                    break;
                }
            }
            if rest.is_some() {
                break;
            }
        }
        let revision = pages.revision;
        let next = rest.and_then(|_| items.last()).map(|last| Continue {
            revision,
            namespace: last.key.namespace.clone(),
            name: last.key.name.clone(),
        });
        Ok(List { items, revision, next, remaining: rest.filter(|_| !selecting) })
    }

    pub(super) async fn snapshot(&self, scope: &Scope) -> Result<List, Error> {
        let mut pages = Pages::new(self.layout.range(scope), 0);
        let mut items = Vec::new();
        while let Some(page) = pages.next(self, At::Latest).await? {
            for kv in page.kvs {
                if let Some(key) = self.layout.parse(&kv.key).filter(|key| scope.contains(key)) {
                    items.push(stored(key, &kv)?);
                }
            }
        }
        // etcd orders types by their encoded form.
        items.sort_by(|a: &Stored, b: &Stored| a.key.cmp(&b.key));
        Ok(List { items, revision: pages.revision, next: None, remaining: None })
    }

    /// Walks back from the current version: reads the object at the revision before each version. Where no object
    /// exists, the tombstone contains the revision of the deletion.
    pub(super) async fn history(&self, key: &Key, limit: usize) -> Result<Vec<Version>, Error> {
        let mut versions = Vec::new();
        let mut at = 0;
        while versions.len() < limit {
            let Some((object, tombstone)) = self.look(key, at).await? else {
                break;
            };
            let version = match (object, tombstone) {
                (Some(kv), _) => {
                    Version { revision: revision(kv.mod_revision), time: None, object: Some(stored(key.clone(), &kv)?) }
                }
                (None, Some(tombstone)) => {
                    Version { revision: revision(tombstone.mod_revision), time: time(&tombstone.value), object: None }
                }
                (None, None) => break,
            };
            at = version.revision.saturating_sub(1);
            versions.push(version);
            if at == 0 {
                break;
            }
        }
        Ok(versions)
    }

    /// Reads an object's key and its tombstone at a revision (0: now). `None` if the revision is compacted.
    async fn look(
        &self,
        key: &Key,
        at: Revision,
    ) -> Result<Option<(Option<pb::KeyValue>, Option<pb::KeyValue>)>, Error> {
        let read = |key| pb::RequestOp {
            request: Some(pb::request_op::Request::RequestRange(pb::RangeRequest {
                key,
                revision: number(at),
                ..Default::default()
            })),
        };
        let request = pb::TxnRequest {
            success: vec![read(self.layout.key(key)), read(self.layout.tombstone(key))],
            ..Default::default()
        };
        let answer: pb::TxnResponse = match self.client.call(TXN, request, Effect::Repeatable).await {
            Ok(answer) => answer,
            Err(Failure::Compacted) => return Ok(None),
            Err(failure) => return Err(failure.into()),
        };
        let mut found = answer.responses.into_iter().map(|op| match op.response {
            Some(pb::response_op::Response::ResponseRange(range)) => range.kvs.into_iter().next(),
            _ => None,
        });
        Ok(Some((found.next().flatten(), found.next().flatten())))
    }

    /// Reads a range. A member that has just started can answer with the state that it had before, although it should
    /// catch up first (seen with etcd 3.5.1; etcd issue 20418 is similar). Such an answer is not used: other members
    /// are asked. If all of them stay behind for half the timeout, etcd was restored from a backup.
    pub(super) async fn range(&self, request: pb::RangeRequest) -> Result<pb::RangeResponse, Failure> {
        let known = self.client.newest();
        let end = Instant::now() + self.options.timeout / 2;
        loop {
            let answer = self.client.call(RANGE, request.clone(), Effect::Repeatable).await;
            let newest = match &answer {
                Ok(pb::RangeResponse { header, .. }) => self.client.note(header.as_ref()),
                // The member does not have the revision yet, although another one had it.
                Err(Failure::Future) if revision(request.revision) <= known => 0,
                Err(_) => return answer,
            };
            if request.serializable || newest >= known {
                return answer;
            }
            if Instant::now() >= end {
                self.client.reset_newest(newest);
                return answer;
            }
            self.client.avoid_current();
            sleep(STALE_WAIT).await;
        }
    }
}

/// A page of a range.
struct Page {
    kvs: Vec<pb::KeyValue>,
    more: bool,
    /// The number of keys after the page.
    after: u64,
}

/// Reads a range in pages of moderate size, all at one revision.
struct Pages {
    /// The rest of the range; `None` at the end.
    range: Option<Range>,
    /// The maximum number of keys in total; 0 for no limit.
    limit: usize,
    size: usize,
    /// The revision; 0 before the first page.
    revision: Revision,
}

impl Pages {
    fn new(range: Range, limit: usize) -> Pages {
        Pages { range: Some(range), limit, size: FIRST_PAGE, revision: 0 }
    }

    async fn next(&mut self, shared: &Shared, at: At) -> Result<Option<Page>, Error> {
        let Some(range) = self.range.take() else {
            return Ok(None);
        };
        let size = if self.limit > 0 { self.size.min(self.limit) } else { self.size };
        let request = pb::RangeRequest {
            key: range.from.clone(),
            range_end: range.end.clone(),
            limit: size as i64,
            ..Default::default()
        };
        let answer = match self.revision {
            0 => first(shared, request, at).await?,
            revision => exactly(shared, request, revision).await?,
        };
        if self.revision == 0 {
            self.revision = match at {
                At::Exactly(revision) => revision,
                _ => revision_of(&answer),
            };
        }
        let bytes: usize = answer.kvs.iter().map(|kv| kv.value.len() + kv.key.len()).sum();
        let count = answer.kvs.len();
        if let (true, Some(last)) = (answer.more, answer.kvs.last()) {
            self.range = Some(range.after(&last.key));
            self.limit = self.limit.saturating_sub(count).max(usize::from(self.limit > 0));
            self.size = (PAGE_BYTES / (bytes / count).max(1)).clamp(16, LARGEST_PAGE);
        }
        Ok(Some(Page {
            kvs: answer.kvs,
            more: answer.more,
            after: u64::try_from(answer.count).unwrap_or(0).saturating_sub(count as u64),
        }))
    }
}

/// Reads the first page, which determines the revision of the others.
async fn first(shared: &Shared, request: pb::RangeRequest, at: At) -> Result<pb::RangeResponse, Error> {
    match at {
        At::Exactly(revision) => exactly(shared, request, revision).await,
        At::Latest => Ok(shared.range(request).await?),
        At::NotOlderThan(wanted) => {
            let near = pb::RangeRequest { serializable: true, ..request.clone() };
            let answer = shared.range(near).await?;
            if revision_of(&answer) >= wanted {
                return Ok(answer);
            }
            // The member is behind, or the revision is in the future.
            let answer = shared.range(request).await?;
            match revision_of(&answer) {
                newest if newest >= wanted => Ok(answer),
                newest => Err(Error::Future { requested: wanted, newest }),
            }
        }
    }
}

async fn exactly(shared: &Shared, request: pb::RangeRequest, revision: Revision) -> Result<pb::RangeResponse, Error> {
    let request = pb::RangeRequest {
        // 0 would mean now. Nothing existed at 0, nor at 1.
        revision: number(revision.max(1)),
        ..request
    };
    match shared.range(request).await {
        Ok(answer) => Ok(answer),
        Err(Failure::Compacted) => Err(Error::Compacted { requested: revision, oldest: shared.oldest(revision).await }),
        Err(Failure::Future) => Err(Error::Future { requested: revision, newest: shared.revision().await? }),
        Err(failure) => Err(failure.into()),
    }
}

fn revision_of(answer: &pb::RangeResponse) -> Revision {
    revision(answer.header.as_ref().map_or(0, |header| header.revision))
}

/// Parses the value of a key.
pub(super) fn stored(key: Key, kv: &pb::KeyValue) -> Result<Stored, Error> {
    match serde_json::from_slice::<serde_json::Value>(&kv.value) {
        Ok(value) if value.is_object() => Ok(Stored::new(key, revision(kv.mod_revision), value)),
        Ok(_) => Err(Error::Damaged(format!("the value of {key} in etcd is not a JSON object"))),
        Err(error) => Err(Error::Damaged(format!("the value of {key} in etcd is not JSON: {error}"))),
    }
}

/// The content of a tombstone: milliseconds of the writer's clock.
pub(super) fn deletion_time(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().to_string()
}

fn time(deletion_time: &[u8]) -> Option<SystemTime> {
    let millis = std::str::from_utf8(deletion_time).ok()?.parse().ok()?;
    UNIX_EPOCH.checked_add(Duration::from_millis(millis))
}
