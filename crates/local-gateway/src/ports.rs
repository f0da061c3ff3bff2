//! The ports of listeners.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::gateway::{Id, condition_of};

/// The names and ports of the listeners of a Gateway or ListenerSet.
pub(crate) fn listeners(object: &Value) -> impl Iterator<Item = (&Value, u16)> {
    let all = object["spec"]["listeners"].as_array().into_iter().flatten();
    all.filter_map(|one| Some((&one["name"], one["port"].as_u64()?.try_into().ok()?)))
}

/// The ports of listeners that the proxy acknowledged, according to the status of a Gateway or ListenerSet.
pub(crate) fn programmed_ports(object: &Value) -> BTreeSet<u16> {
    let is_open = |name: &Value| {
        let statuses = object["status"]["listeners"].as_array().into_iter().flatten();
        let Some(status) = statuses.into_iter().find(|one| one["name"] == *name) else { return false };
        // An older status is about an earlier specification.
        let is_new = |one: &&Value| one["observedGeneration"] == object["metadata"]["generation"];
        let is_programmed = condition_of(status).filter(is_new).is_some_and(|one| one["status"] == "True");
        // Without routes, the proxy has no port for TCP and TLS.
        let all = object["spec"]["listeners"].as_array().into_iter().flatten();
        let mut protocols = all.filter(|one| one["name"] == *name).map(|one| &one["protocol"]);
        let is_http = protocols.any(|protocol| protocol == "HTTP" || protocol == "HTTPS");
        is_programmed && (is_http || status["attachedRoutes"].as_u64() > Some(0))
    };
    listeners(object).filter(|(name, _)| is_open(name)).map(|(_, port)| port).collect()
}

/// ListenerSets, whose listeners are on the proxies of Gateways.
#[derive(Debug, Default)]
pub(crate) struct Sets(BTreeMap<Id, Set>);

#[derive(Debug)]
struct Set {
    gateway: Id,
    ports: BTreeSet<u16>,
    programmed: BTreeSet<u16>,
}

impl Sets {
    /// Sees a ListenerSet, and returns its Gateway.
    pub(crate) fn see(&mut self, object: &Value, there: bool) -> Id {
        let (id, parent) = (Id::of(object), &object["spec"]["parentRef"]);
        let namespace = parent["namespace"].as_str().unwrap_or(&id.namespace).to_owned();
        let gateway = Id { namespace, name: parent["name"].as_str().unwrap_or_default().to_owned() };
        match there {
            true => {
                let ports = listeners(object).map(|(_, port)| port).collect();
                let set = Set { gateway: gateway.clone(), ports, programmed: programmed_ports(object) };
                self.0.insert(id, set);
            }
            false => drop(self.0.remove(&id)),
        }
        gateway
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// The ports of the sets of a Gateway, and those that the proxy acknowledged.
    pub(crate) fn of(&self, gateway: &Id) -> [BTreeSet<u16>; 2] {
        let sets = || self.0.values().filter(|set| set.gateway == *gateway);
        [
            sets().flat_map(|set| &set.ports).copied().collect(),
            sets().flat_map(|set| &set.programmed).copied().collect(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn acknowledged_ports_are_those_of_the_newest_status() {
        let status = |name: &str, status: &str, generation: u8| {
            let condition = json!({"type": "Programmed", "status": status, "observedGeneration": generation});
            json!({"name": name, "conditions": [condition]})
        };
        let object = json!({
            "metadata": {"generation": 2},
            "spec": {"listeners": [
                {"name": "a", "port": 80, "protocol": "HTTP"}, {"name": "b", "port": 81, "protocol": "HTTP"},
                {"name": "c", "port": 82, "protocol": "HTTP"}, {"name": "d", "port": 83, "protocol": "TCP"},
            ]},
            "status": {"listeners": [status("a", "True", 2), status("b", "False", 2), status("c", "True", 1), status("d", "True", 2)]},
        });
        assert_eq!(programmed_ports(&object), BTreeSet::from([80]));
        assert_eq!(
            listeners(&object).map(|(_, port)| port).collect::<BTreeSet<u16>>(),
            BTreeSet::from([80, 81, 82, 83])
        );

        let mut set = object;
        set["metadata"] = json!({"generation": 2, "namespace": "shop", "name": "more"});
        set["spec"]["parentRef"] = json!({"name": "edge"});
        let (mut sets, edge) = (Sets::default(), Id { namespace: "shop".to_owned(), name: "edge".to_owned() });
        assert_eq!(sets.see(&set, true), edge);
        assert_eq!(sets.of(&edge), [BTreeSet::from([80, 81, 82, 83]), BTreeSet::from([80])]);
        sets.see(&set, false);
        assert_eq!(sets.of(&edge), [BTreeSet::new(), BTreeSet::new()]);
    }
}
