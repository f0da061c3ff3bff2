//! Limits for clients, and the longest waits.

use std::sync::Arc;

use crate::Moment;

/// Limits for clients, and settings of the hub.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes in one request.
    pub request_bytes: usize,
    /// Names in one request and in one subscription.
    pub names: usize,
    /// Bytes in one name, version or nonce.
    pub name_bytes: usize,
    /// Bytes in a node message.
    pub node_bytes: usize,
    /// Bytes of a client's error that are kept.
    pub error_bytes: usize,
    /// Unserved types that are recorded for each stream, for debug output.
    pub unserved_types: usize,
    /// Requests per second that do more than ACK or NACK. Those are bounded by the responses sent.
    pub requests_per_second: u32,
    /// The burst of such requests. Envoy subscribes to each credential of a gateway in a request of its own.
    pub request_burst: u32,
    /// Names per second that a client may subscribe to, unsubscribe from or report to have, in all types together.
    pub names_per_second: u32,
    /// The burst of such names: what a client with all types may send when it reconnects.
    pub name_burst: u32,
    /// Subscriptions per second to all resources of a type, each of which sends all of them.
    pub wildcards_per_second: u32,
    /// The burst of such subscriptions: more than there are types.
    pub wildcard_burst: u32,
    /// Cells that are opened in one step of a request ([`Hub::proceed`](crate::Hub::proceed)).
    pub opened_together: usize,
    /// The cells up to which a request is handled in one piece.
    pub opened_at_once: usize,
    /// Resources of a response that are encoded in one step ([`Hub::next`](crate::Hub::next)).
    pub encoded_together: usize,
    /// Bytes of changes in one response of a type whose changes are divisible
    /// ([`TypeSpec::divisible`](model::xds::TypeSpec)). Changes of other types are sent between two responses.
    pub response_bytes: usize,
    /// Own names of a named type up to which a shared selection may have them, too: clients with other own names share it, but what
    /// is hidden is looked for with each change.
    pub hidden_names: usize,
    /// The longest time for which changes wait for the types that they need (routes for clusters), and removals for the types
    /// that may use them.
    pub hold: Moment,
    /// The time after which a client is sent a quarantined resource again; it doubles with each rejection. `None`: rejected
    /// resources are not quarantined.
    pub quarantine: Option<Moment>,
    /// Resources of a rejected response up to which what the client rejects is searched for among all of them. In a longer response,
    /// only those that the client's error names are suspected, since a search costs by the number of suspects.
    pub suspects: usize,
    /// Tombstones that a ledger keeps for its slowest stream, in addition to as many as it has resources.
    pub removed_names: usize,
    /// The time for which a response is cached for other streams. An unused one is dropped after twice this time at most: the
    /// initial configuration of an audience is as large as its mesh.
    pub idle_responses: Moment,
    /// The control plane's identifier in responses.
    pub identifier: Arc<str>,
}

impl Limits {
    /// Limits for clients with requests of this size and this number of names. A client with all types sends several
    /// times as many names when it reconnects, and may send a fifth of them in requests of their own; SotW repeats all names
    /// in each of these.
    pub fn sized(request_bytes: usize, names: usize) -> Limits {
        let least = Limits::default();
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Limits {
            request_bytes,
            names,
            name_burst: least.name_burst.max(number(names.saturating_mul(20))),
            request_burst: least.request_burst.max(number(names / 5)),
            ..least
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            request_bytes: 64 << 20,
            names: 100_000,
            name_bytes: 2048,
            node_bytes: 512 << 10,
            error_bytes: 1024,
            unserved_types: 32,
            requests_per_second: 100,
            request_burst: 20_000,
            names_per_second: 10_000,
            name_burst: 2_000_000,
            wildcards_per_second: 1,
            wildcard_burst: 32,
            opened_together: 128,
            opened_at_once: 256,
            encoded_together: 4096,
            response_bytes: 256 << 10,
            hidden_names: 64,
            hold: Moment::from_secs(5),
            quarantine: Some(Moment::from_secs(60)),
            suspects: 12_288,
            removed_names: 4096,
            idle_responses: Moment::from_secs(5),
            identifier: "rutter".into(),
        }
    }
}
