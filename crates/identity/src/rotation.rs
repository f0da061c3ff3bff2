//! Times of renewals and retries.

use std::time::{Duration, SystemTime};

/// The longest time between two requests after failures.
const MAX_DELAY: Duration = Duration::from_mins(1);
/// The shortest time between two renewals, whatever lifetime certificates have.
const MIN_RENEWAL: Duration = Duration::from_secs(1);

/// The moment at which a certificate is renewed: when the share `grace` of its lifetime remains, give or take `jitter` times a
/// random number from -1 to 1.
pub(crate) fn renewal(issued: SystemTime, expires: SystemTime, grace: f64, jitter: f64, random: f64) -> SystemTime {
    let lifetime = expires.duration_since(issued).unwrap_or_default();
    let share = (1.0 - grace - jitter * random).clamp(0.0, 1.0);
    issued + lifetime.mul_f64(share).max(MIN_RENEWAL)
}

/// The time until the next request after a number of failures. It doubles from 100 ms, if the failure passes by itself, or from
/// 500 ms, up to a minute, and varies by a half with a random number from -1 to 1.
pub(crate) fn retry(failures: u32, transient: bool, random: f64) -> Duration {
    let first = Duration::from_millis(if transient { 100 } else { 500 });
    let delay = first.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(MAX_DELAY);
    delay.mul_f64(1.0 + random.clamp(-1.0, 1.0) / 2.0)
}

/// A random number from -1 to 1; 0 if there are none.
pub(crate) fn random() -> f64 {
    let mut bytes = [0; 4];
    match aws_lc_rs::rand::fill(&mut bytes) {
        Ok(()) => f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX) * 2.0 - 1.0,
        Err(_) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(hours: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_hours(hours)
    }

    #[test]
    fn certificates_are_renewed_at_half_of_their_lifetime() {
        assert_eq!(renewal(at(10), at(34), 0.5, 0.01, 0.0), at(22));
        assert_eq!(renewal(at(10), at(34), 0.25, 0.0, 1.0), at(28));
        assert_eq!(renewal(at(10), at(10), 0.5, 0.0, 0.0), at(10) + MIN_RENEWAL);
        let late = renewal(at(0), at(100), 0.5, 0.01, -1.0).duration_since(at(51)).unwrap();
        assert!(late < Duration::from_secs(1), "{late:?}");
    }

    #[test]
    fn retries_become_rare() {
        let delays = [1, 2, 3, 20].map(|failures| retry(failures, true, 0.0).as_millis());
        assert_eq!(delays, [100, 200, 400, 60_000]);
        assert_eq!(retry(1, false, 1.0), Duration::from_millis(750));
    }

    proptest! {
        #[test]
        fn times_are_in_bounds(grace in 0.0..=1.0, jitter in 0.0..=1.0, random in -1.0..=1.0, hours in 0..100_000u64, failures: u32) {
            let renewed = renewal(at(0), at(hours), grace, jitter, random);
            prop_assert!(renewed >= at(0) + MIN_RENEWAL && renewed <= at(hours).max(at(0) + MIN_RENEWAL));
            let delay = retry(failures, false, random);
            prop_assert!(delay >= Duration::from_millis(250) && delay <= MAX_DELAY.mul_f64(1.5));
            prop_assert!((-1.0..=1.0).contains(&super::random()));
        }
    }
}
