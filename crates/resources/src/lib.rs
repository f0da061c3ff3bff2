//! What users write: Istio, Kubernetes and mesh kinds, parsed into values and diagnostics
