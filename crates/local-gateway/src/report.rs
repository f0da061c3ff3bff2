//! Logs whether Gateways are programmed, and what can be done.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::fleet::Fleet;
use crate::gateway::{Id, programmed};

impl Fleet {
    /// The Gateways with ports of this one.
    fn others(&self, id: &Id) -> String {
        let ports = |id: &Id| {
            let [of_sets, _] = self.sets.of(id);
            self.gateways.get(id).map_or_else(BTreeSet::new, |known| &known.gateway.ports | &of_sets)
        };
        let own = ports(id);
        let shares = |other: &&Id| *other != id && !own.is_disjoint(&ports(other));
        self.gateways.keys().filter(shares).map(|other| format!(" {other}")).collect()
    }

    /// Logs whether the control plane reports that the proxy has the configuration.
    pub(crate) fn report(&mut self, id: &Id, object: &Value) {
        let now = programmed(object);
        let Some(known) = self.gateways.get_mut(id).filter(|known| known.programmed != now) else { return };
        known.programmed.clone_from(&now);
        match now {
            // So it is until its Envoy has connected.
            Some((false, why)) if why.starts_with("NoResources") => tracing::debug!(gateway = %id, "{why}"),
            Some((true, _)) => tracing::info!(gateway = %id, "the Gateway is programmed"),
            Some((false, why)) => {
                let others = self.others(id);
                tracing::warn!(gateway = %id, "the Gateway is not programmed: {}{}", why, remedy(&why, &others));
            }
            None => {}
        }
    }
}

/// Advice for an error of Envoy. `others` are the Gateways with ports of this one.
fn remedy(why: &str, others: &str) -> String {
    if why.contains("Permission denied") {
        " (ports below 1024 need rights: run as root, or `setcap cap_net_bind_service=+ep` the Envoy program, or lower the sysctl \
         net.ipv4.ip_unprivileged_port_start)"
            .to_owned()
    } else if why.contains("Address already in use") {
        let owner = if others.is_empty() { "another process has the port" } else { "other Gateways have its ports:" };
        format!(" ({owner}{others}; give the Gateways different ports, or different IP addresses in spec.addresses)")
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_envoy_have_remedies() {
        assert!(remedy("cannot bind '0.0.0.0:80': Permission denied", "").contains("setcap"));
        let used = remedy("cannot bind '0.0.0.0:80': Address already in use", " shop/edge");
        assert!(used.contains("shop/edge") && used.contains("spec.addresses"), "{used}");
        assert_eq!(remedy("no connected proxy serves the Gateway", ""), "");
    }
}
