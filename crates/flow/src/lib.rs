//! The incremental engine: keyed tables, pure rules, exact deltas. Knows nothing of meshes
