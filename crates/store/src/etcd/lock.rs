//! A lock with a lease, for work that only one replica may do.

use std::sync::Arc;
use std::time::Duration;

use protos::etcdserverpb as pb;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Shared;
use super::client::Effect;
use super::write::compare;
use crate::Error;

/// The shortest lease: etcd counts in seconds, and half of the time is for renewing it.
const SHORTEST: Duration = Duration::from_secs(2);

/// A lock that is held until it is dropped or [lost](Lock::lost).
pub struct Lock {
    renewing: JoinHandle<()>,
    lost: watch::Receiver<bool>,
}

impl Lock {
    /// Waits until the lock may have been lost because etcd could not be reached in time.
    pub async fn lost(&mut self) {
        // The sender lives as long as the task that renews the lease.
        let _ = self.lost.wait_for(|lost| *lost).await;
    }

    /// Whether the lock may have been lost.
    pub fn is_lost(&self) -> bool {
        *self.lost.borrow() || self.renewing.is_finished()
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

/// Revokes the lease when the task that renews it ends.
struct Lease {
    shared: Arc<Shared>,
    id: i64,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let (shared, request) = (self.shared.clone(), pb::LeaseRevokeRequest { id: self.id });
        // Nothing waits for this: the lease would expire anyway. Outside of the runtime it expires.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let call = shared.client.call::<_, pb::LeaseRevokeResponse>(
                    "/etcdserverpb.Lease/LeaseRevoke",
                    request,
                    Effect::Repeatable,
                );
                if let Err(failure) = call.await {
                    tracing::debug!(?failure, "a lease was not revoked; it will expire");
                }
            });
        }
    }
}

/// Waits until the lock is free and acquires it.
pub(super) async fn take(shared: Arc<Shared>, name: &str, identity: &str, ttl: Duration) -> Result<Lock, Error> {
    let ttl = ttl.max(SHORTEST);
    let key = shared.layout.lock(name);
    loop {
        let granted = Instant::now();
        let request = pb::LeaseGrantRequest {
            ttl: i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX),
            id: 0,
        };
        // If the answer is lost, the lease expires.
        let grant: pb::LeaseGrantResponse = shared
            .client
            .call("/etcdserverpb.Lease/LeaseGrant", request, Effect::Repeatable)
            .await?;
        let lease = Lease {
            shared: shared.clone(),
            id: grant.id,
        };
        let put = pb::PutRequest {
            key: key.clone(),
            value: identity.to_owned().into(),
            lease: grant.id,
            prev_kv: false,
        };
        let request = pb::TxnRequest {
            compare: vec![compare(
                &key,
                pb::compare::Result::Equal,
                pb::compare::TargetUnion::CreateRevision(0),
            )],
            success: vec![pb::RequestOp {
                request: Some(pb::request_op::Request::RequestPut(put)),
            }],
            failure: Vec::new(),
        };
        // If the answer is lost, the error revokes the lease and deletes the key.
        let answer: pb::TxnResponse = shared
            .client
            .call("/etcdserverpb.KV/Txn", request, Effect::Once)
            .await?;
        if answer.succeeded {
            let (lost, losing) = watch::channel(false);
            let renewing = tokio::spawn(async move {
                renew(&lease, ttl, granted).await;
                lost.send_replace(true);
            });
            return Ok(Lock { renewing, lost: losing });
        }
        drop(lease);
        let at = shared.client.note(answer.header.as_ref());
        shared.gone(key.clone(), at).await?;
    }
}

/// Renews a lease until that fails for too long. Time is measured from before the last successful renewal, because
/// etcd's timer started later.
async fn renew(lease: &Lease, ttl: Duration, granted: Instant) {
    let mut good = granted;
    loop {
        let now = Instant::now();
        let end = good + ttl;
        if timeout_at(end, sleep(ttl / 3)).await.is_err() || Instant::now() >= end {
            return;
        }
        let begun = Instant::now().max(now);
        match timeout(end.saturating_duration_since(begun).min(ttl / 3), once(lease)).await {
            Ok(Ok(true)) => good = begun,
            Ok(Ok(false)) => return,
            Ok(Err(_)) | Err(_) => {}
        }
    }
}

/// Renews once. Returns false if the lease has expired.
async fn once(lease: &Lease) -> Result<bool, Error> {
    let (requests, outgoing) = mpsc::channel(1);
    let request = pb::LeaseKeepAliveRequest { id: lease.id };
    requests
        .try_send(request)
        .map_err(|e| Error::Unavailable(e.to_string()))?;
    let (_, mut answers) = lease
        .shared
        .client
        .stream("/etcdserverpb.Lease/LeaseKeepAlive", outgoing)
        .await?;
    let answer: Option<pb::LeaseKeepAliveResponse> = answers
        .message()
        .await
        .map_err(|s| Error::Unavailable(s.message().to_owned()))?;
    answer
        .map(|answer| answer.ttl > 0)
        .ok_or_else(|| Error::Unavailable("the stream ended".into()))
}
