//! Rules that encode clusters, endpoints, listeners and routes for Envoy
