//! Writes: one transaction of the store is one etcd transaction.

use std::time::SystemTime;

use bytes::Bytes;
use protos::etcdserverpb as pb;
use serde_json::Value;

use super::Shared;
use super::client::{Effect, Failure, number, revision};
use super::read::{deletion_time, stored};
use crate::{Committed, Error, Expect, Key, Operation, Stored, Transaction};

const TXN: &str = "/etcdserverpb.KV/Txn";
/// etcd's default limit of operations per transaction (`--max-txn-ops`).
const OPERATIONS: usize = 128;

impl Shared {
    pub(super) async fn commit(&self, transaction: Transaction) -> Result<Committed, Error> {
        transaction.check()?;
        let operations = &transaction.operations;
        if operations.len() > OPERATIONS {
            let count = operations.len();
            return Err(Error::Invalid(format!(
                "a transaction of {count} operations; etcd takes {OPERATIONS} at once"
            )));
        }
        let mut request = pb::TxnRequest::default();
        let mut largest: Option<(usize, &Key)> = None;
        for operation in operations {
            let at = self.layout.key(operation.key());
            request.compare.extend(compares(&at, operation.expect()));
            if operation.expect() != Expect::Anything {
                request.failure.push(read(at.clone(), true));
            }
            request.success.push(match operation {
                Operation::Put { key, value, .. } => {
                    let text = self.text(key, value)?;
                    largest = largest.max(Some((text.len(), key)));
                    put(at, text.into())
                }
                Operation::Delete { key, .. } => delete_with_tombstone(at, self.layout.tombstone(key)),
                Operation::Check { .. } => read(at, false),
            });
        }
        let answer: pb::TxnResponse = match self.client.call(TXN, request, Effect::Once).await {
            Ok(answer) => answer,
            Err(Failure::TooLarge) => return Err(too_large(largest, self.options.object_bytes)),
            Err(failure) => return Err(failure.into()),
        };
        let at = self.client.note(answer.header.as_ref());
        if !answer.succeeded {
            return Err(failed_precondition(operations, answer));
        }
        let mut objects = Vec::with_capacity(operations.len());
        for (operation, done) in transaction.operations.into_iter().zip(answer.responses) {
            objects.push(match operation {
                Operation::Put { key, value, .. } => Some(Stored::new(key, at, value)),
                Operation::Delete { key, .. } | Operation::Check { key, .. } => {
                    found(done).map(|kv| stored(key, &kv)).transpose()?
                }
            });
        }
        Ok(Committed { revision: at, objects })
    }

    /// Serializes an object without its resource version, which etcd provides.
    fn text(&self, key: &Key, value: &Value) -> Result<String, Error> {
        let limit = self.options.object_bytes;
        let versioned = value.pointer("/metadata/resourceVersion").is_some();
        let text = if versioned {
            let mut value = value.clone();
            if let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) {
                meta.remove("resourceVersion");
            }
            value.to_string()
        } else {
            value.to_string()
        };
        if text.len() > limit {
            return Err(Error::TooLarge { key: key.clone(), bytes: text.len(), limit });
        }
        Ok(text)
    }
}

fn compares(at: &Bytes, expect: Expect) -> Vec<pb::Compare> {
    use pb::compare::{Result as Is, TargetUnion as Target};
    let there = |result| compare(at, result, Target::CreateRevision(0));
    match expect {
        Expect::Anything => Vec::new(),
        Expect::Absent => vec![there(Is::Equal)],
        Expect::Present => vec![there(Is::Greater)],
        // A missing key has the modification revision 0.
        Expect::Revision(revision) => {
            vec![there(Is::Greater), compare(at, Is::Equal, Target::ModRevision(number(revision)))]
        }
    }
}

/// Compares a key's current value of the target with the given one.
pub(super) fn compare(at: &Bytes, result: pb::compare::Result, union: pb::compare::TargetUnion) -> pb::Compare {
    use pb::compare::{Target, TargetUnion};
    let target = match union {
        TargetUnion::Version(_) => Target::Version,
        TargetUnion::CreateRevision(_) => Target::Create,
        TargetUnion::ModRevision(_) => Target::Mod,
        TargetUnion::Value(_) => Target::Value,
        TargetUnion::Lease(_) => Target::Lease,
    };
    pb::Compare { result: result.into(), target: target.into(), key: at.clone(), target_union: Some(union) }
}

pub(super) fn put(key: Bytes, value: Bytes) -> pb::RequestOp {
    operation(pb::request_op::Request::RequestPut(pb::PutRequest { key, value, ..Default::default() }))
}

pub(super) fn delete(key: Bytes) -> pb::RequestOp {
    operation(pb::request_op::Request::RequestDeleteRange(pb::DeleteRangeRequest {
        key,
        prev_kv: true,
        ..Default::default()
    }))
}

fn read(key: Bytes, keys_only: bool) -> pb::RequestOp {
    operation(pb::request_op::Request::RequestRange(pb::RangeRequest { key, keys_only, ..Default::default() }))
}

/// Deletes a key and writes its tombstone. Does nothing, and creates no revision, if the key does not exist.
fn delete_with_tombstone(key: Bytes, tombstone: Bytes) -> pb::RequestOp {
    let there = pb::compare::TargetUnion::CreateRevision(0);
    operation(pb::request_op::Request::RequestTxn(pb::TxnRequest {
        compare: vec![compare(&key, pb::compare::Result::Greater, there)],
        success: vec![delete(key), put(tombstone, deletion_time(SystemTime::now()).into())],
        failure: Vec::new(),
    }))
}

fn operation(request: pb::request_op::Request) -> pb::RequestOp {
    pb::RequestOp { request: Some(request) }
}

/// The previous value for a deletion or check.
fn found(done: pb::ResponseOp) -> Option<pb::KeyValue> {
    use pb::response_op::Response;
    match done.response? {
        Response::ResponseRange(range) => range.kvs.into_iter().next(),
        Response::ResponseDeleteRange(deleted) => deleted.prev_kvs.into_iter().next(),
        Response::ResponseTxn(inner) => inner.responses.into_iter().find_map(found),
        Response::ResponsePut(_) => None,
    }
}

/// Finds the precondition that failed.
fn failed_precondition(operations: &[Operation], answer: pb::TxnResponse) -> Error {
    let asked = operations.iter().filter(|operation| operation.expect() != Expect::Anything);
    for (operation, read) in asked.zip(answer.responses) {
        let now = found(read).map(|kv| revision(kv.mod_revision));
        if let Err(error) = operation.expect().check(operation.key(), now) {
            return error;
        }
    }
    // The reads are part of the transaction, so one of them must differ.
    Error::Unavailable("etcd rejected a transaction whose preconditions hold".into())
}

fn too_large(largest: Option<(usize, &Key)>, limit: usize) -> Error {
    match largest {
        Some((bytes, key)) => Error::TooLarge { key: key.clone(), bytes, limit },
        None => Error::Invalid("the transaction exceeds etcd's size limit".into()),
    }
}
