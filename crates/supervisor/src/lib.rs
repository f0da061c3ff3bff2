//! Runs Envoy: start, restart with backoff, drain and termination.
