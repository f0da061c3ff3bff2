//! The control plane binary and its command line.

fn main() {}
