//! Leases as in Kubernetes (`coordination.k8s.io/v1`): the state machine of one candidate. Pure; time is an argument.
//!
//! The clocks of replicas need not agree: a lease has expired when it has not changed for its duration, measured by the
//! observer's clock. The timestamps in a lease are informational.
//!
//! Invariant: there is never more than one leader. A holder that cannot renew stops before others may take the lease. A replica
//! that takes a lease before it expired (as the default revision does, or after the lease was deleted) waits until its
//! previous holder must have stopped.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use config::Timestamp;
use serde_json::{Value, json};

/// The duration and renewal of a lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Other replicas may take the lease when it was not renewed for this time.
    pub duration: Duration,
    /// A holder that could not renew the lease for this time stops leading.
    pub renew: Duration,
    /// The interval of reads and renewals.
    pub retry: Duration,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms { duration: Duration::from_secs(30), renew: Duration::from_secs(15), retry: Duration::from_millis(7_500) }
    }
}

/// The `spec` of a Lease.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lease {
    /// `holderIdentity`; empty if the lease is free.
    pub holder: String,
    /// `leaseDurationSeconds`.
    pub seconds: u32,
    /// `acquireTime`, as text.
    pub acquired: Option<String>,
    /// `renewTime`, as text.
    pub renewed: Option<String>,
    /// `leaseTransitions`: the number of changes of the holder.
    pub transitions: u64,
    /// The revision of the holder, from the annotation [`REVISION`]; empty if unknown.
    pub revision: String,
}

/// The annotation with the revision of the holder.
pub const REVISION: &str = "istio.io/rev";

/// The prefix of a holder's revision if the holder runs in another cluster than the lease.
pub const REMOTE_PREFIX: char = '^';

impl Lease {
    /// Reads the `spec` of a Lease. Missing fields and fields of another type count as unset.
    pub fn from_json(spec: &Value) -> Lease {
        let text = |field: &str| spec.get(field).and_then(Value::as_str).map(str::to_owned);
        let number = |field: &str| spec.get(field).and_then(Value::as_u64).unwrap_or(0);
        Lease {
            holder: text("holderIdentity").unwrap_or_default(),
            seconds: u32::try_from(number("leaseDurationSeconds")).unwrap_or(u32::MAX),
            acquired: text("acquireTime"),
            renewed: text("renewTime"),
            transitions: number("leaseTransitions"),
            revision: String::new(),
        }
    }

    /// The `spec` of a Lease.
    pub fn to_json(&self) -> Value {
        let mut spec = json!({
            "holderIdentity": self.holder,
            "leaseDurationSeconds": self.seconds,
            "leaseTransitions": self.transitions,
        });
        for (field, time) in [("acquireTime", &self.acquired), ("renewTime", &self.renewed)] {
            if let Some(time) = time {
                spec[field] = time.as_str().into();
            }
        }
        spec
    }
}

/// The next step of a candidate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Wait: another replica holds the lease.
    Wait,
    /// Write this lease, if it has not changed since it was read.
    Write(Lease),
}

/// The state of one candidate. Times count from a start that the caller chooses once.
#[derive(Clone, Debug)]
pub struct Elector {
    identity: String,
    terms: Terms,
    revision: String,
    /// Whether this replica takes the lease from other revisions.
    prior: bool,
    /// The last observed lease, and when it was first observed in this state.
    seen: Option<(Lease, Duration)>,
    /// The time of the last renewal by this replica; `None` if it does not hold the lease.
    held: Option<Duration>,
    /// Until this time the previous holder may still write.
    wait: Duration,
}

impl Elector {
    /// A candidate that does not hold the lease.
    pub fn new(identity: impl Into<String>, terms: Terms) -> Elector {
        Elector {
            identity: identity.into(),
            terms,
            revision: String::new(),
            prior: false,
            seen: None,
            held: None,
            wait: Duration::ZERO,
        }
    }

    /// The identity of this replica.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Sets the revision of this replica, and whether it is the default revision, which takes the lease from others.
    pub fn set_revision(&mut self, revision: &str, prior: bool) {
        revision.clone_into(&mut self.revision);
        self.prior = prior;
    }

    /// Whether this replica leads now: it renewed the lease in time, and the previous holder must have stopped.
    pub fn leads(&self, now: Duration) -> bool {
        self.held.is_some_and(|at| self.wait <= now && now < at + self.terms.renew)
    }

    /// The time at which [`Elector::leads`] changes if nothing else happens.
    pub fn turns(&self, now: Duration) -> Option<Duration> {
        let held = self.held?;
        Some(if now < self.wait { self.wait } else { held + self.terms.renew })
    }

    /// The time at which this replica stops leading unless it renews the lease, and the time from which others may lead.
    pub fn term(&self, now: Duration) -> Option<(Duration, Duration)> {
        let held = self.held.filter(|_| self.leads(now))?;
        Some((held + self.terms.renew, held + self.terms.duration))
    }

    /// Processes the lease as it was just read.
    pub fn look(&mut self, found: Option<&Lease>, now: Duration, wall: SystemTime) -> Step {
        let Some(lease) = found else {
            // The lease was deleted; its last holder may not have noticed yet.
            if self.seen.take().is_some() {
                self.wait = now + self.terms.renew;
            }
            return Step::Write(self.mine(0, shown(wall), wall));
        };
        if self.seen.as_ref().is_none_or(|(seen, _)| seen != lease) {
            self.seen = Some((lease.clone(), now));
        }
        if lease.holder == self.identity {
            let acquired = lease.acquired.clone().unwrap_or_else(|| shown(wall));
            return Step::Write(self.mine(lease.transitions, acquired, wall));
        }
        self.held = None;
        let since = self.seen.as_ref().map_or(now, |(_, since)| *since);
        let over = now >= since + Duration::from_secs(lease.seconds.into());
        let gives_way = !lease.revision.is_empty() && self.takes_precedence_over(&lease.revision);
        if lease.holder.is_empty() || over || gives_way {
            let runs = !lease.holder.is_empty() && !over;
            self.wait = if runs { now + self.terms.renew } else { now };
            return Step::Write(self.mine(lease.transitions + 1, shown(wall), wall));
        }
        Step::Wait
    }

    /// Records a successful write. `asked` is the time of the read before it, from which the lease counts.
    pub fn wrote(&mut self, lease: Lease, asked: Duration) {
        self.seen = Some((lease, asked));
        self.held = Some(asked);
    }

    /// Stops leading. Returns the lease to write so that others need not wait; `None` if this replica does not hold it.
    pub fn release(&mut self, wall: SystemTime) -> Option<Lease> {
        self.held.take()?;
        let (seen, _) = self.seen.take()?;
        Some(Lease { holder: String::new(), seconds: 1, renewed: Some(shown(wall)), ..seen })
    }

    /// Whether this replica takes precedence over a holder: the default revision over others, and a replica in the cluster
    /// of the lease over one in another cluster.
    fn takes_precedence_over(&self, revision: &str) -> bool {
        let parts = |revision: &str| match revision.strip_prefix(REMOTE_PREFIX) {
            Some(rest) => (rest.to_owned(), true),
            None => (revision.to_owned(), false),
        };
        let ((ours, we_are_remote), (theirs, they_are_remote)) = (parts(&self.revision), parts(revision));
        match ours == theirs {
            true => !we_are_remote && they_are_remote,
            false => self.prior,
        }
    }

    fn mine(&self, transitions: u64, acquired: String, wall: SystemTime) -> Lease {
        Lease {
            holder: self.identity.clone(),
            seconds: u32::try_from(self.terms.duration.as_secs()).unwrap_or(u32::MAX),
            acquired: Some(acquired),
            renewed: Some(shown(wall)),
            transitions,
            revision: self.revision.clone(),
        }
    }
}

/// Formats a `MicroTime`: always with six fractional digits.
fn shown(wall: SystemTime) -> String {
    let since = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    let text = Timestamp::from_unix(seconds).to_string();
    format!("{}.{:06}Z", text.trim_end_matches('Z'), since.subsec_micros())
}
