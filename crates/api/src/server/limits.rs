//! Limits for clients.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Limits of a server.
#[derive(Clone, Debug)]
pub struct ServerLimits {
    /// Limits of the connections of a listener.
    pub connections: listeners::Limits,
    /// Maximum number of concurrent streams of an HTTP/2 connection.
    pub streams: u32,
    /// Maximum number of concurrent requests, without watches. Administrators have a tenth in addition.
    pub requests: usize,
    /// Maximum number of concurrent requests of a user, without watches.
    pub requests_per_user: usize,
    /// Maximum time that a request waits for a place.
    pub place_within: Duration,
    /// Average number of requests per second and client.
    pub rate: f64,
    /// Maximum burst of requests of a client.
    pub burst: f64,
    /// Maximum total size of headers, in bytes.
    pub header_bytes: usize,
    /// Maximum number of headers.
    pub headers: usize,
    /// Maximum time to receive headers.
    pub headers_within: Duration,
    /// Maximum time to receive a body.
    pub body_within: Duration,
}

impl Default for ServerLimits {
    fn default() -> ServerLimits {
        ServerLimits {
            connections: listeners::Limits::default(),
            streams: 1000,
            requests: 1000,
            requests_per_user: 64,
            place_within: Duration::from_secs(5),
            rate: 5000.0,
            burst: 10_000.0,
            header_bytes: 64 * 1024,
            headers: 100,
            headers_within: Duration::from_secs(10),
            body_within: Duration::from_secs(30),
        }
    }
}

/// Maximum number of tracked clients; the least recently active are dropped first.
const CLIENTS: usize = 10_000;

/// A token bucket for each client.
pub(super) struct Buckets {
    rate: f64,
    burst: f64,
    clients: Mutex<HashMap<(String, IpAddr), Bucket>>,
}

#[derive(Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Buckets {
    pub(super) fn new(rate: f64, burst: f64) -> Buckets {
        Buckets { rate, burst, clients: Mutex::default() }
    }

    /// Takes a token, or returns the number of seconds until one is available.
    pub(super) fn take(&self, user: &str, ip: IpAddr, now: Instant) -> Result<(), u32> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if clients.len() >= CLIENTS {
            // A full bucket needs no tracking.
            clients.retain(|_, bucket| self.filled(bucket, now) < self.burst);
            if clients.len() >= CLIENTS {
                let oldest = clients.iter().min_by_key(|(_, bucket)| bucket.at).map(|(client, _)| client.clone());
                oldest.map(|client| clients.remove(&client));
            }
        }
        let full = Bucket { tokens: self.burst, at: now };
        let bucket = clients.entry((user.to_owned(), ip)).or_insert(full);
        bucket.tokens = self.filled(bucket, now);
        bucket.at = now;
        if bucket.tokens >= 1.0 {
            bucket.tokens -= 1.0;
            return Ok(());
        }
        // At least one second, even for very low rates.
        Err(((1.0 - bucket.tokens) / self.rate).ceil().clamp(1.0, 3600.0) as u32)
    }

    fn filled(&self, bucket: &Bucket, now: Instant) -> f64 {
        let since = now.saturating_duration_since(bucket.at).as_secs_f64();
        (bucket.tokens + since * self.rate).min(self.burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excess_requests_wait() {
        let buckets = Buckets::new(0.5, 2.0);
        let (ip, start) = (IpAddr::from([127, 0, 0, 1]), Instant::now());
        assert_eq!(buckets.take("a", ip, start), Ok(()));
        assert_eq!(buckets.take("a", ip, start), Ok(()));
        assert_eq!(buckets.take("a", ip, start), Err(2));
        assert_eq!(buckets.take("b", ip, start), Ok(()), "others do not wait");
        assert_eq!(buckets.take("a", ip, start + Duration::from_secs(2)), Ok(()));
        assert_eq!(buckets.take("a", ip, start + Duration::from_secs(2)), Err(2));
    }

    #[test]
    fn many_clients_are_not_all_remembered() {
        let buckets = Buckets::new(1.0, 1.0);
        let start = Instant::now();
        for n in 0..CLIENTS as u32 + 50 {
            assert_eq!(buckets.take("a", IpAddr::from(n.to_be_bytes()), start), Ok(()));
        }
        assert!(buckets.clients.lock().unwrap().len() <= CLIENTS);
    }
}
