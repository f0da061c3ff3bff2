//! The network edge: discovery over HTTP/2, readiness, metrics, debug
