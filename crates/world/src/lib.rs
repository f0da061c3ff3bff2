//! All rules as one graph: commit, snapshot, recompute
