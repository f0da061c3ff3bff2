//! What a client may ask for, and how long one step of an update may wait for another.

use std::sync::Arc;

use crate::Moment;

/// Bounds of what clients may send, and settings of the machine.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Names in one request and in one subscription.
    pub names: usize,
    /// Bytes in one name, version or nonce.
    pub name_bytes: usize,
    /// Bytes in a node message.
    pub node_bytes: usize,
    /// Bytes that are kept of a client's error text.
    pub error_bytes: usize,
    /// Types that are not served which are remembered for each stream, for debug output.
    pub unserved_types: usize,
    /// Requests a second that are no plain acknowledgements. Acknowledgements are bounded by what is sent.
    pub requests_per_second: u32,
    /// How many such requests may come at once.
    pub request_burst: u32,
    /// How long routes and listeners wait for the clusters and endpoints they may need, and the removal of clusters for
    /// routes and listeners, before they go ahead anyway.
    pub hold: Moment,
    /// How many removed names a ledger remembers for its slowest stream, beyond as many as it holds.
    pub removed_names: usize,
    /// How long a response is kept for others who need the same one. After twice as long at most, one that nobody has got
    /// is forgotten: the first configuration of an audience is as large as its mesh.
    pub idle_responses: Moment,
    /// What the control plane calls itself in responses.
    pub identifier: Arc<str>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            names: 100_000,
            name_bytes: 2048,
            node_bytes: 512 << 10,
            error_bytes: 1024,
            unserved_types: 32,
            requests_per_second: 100,
            request_burst: 1000,
            hold: Moment::from_secs(5),
            removed_names: 4096,
            idle_responses: Moment::from_secs(5),
            identifier: "rutter".into(),
        }
    }
}
