//! Names that Envoy does not look up itself.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, PoisonError};

/// The addresses of names. Each name is looked up until it has one, and not again: another answer would restart Envoy.
#[derive(Default)]
pub(crate) struct Lookups(Mutex<BTreeMap<Arc<str>, SocketAddr>>);

impl Lookups {
    /// Replaces the name in `HOST:PORT` by its address, an IPv4 address if it has one. Keeps what is not found, which the
    /// bootstrap reports.
    pub(crate) fn resolve(&self, address: &mut Arc<str>) {
        let is_literal = address.parse::<SocketAddr>().is_ok();
        // The node's address, which the bootstrap knows.
        if address.is_empty() || is_literal || address.starts_with("$(") {
            return;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains_key(address) {
            let found: Vec<SocketAddr> = address.to_socket_addrs().into_iter().flatten().collect();
            let first = found.iter().find(|one| one.is_ipv4()).or(found.first());
            known.extend(first.map(|first| (address.clone(), *first)));
        }
        if let Some(found) = known.get(address) {
            *address = found.to_string().into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_and_other_texts_stay() {
        let lookups = Lookups::default();
        for (text, expected) in [
            ("localhost:8125", "127.0.0.1:8125"),
            ("10.0.0.8:8125", "10.0.0.8:8125"),
            ("[::1]:8125", "[::1]:8125"),
            ("$(HOST_IP):8125", "$(HOST_IP):8125"),
            ("localhost", "localhost"),
            ("localhost:http", "localhost:http"),
            ("", ""),
        ] {
            let mut address = Arc::from(text);
            lookups.resolve(&mut address);
            assert_eq!(&*address, expected, "{text:?}");
        }
    }
}
