//! Load balancing: `loadBalancer` of a DestinationRule.

use config::istio::{ConsistentHash, HashAlgorithm, LbPolicy, LoadBalancerSettings, SimpleLb};
use protos::envoy::config::cluster::v3::cluster::{
    LbConfig, LbPolicy as Algorithm, LeastRequestLbConfig, MaglevLbConfig, RingHashLbConfig, RoundRobinLbConfig,
    SlowStartConfig,
};
use protos::envoy::config::core::v3::RuntimeDouble;
use protos::envoy::r#type::v3::Percent;

use super::draft::Draft;
use crate::parts::duration;

/// The default ring size.
const RING_SIZE: u64 = 1024;
/// The maximum ring size in Envoy.
const MAX_RING_SIZE: u64 = 8 * 1024 * 1024;
/// The maximum table size in Envoy.
const MAX_TABLE_SIZE: u64 = 5_000_011;
/// The default share of traffic that a new endpoint starts with, in percent.
const WARMUP_PERCENT: f64 = 10.0;
/// A runtime key, which Envoy requires for the slope.
const WARMUP_RUNTIME_KEY: &str = "rutter.warmup.aggression";

/// Sets the algorithm. The default is least requests, which adapts to slow endpoints.
pub(crate) fn apply(draft: &mut Draft, settings: Option<&LoadBalancerSettings>) {
    let policy = settings.and_then(|settings| settings.policy.as_ref());
    let simple = match policy {
        Some(LbPolicy::ConsistentHash(hash)) => return apply_hash(draft, hash),
        Some(LbPolicy::Simple(simple)) => *simple,
        Some(LbPolicy::BackendUtilization(_)) | None => SimpleLb::Unspecified,
    };
    let slow_start = settings.and_then(slow_start);
    let (algorithm, config) = match simple {
        SimpleLb::Passthrough => return draft.set_original_destination(),
        SimpleLb::Random => (Algorithm::Random, None),
        SimpleLb::RoundRobin => {
            let config = |slow| LbConfig::RoundRobinLbConfig(RoundRobinLbConfig { slow_start_config: Some(slow) });
            (Algorithm::RoundRobin, slow_start.map(config))
        }
        SimpleLb::Unspecified | SimpleLb::LeastConn | SimpleLb::LeastRequest => {
            let config = |slow| LeastRequestLbConfig { slow_start_config: Some(slow), ..Default::default() };
            (Algorithm::LeastRequest, slow_start.map(config).map(LbConfig::LeastRequestLbConfig))
        }
    };
    draft.cluster.lb_policy = algorithm.into();
    draft.cluster.lb_config = config;
}

/// Whether connections keep their original destination (PASSTHROUGH).
pub(crate) fn sni_passthrough(settings: Option<&LoadBalancerSettings>) -> bool {
    let policy = settings.and_then(|settings| settings.policy.as_ref());
    matches!(policy, Some(LbPolicy::Simple(SimpleLb::Passthrough)))
}

fn apply_hash(draft: &mut Draft, hash: &ConsistentHash) {
    let ring = |size: u64| {
        let minimum_ring_size = Some(size.min(MAX_RING_SIZE));
        LbConfig::RingHashLbConfig(RingHashLbConfig { minimum_ring_size, ..Default::default() })
    };
    let (algorithm, config) = match &hash.algorithm {
        Some(HashAlgorithm::Maglev(table)) => {
            let size = Some(table.table_size).filter(|size| *size <= MAX_TABLE_SIZE && is_prime(*size));
            let config = |size| LbConfig::MaglevLbConfig(MaglevLbConfig { table_size: Some(size) });
            (Algorithm::Maglev, size.map(config))
        }
        Some(HashAlgorithm::RingHash(settings)) => {
            (Algorithm::RingHash, Some(settings.minimum_ring_size).filter(|size| *size > 0).map(ring))
        }
        None if hash.minimum_ring_size > 0 => (Algorithm::RingHash, Some(ring(hash.minimum_ring_size))),
        None => (Algorithm::RingHash, Some(ring(RING_SIZE))),
    };
    draft.cluster.lb_policy = algorithm.into();
    draft.cluster.lb_config = config;
}

/// How a new endpoint receives its share gradually.
fn slow_start(settings: &LoadBalancerSettings) -> Option<SlowStartConfig> {
    if let Some(warmup) = &settings.warmup {
        let aggression = warmup.aggression.filter(|a| *a > 0.0).unwrap_or(1.0);
        return Some(SlowStartConfig {
            slow_start_window: warmup.duration.map(duration),
            aggression: Some(RuntimeDouble { default_value: aggression, runtime_key: WARMUP_RUNTIME_KEY.to_owned() }),
            min_weight_percent: Some(Percent {
                value: warmup.minimum_percent.unwrap_or(WARMUP_PERCENT).clamp(0.0, 100.0),
            }),
        });
    }
    let window = settings.warmup_duration_secs?;
    Some(SlowStartConfig { slow_start_window: Some(duration(window)), ..Default::default() })
}

/// Whether a number is prime: Envoy rejects tables of other sizes.
fn is_prime(n: u64) -> bool {
    n >= 2 && (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d))
}

#[cfg(test)]
mod tests {
    use super::is_prime;

    #[test]
    fn primes() {
        assert_eq!((0..30).filter(|n| is_prime(*n)).collect::<Vec<_>>(), [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]);
        assert!(is_prime(65_537) && is_prime(5_000_011) && !is_prime(65_536));
    }
}
