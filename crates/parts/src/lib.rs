//! Real test and demo parts (Envoy), pinned by version and checksum
