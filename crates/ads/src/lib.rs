//! The aggregated discovery protocol as a pure machine: subscriptions, nonces, ordering
