//! The agent beside a proxy.

fn main() {}
