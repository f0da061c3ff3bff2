//! Limits how often a client may do what is normal if it is rare.

use std::time::Instant;

/// The number at once.
const MOST: u32 = 200;
/// The number that is added each second.
const PER_SECOND: u64 = 20;

pub(crate) struct Allowance {
    left: u32,
    /// When something was added.
    at: Instant,
}

impl Allowance {
    pub(crate) fn new() -> Allowance {
        Allowance { left: MOST, at: Instant::now() }
    }

    /// Whether the client may do it once more.
    pub(crate) fn take(&mut self) -> bool {
        let seconds = self.at.elapsed().as_secs();
        if seconds > 0 {
            self.at = Instant::now();
            let added = u32::try_from(seconds.saturating_mul(PER_SECOND)).unwrap_or(MOST);
            self.left = self.left.saturating_add(added).min(MOST);
        }
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or(0);
        left.is_some()
    }
}
