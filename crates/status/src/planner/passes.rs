//! Passes over all objects, a part at a time: thousands at once would hold up everything else.

use std::ops::Bound;

use config::ObjectKey;

use super::{Planner, Scope};
use crate::Elapsed;

/// The number of objects that are examined together.
const TOGETHER: usize = 1024;

/// A pass in progress.
pub(super) struct Pass {
    reason: Reason,
    /// The last object that was examined.
    after: Option<ObjectKey>,
}

/// Why objects are examined.
#[derive(Clone, Copy)]
pub(super) enum Reason {
    /// Proxies connected or disconnected: all are counted.
    Members,
    /// Proxies answered: those that some proxy has not acknowledged yet are counted, at once if one was `rejected`.
    Answers { rejected: bool },
    /// This replica began to lead: those of the scope whose stored status differs are counted.
    Lead(Scope),
}

impl Planner {
    pub(super) fn begin_pass(&mut self, reason: Reason) {
        self.passes.push_back(Pass { reason, after: None });
    }

    /// Begins a pass for the answers of proxies, unless one is in progress.
    pub(super) fn take_answers(&mut self) {
        let is_answered = self.news.answered || self.news.rejected;
        if is_answered && !self.passes.iter().any(|pass| matches!(pass.reason, Reason::Answers { .. })) {
            let rejected = self.news.rejected;
            self.news = Default::default();
            self.begin_pass(Reason::Answers { rejected });
        }
    }

    /// Examines the next objects.
    pub(super) fn examine_some(&mut self, now: Elapsed) {
        let mut left = TOGETHER;
        while left > 0
            && let Some(pass) = self.passes.front_mut()
        {
            let (reason, start) = (pass.reason, pass.after.as_ref().map_or(Bound::Unbounded, Bound::Excluded));
            let range = (start, Bound::Unbounded);
            let keys: Vec<ObjectKey> = match reason {
                Reason::Answers { .. } => self.open.range(range).take(left).cloned().collect(),
                _ => self.objects.range(range).take(left).map(|(key, _)| key.clone()).collect(),
            };
            pass.after = keys.last().cloned();
            if keys.is_empty() {
                self.passes.pop_front();
            }
            left -= keys.len();
            keys.iter().for_each(|key| self.examine(key, reason, now));
        }
    }

    fn examine(&mut self, key: &ObjectKey, reason: Reason, now: Elapsed) {
        let Some(record) = self.objects.get_mut(key) else { return };
        let at = match reason {
            Reason::Members => now,
            Reason::Answers { rejected } => {
                if rejected {
                    record.patience = Elapsed::ZERO;
                }
                record.looked.map_or(now, |looked| now.max(looked + record.patience))
            }
            Reason::Lead(scope) => {
                let is_stored = match (&record.current, &record.stored) {
                    (Some(current), Some(stored)) => current.says_the_same(stored),
                    _ => false,
                };
                if is_stored || record.scope != scope {
                    return;
                }
                now
            }
        };
        self.look(key, at);
    }
}
