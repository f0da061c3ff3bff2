//! A small DNS server over UDP, with addresses that can change.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use super::Result;

/// The TTL of answers, in seconds: the smallest that still allows caching, so that changes are seen soon.
const TTL: u32 = 1;
/// The record type A and the class IN share this value.
const A: [u8; 2] = [0, 1];
/// The maximum size of a query.
const LONGEST: usize = 512;

/// A running server. Unknown names do not exist (NXDOMAIN); known names have only IPv4 addresses.
#[derive(Debug)]
pub struct Dns {
    address: SocketAddr,
    zone: Arc<Mutex<Zone>>,
    server: JoinHandle<()>,
}

#[derive(Default, Debug)]
struct Zone {
    names: BTreeMap<String, Vec<Ipv4Addr>>,
    asked: BTreeMap<String, u64>,
}

impl Dns {
    /// Starts a server on a free loopback port.
    pub async fn start() -> Result<Dns> {
        Dns::start_at(([127, 0, 0, 1], 0).into()).await
    }

    /// Starts a server at this address.
    pub async fn start_at(address: SocketAddr) -> Result<Dns> {
        let socket = UdpSocket::bind(address).await?;
        let address = socket.local_addr()?;
        let zone = Arc::new(Mutex::new(Zone::default()));
        let server = tokio::spawn(serve(socket, Arc::clone(&zone)));
        Ok(Dns { address, zone, server })
    }

    /// The address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the addresses of a name.
    pub fn set(&self, name: &str, addresses: &[Ipv4Addr]) {
        lock(&self.zone).names.insert(name.to_owned(), addresses.to_vec());
    }

    /// The number of queries for the addresses of a name.
    pub fn asked(&self, name: &str) -> u64 {
        lock(&self.zone).asked.get(name).copied().unwrap_or(0)
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(socket: UdpSocket, zone: Arc<Mutex<Zone>>) {
    let mut buffer = [0; LONGEST];
    loop {
        let Ok((length, client)) = socket.recv_from(&mut buffer).await else {
            continue;
        };
        let answer = answer(buffer.get(..length).unwrap_or_default(), &mut lock(&zone));
        if let Some(answer) = answer {
            // The client retries if this is lost.
            let _ = socket.send_to(&answer, client).await;
        }
    }
}

/// Answers a query; `None` if the message is invalid.
fn answer(message: &[u8], zone: &mut Zone) -> Option<Vec<u8>> {
    let header = message.get(..12)?;
    let (name, end) = question(message)?;
    let kind = message.get(end..end + 2)?;
    let known = zone.names.get(&name);
    let addresses: &[Ipv4Addr] = match kind == A {
        true => known.map_or(&[], Vec::as_slice),
        false => &[],
    };
    // An authoritative response; NXDOMAIN for unknown names.
    let flags = if known.is_some() { [0x84, 0] } else { [0x84, 3] };
    let count = u16::try_from(addresses.len()).ok()?.to_be_bytes();
    let mut answer = Vec::with_capacity(LONGEST);
    answer.extend_from_slice(&header[..2]);
    answer.extend_from_slice(&flags);
    answer.extend_from_slice(&[0, 1, count[0], count[1], 0, 0, 0, 0]);
    answer.extend_from_slice(message.get(12..end + 4)?);
    for address in addresses {
        // A compression pointer to the name at offset 12.
        answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1]);
        answer.extend_from_slice(&TTL.to_be_bytes());
        answer.extend_from_slice(&[0, 4]);
        answer.extend_from_slice(&address.octets());
    }
    if kind == A {
        *zone.asked.entry(name).or_default() += 1;
    }
    Some(answer)
}

/// The queried name, in lower case, and the offset of its type.
fn question(message: &[u8]) -> Option<(String, usize)> {
    let (mut labels, mut at) = (Vec::new(), 12);
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join("."), at));
        }
        let label = message.get(at..at + length).filter(|_| length < 64)?;
        labels.push(std::str::from_utf8(label).ok()?.to_ascii_lowercase());
        at += length;
    }
}

fn lock(zone: &Mutex<Zone>) -> MutexGuard<'_, Zone> {
    zone.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A query for records of this type (its low byte).
    fn asking(name: &str, kind: u8) -> Vec<u8> {
        let mut message = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            message.push(label.len() as u8);
            message.extend_from_slice(label.as_bytes());
        }
        message.extend_from_slice(&[0, 0, kind, 0, 1]);
        message
    }

    fn zone() -> Zone {
        let names = [("a.example.com".to_owned(), vec![[127, 0, 1, 1].into(), [127, 0, 1, 2].into()])];
        Zone { names: names.into(), ..Zone::default() }
    }

    #[test]
    fn known_names_are_answered_and_counted() {
        let mut zone = zone();
        let known = answer(&asking("A.example.COM", 1), &mut zone).unwrap();
        assert_eq!(known[..8], [7, 9, 0x84, 0, 0, 1, 0, 2]);
        assert!(known.ends_with(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 127, 0, 1, 2]));
        let other_family = answer(&asking("a.example.com", 28), &mut zone).unwrap();
        assert_eq!(other_family[2..8], [0x84, 0, 0, 1, 0, 0], "the name exists without such records");
        let unknown = answer(&asking("b.example.com", 1), &mut zone).unwrap();
        assert_eq!(unknown[2..8], [0x84, 3, 0, 1, 0, 0]);
        assert_eq!(zone.asked["a.example.com"], 1);
    }

    #[test]
    fn truncated_queries_are_not_answered() {
        let (whole, mut zone) = (asking("a.example.com", 1), zone());
        for length in 0..whole.len() {
            assert_eq!(answer(&whole[..length], &mut zone), None, "{length}");
        }
    }
}
