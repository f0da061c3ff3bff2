//! The workload's identity: keys, certificate requests, rotation, trust roots, files, and the SDS server.
