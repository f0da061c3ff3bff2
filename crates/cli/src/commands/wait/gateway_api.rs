//! The state of objects of the Gateway API relative to a goal. Their statuses have no counts of proxies; routes have
//! conditions for each parent.

use serde_json::Value as Json;

use super::goal::{self, Goal, State, is_current, pending};

/// The group of these kinds.
const GROUP: &str = "gateway.networking.k8s.io";
/// The kind of InferencePools.
const POOL: &str = "InferencePool";

/// Whether the kinds of a group have such statuses.
pub(crate) fn has(group: &str) -> bool {
    group == GROUP || group == "inference.networking.k8s.io"
}

/// The state of an existing object.
pub(super) fn judge(goal: &Goal, kind: &str, object: &Json) -> State {
    let (condition, status) = match goal {
        Goal::Condition { kind, status } => (kind.as_str(), status.as_str()),
        Goal::Proxies(_) if matches!(kind, "GatewayClass" | "XMesh" | POOL) || kind.ends_with("Policy") => {
            ("Accepted", "True")
        }
        Goal::Proxies(_) => ("Programmed", "True"),
        _ => return goal::judge(goal, object),
    };
    let wanted = Wanted { condition, status, object };
    let states = match kind {
        kind if kind.ends_with("Route") => of_parents(&wanted),
        kind if kind.ends_with("Policy") => of_gateways(&wanted, ("ancestors", "ancestorRef")),
        POOL => of_gateways(&wanted, ("parents", "parentRef")),
        _ => vec![wanted.judge("", &object["status"]["conditions"])],
    };
    worst(states)
}

/// The states at the parents of a route.
fn of_parents(wanted: &Wanted<'_>) -> Vec<State> {
    let list = |value: &Json| value.as_array().cloned().unwrap_or_default();
    let (named, reported) = (list(&wanted.object["spec"]["parentRefs"]), list(&wanted.object["status"]["parents"]));
    if named.is_empty() {
        return vec![State::Failed("it has no parentRefs, and so no effect".to_owned())];
    }
    let state = |parent: &Json| {
        let name = parent["name"].as_str().unwrap_or_default();
        match reported.iter().find(|one| is_same(parent, &one["parentRef"])) {
            Some(found) => wanted.judge(&format!("parent {name}: "), &found["conditions"]),
            None => pending(format!("parent {name}: no controller has reported on it yet")),
        }
    };
    named.iter().map(state).collect()
}

/// The states at the Gateways of a policy or pool, in this list with this reference.
fn of_gateways(wanted: &Wanted<'_>, (list, reference): (&str, &str)) -> Vec<State> {
    let reported = wanted.object["status"][list].as_array().cloned().unwrap_or_default();
    if reported.is_empty() {
        let what = if list == "parents" { "it" } else { "its targets" };
        return vec![pending(format!("no Gateway sends requests to {what} yet"))];
    }
    let state = |entry: &Json| {
        let name = entry[reference]["name"].as_str().unwrap_or_default();
        wanted.judge(&format!("Gateway {name}: "), &entry["conditions"])
    };
    reported.iter().map(state).collect()
}

/// Whether two references mean the same. Those in statuses have the defaults.
fn is_same(one: &Json, other: &Json) -> bool {
    let same = |(field, default): (&str, Json)| {
        let value = |reference: &Json| match &reference[field] {
            Json::Null => default.clone(),
            set => set.clone(),
        };
        value(one) == value(other)
    };
    let fields = [
        ("group", GROUP.into()),
        ("kind", "Gateway".into()),
        ("namespace", Json::Null),
        ("name", Json::Null),
        ("sectionName", Json::Null),
        ("port", Json::Null),
    ];
    fields.into_iter().all(same)
}

/// The state that stands in the way most.
fn worst(states: Vec<State>) -> State {
    let order = |state: &State| match state {
        State::Failed(_) => 0,
        State::Unresolved(_) => 1,
        State::Pending(_) => 2,
        State::Met(_) => 3,
    };
    states.into_iter().min_by_key(order).unwrap_or_else(|| State::Met("condition met".to_owned()))
}

/// The condition that is waited for.
struct Wanted<'a> {
    condition: &'a str,
    status: &'a str,
    object: &'a Json,
}

impl Wanted<'_> {
    fn judge(&self, label: &str, conditions: &Json) -> State {
        let find = |name: &str| {
            let mut all = conditions.as_array()?.iter();
            all.find(|one| one["type"].as_str().is_some_and(|kind| kind.eq_ignore_ascii_case(name)))
        };
        let message = |found: &Json| format!("{label}{}", found["message"].as_str().unwrap_or_default());
        let is =
            |found: &Json, status: &str| found["status"].as_str().is_some_and(|it| it.eq_ignore_ascii_case(status));
        let Some(found) = find(self.condition) else {
            return pending(format!("{label}has no condition {} yet", self.condition));
        };
        if !is_current(&found["observedGeneration"], self.object) {
            return pending(format!("{label}{} is for an earlier generation", self.condition));
        }
        let asks_for_effect =
            self.condition.eq_ignore_ascii_case("Programmed") && self.status.eq_ignore_ascii_case("True");
        if is(found, self.status) {
            let partly = find("PartiallyInvalid").filter(|one| asks_for_effect && is(one, "True"));
            let unresolved = find("ResolvedRefs").filter(|one| asks_for_effect && is(one, "False"));
            return match (partly, unresolved) {
                (Some(partly), _) => State::Failed(message(partly)),
                (None, Some(unresolved)) => State::Unresolved(message(unresolved)),
                (None, None) => State::Met("condition met".to_owned()),
            };
        }
        if !self.status.eq_ignore_ascii_case("True") {
            return pending(message(found));
        }
        let refused = find("Accepted").filter(|one| is(one, "False"));
        match (refused, found["reason"].as_str()) {
            // Validation refuses it, which only a change of the object can mend.
            (Some(refused), _) if refused["reason"] == "Invalid" => State::Failed(message(refused)),
            // Another object may mend it.
            (Some(refused), _) => State::Unresolved(message(refused)),
            // A proxy rejects it, or a part of it is not implemented.
            (None, Some("Invalid" | goal::NOT_IMPLEMENTED)) => State::Failed(message(found)),
            _ => pending(message(found)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn condition(kind: &str, status: &str, reason: &str) -> Json {
        json!({"type": kind, "status": status, "reason": reason, "message": reason, "observedGeneration": 2})
    }

    fn gateway(conditions: &[Json]) -> Json {
        json!({"metadata": {"generation": 2}, "status": {"conditions": conditions}})
    }

    fn programmed() -> Goal {
        Goal::parse("condition=Programmed").unwrap()
    }

    #[test]
    fn a_gateway_is_ready_when_it_is_programmed() {
        let accepted = condition("Accepted", "True", "Accepted");
        let judged = |last: Json| judge(&programmed(), "Gateway", &gateway(&[accepted.clone(), last]));
        assert!(matches!(judged(condition("Programmed", "True", "Programmed")), State::Met(_)));
        assert!(matches!(judged(condition("Programmed", "False", "NoResources")), State::Pending(_)));
        assert!(matches!(judged(condition("Programmed", "Unknown", "Pending")), State::Pending(_)));
        assert!(matches!(judged(condition("Programmed", "False", "Invalid")), State::Failed(_)));
        assert!(matches!(judged(condition("ResolvedRefs", "True", "ResolvedRefs")), State::Pending(_)));
        let refused =
            [condition("Accepted", "False", "ListenersNotValid"), condition("Programmed", "False", "Invalid")];
        assert_eq!(
            judge(&Goal::Proxies(100.0), "Gateway", &gateway(&refused)),
            State::Unresolved("ListenersNotValid".into())
        );
        assert!(matches!(judge(&Goal::Proxies(100.0), "GatewayClass", &gateway(&[accepted])), State::Met(_)));
    }

    #[test]
    fn every_parent_of_a_route_counts() {
        let parent = |name: &str, conditions: &[Json]| {
            let reference = json!({"group": GROUP, "kind": "Gateway", "name": name});
            json!({"parentRef": reference, "conditions": conditions})
        };
        let good = [condition("Accepted", "True", "Accepted"), condition("Programmed", "True", "Programmed")];
        let refused =
            [condition("Accepted", "False", "NotAllowedByListeners"), condition("Programmed", "False", "Invalid")];
        let route = |parents: &[Json]| {
            json!({
                "metadata": {"generation": 2},
                "spec": {"parentRefs": [{"name": "a"}, {"name": "b"}]},
                "status": {"parents": parents},
            })
        };
        let judged = |parents: &[Json]| judge(&programmed(), "HTTPRoute", &route(parents));
        assert!(matches!(judged(&[parent("b", &good), parent("a", &good)]), State::Met(_)));
        assert!(matches!(judged(&[parent("a", &good)]), State::Pending(_)));
        let unresolved = State::Unresolved("parent b: NotAllowedByListeners".into());
        assert_eq!(judged(&[parent("a", &good), parent("b", &refused)]), unresolved);
        let partly = [&good[..], &[condition("PartiallyInvalid", "True", "UnsupportedValue")]].concat();
        assert!(matches!(judged(&[parent("a", &good), parent("b", &partly)]), State::Failed(_)));
        let none = json!({"metadata": {}, "spec": {}});
        assert!(matches!(judge(&programmed(), "HTTPRoute", &none), State::Failed(_)));
    }
}
