//! Leases in the manner of Kubernetes (`coordination.k8s.io/v1`): who holds one, and what to do about it. Pure; time is
//! an argument.
//!
//! The clocks of replicas need not agree: a lease has run out when it has not changed for as long as it says, by the
//! clock of who looks. What its times say is only shown.
//!
//! There is never more than one leader. A holder that cannot renew stops before others may take the lease; and who takes one
//! that has not run out (the default revision does, and so does who finds it deleted) waits until its holder has stopped.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use config::Timestamp;
use serde_json::{Value, json};

/// How long a lease is held and how it is renewed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Others may take it when it has not been renewed for so long.
    pub duration: Duration,
    /// Who could not renew it for so long does not count as its holder any more.
    pub renew: Duration,
    /// How often to look at it or renew it.
    pub retry: Duration,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms {
            duration: Duration::from_secs(30),
            renew: Duration::from_secs(15),
            retry: Duration::from_millis(7_500),
        }
    }
}

/// The `spec` of a Lease.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lease {
    /// `holderIdentity`; empty: nobody holds it.
    pub holder: String,
    /// `leaseDurationSeconds`.
    pub seconds: u32,
    /// `acquireTime`, as text.
    pub acquired: Option<String>,
    /// `renewTime`, as text.
    pub renewed: Option<String>,
    /// `leaseTransitions`: how often the holder changed.
    pub transitions: u64,
    /// The revision of the holder, which stands in an annotation ([`REVISION`]) and not in the spec; empty: not known.
    pub revision: String,
}

/// The annotation of a Lease that tells the revision of its holder.
pub const REVISION: &str = "istio.io/rev";

/// What the revision of a holder begins with that runs in another cluster than the lease is of.
pub const ELSEWHERE: char = '^';

impl Lease {
    /// Reads the `spec` of a Lease; what is missing or of another type counts as not set.
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

/// What to do about a lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Nothing: another holds it.
    Wait,
    /// Write this, if it is still what was read.
    Write(Lease),
}

/// One replica's view of a lease. Moments are counted from a start that the caller chose once.
#[derive(Clone, Debug)]
pub struct Elector {
    identity: String,
    terms: Terms,
    revision: String,
    /// Whether replicas of other revisions have to give way to this one.
    prior: bool,
    /// What was seen last, and when it was first seen so.
    seen: Option<(Lease, Duration)>,
    /// When it was acquired or renewed by this replica; none: it is not held.
    held: Option<Duration>,
    /// Before this a holder from whom it was taken may still write.
    wait: Duration,
}

impl Elector {
    /// A replica of this name, which holds nothing.
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

    /// The name of this replica.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Says of which revision this replica is, and whether that is the default one: then it takes the lease from replicas
    /// of other revisions while they hold it.
    pub fn set_revision(&mut self, revision: &str, prior: bool) {
        revision.clone_into(&mut self.revision);
        self.prior = prior;
    }

    /// Whether this replica leads now. It ends by itself when the lease could not be renewed. Whoever takes a lease that has
    /// not run out leads only when the other one must have noticed.
    pub fn leads(&self, now: Duration) -> bool {
        self.held
            .is_some_and(|at| self.wait <= now && now < at + self.terms.renew)
    }

    /// When [`Elector::leads`] changes if nothing happens.
    pub fn turns(&self, now: Duration) -> Option<Duration> {
        let held = self.held?;
        Some(if now < self.wait {
            self.wait
        } else {
            held + self.terms.renew
        })
    }

    /// When this replica stops to lead unless it renews the lease, and from when others may lead then.
    pub fn term(&self, now: Duration) -> Option<(Duration, Duration)> {
        let held = self.held.filter(|_| self.leads(now))?;
        Some((held + self.terms.renew, held + self.terms.duration))
    }

    /// What to do about the lease as it was read now.
    pub fn look(&mut self, found: Option<&Lease>, now: Duration, wall: SystemTime) -> Step {
        let Some(lease) = found else {
            // Somebody took it away, and who held it last may not know it yet.
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
        let gives_way = !lease.revision.is_empty() && self.goes_before(&lease.revision);
        if lease.holder.is_empty() || over || gives_way {
            let runs = !lease.holder.is_empty() && !over;
            self.wait = if runs { now + self.terms.renew } else { now };
            return Step::Write(self.mine(lease.transitions + 1, shown(wall), wall));
        }
        Step::Wait
    }

    /// What [`Elector::look`] wanted was written. `asked` is when it looked: from then the lease counts.
    pub fn wrote(&mut self, lease: Lease, asked: Duration) {
        self.seen = Some((lease, asked));
        self.held = Some(asked);
    }

    /// Ends to lead: what to write so that others need not wait; none if this replica does not hold the lease.
    pub fn release(&mut self, wall: SystemTime) -> Option<Lease> {
        self.held.take()?;
        let (seen, _) = self.seen.take()?;
        Some(Lease {
            holder: String::new(),
            seconds: 1,
            renewed: Some(shown(wall)),
            ..seen
        })
    }

    /// Whether who is of this revision has to give way: another revision to the one that comes first, and a replica
    /// elsewhere to one in the lease's own cluster.
    fn goes_before(&self, revision: &str) -> bool {
        let parts = |revision: &str| match revision.strip_prefix(ELSEWHERE) {
            Some(rest) => (rest.to_owned(), true),
            None => (revision.to_owned(), false),
        };
        let ((ours, we_are_elsewhere), (theirs, they_are_elsewhere)) = (parts(&self.revision), parts(revision));
        match ours == theirs {
            true => !we_are_elsewhere && they_are_elsewhere,
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

/// As `MicroTime` is written: always six digits after the second.
fn shown(wall: SystemTime) -> String {
    let since = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    let text = Timestamp::from_unix(seconds).to_string();
    format!("{}.{:06}Z", text.trim_end_matches('Z'), since.subsec_micros())
}
