//! The xDS relay between Envoy or a gRPC application and the control plane.
