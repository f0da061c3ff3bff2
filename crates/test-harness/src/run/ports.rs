//! Chooses free ports for other processes.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// The range of ports. It is below the range of ephemeral ports, so that no outgoing connection takes the port between
/// its choice and its use.
const RANGE: std::ops::Range<u16> = 16_000..32_000;

/// A port that is free and that this process has not chosen before.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let size = RANGE.end - RANGE.start;
    // Concurrent processes start at different ports.
    let begin = (std::process::id().wrapping_mul(2_654_435_761) >> 16) as u16;
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = RANGE.start + begin.wrapping_add(step) % size;
        if TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() {
            return port;
        }
    }
}
