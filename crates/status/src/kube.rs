//! The form of the Gateway API's statuses: conditions of the object, of its listeners or for each of a route's
//! `parentRefs`, and other fields.

use std::collections::{BTreeMap, BTreeSet};

use config::gateway_api::reference::ParentReference;
use config::{Kind, Timestamp};
use model::standing::{
    CONTROLLERS, Fact, ListenerStanding, MESH_CONTROLLERS, ParentStanding, Standing, StandingBody, condition,
};
use serde_json::{Map, Value, json};

use crate::status::{Condition, Truth};
use crate::subject::Verdict;

/// The group of the kinds of routes.
const GROUP: &str = "gateway.networking.k8s.io";

/// The reason of routes with values that are not supported.
const UNSUPPORTED_VALUE: &str = "UnsupportedValue";

/// The field of a Gateway with the number of its ListenerSets.
const SETS: &str = "attachedListenerSets";

/// The forms of statuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Class,
    Gateway,
    ListenerSet,
    Route,
    Policy,
    Pool,
}

/// The fields with entries for each Gateway: the list, and the reference in an entry.
const ENTRIES: [(&str, &str); 2] = [("parents", "parentRef"), ("ancestors", "ancestorRef")];

/// The form of the statuses of a kind. None for kinds of other APIs, and for those without status yet.
fn form(kind: Kind) -> Option<Form> {
    match kind {
        Kind::GatewayClass | Kind::XMesh => Some(Form::Class),
        Kind::KubeGateway => Some(Form::Gateway),
        Kind::ListenerSet => Some(Form::ListenerSet),
        Kind::HttpRoute | Kind::GrpcRoute | Kind::TlsRoute | Kind::TcpRoute | Kind::UdpRoute => Some(Form::Route),
        Kind::BackendTlsPolicy | Kind::BackendTrafficPolicy => Some(Form::Policy),
        Kind::InferencePool => Some(Form::Pool),
        _ => None,
    }
}

/// Whether the statuses of a kind have the form of the Gateway API.
pub(crate) fn is_kube(kind: Kind) -> bool {
    form(kind).is_some()
}

/// Whether proxies are counted for objects of the kind.
pub(crate) fn is_counted(kind: Kind) -> bool {
    !matches!(form(kind), Some(Form::Class | Form::Policy | Form::Pool))
}

/// The types of the conditions of a whole object that are written.
pub(crate) fn own_conditions(kind: Kind) -> Option<&'static [&'static str]> {
    Some(match form(kind)? {
        Form::Class => &[condition::ACCEPTED],
        Form::Gateway => {
            &[condition::ACCEPTED, condition::PROGRAMMED, condition::RESOLVED, condition::INSECURE_FRONTEND]
        }
        Form::ListenerSet => &[condition::ACCEPTED, condition::PROGRAMMED],
        Form::Route | Form::Policy | Form::Pool => &[],
    })
}

/// The owner of a condition.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Owner {
    Object,
    Listener(String),
    /// By the fields of the reference.
    Parent(String),
}

/// A status of an object of the Gateway API.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KubeStatus {
    /// By owner and type, so that comparing and reading are loops.
    conditions: BTreeMap<(Owner, &'static str), Condition>,
    /// The other fields, in the form of JSON.
    body: Value,
}

/// The conditions of an object that depend on more than its standing.
pub(crate) struct Judgement<'a> {
    pub(crate) verdict: &'a Verdict,
    /// Remarks about an object that a parent accepts: where others have precedence, and what has no effect.
    pub(crate) remarks: String,
    /// The condition `Programmed` as the counts of proxies say.
    pub(crate) programmed: Condition,
    /// A proxy rejects the object, which is worse than what the configuration says.
    pub(crate) is_rejected: bool,
    pub(crate) now: Timestamp,
}

impl KubeStatus {
    pub(crate) fn of(standing: &Standing, judgement: &Judgement<'_>) -> KubeStatus {
        let mut status = KubeStatus { conditions: BTreeMap::new(), body: body(&standing.body) };
        status.add(&Owner::Object, &standing.conditions, judgement);
        if matches!(standing.body, StandingBody::Gateway { .. } | StandingBody::ListenerSet { .. }) {
            status.add_invalid_listeners(judgement);
        }
        match &standing.body {
            StandingBody::Class { .. } => {}
            StandingBody::Gateway { services, listeners, .. } => {
                status.add_programmed(&Owner::Object, &standing.conditions, judgement, &programmed_at(services));
                status.add_listeners(listeners, judgement);
            }
            StandingBody::ListenerSet { listeners } => {
                status.add_programmed(&Owner::Object, &standing.conditions, judgement, &programmed_at(&[]));
                status.add_listeners(listeners, judgement);
            }
            StandingBody::Policy { ancestors: parents } | StandingBody::Pool { parents } => {
                for ParentStanding { parent, conditions, .. } in parents {
                    status.add(&Owner::Parent(parent_key(&parent_json(parent))), conditions, judgement);
                }
            }
            StandingBody::Route { parents } => {
                for ParentStanding { parent, conditions, .. } in parents {
                    let owner = Owner::Parent(parent_key(&parent_json(parent)));
                    status.add(&owner, conditions, judgement);
                    status.add_dropped(&owner, judgement);
                    status.add_programmed(&owner, conditions, judgement, "all proxies that need it run it");
                }
            }
        }
        status
    }

    fn add_listeners(&mut self, listeners: &[ListenerStanding], judgement: &Judgement<'_>) {
        for ListenerStanding { name, conditions, .. } in listeners {
            let owner = Owner::Listener(name.to_string());
            self.add(&owner, conditions, judgement);
            self.add_programmed(&owner, conditions, judgement, "No errors found");
        }
    }

    /// Adds conditions, except `Programmed`. An object that validation refuses is not accepted.
    fn add(&mut self, owner: &Owner, facts: &[Fact], judgement: &Judgement<'_>) {
        for fact in facts.iter().filter(|fact| fact.kind != condition::PROGRAMMED) {
            let is_accepted = fact.kind == condition::ACCEPTED && fact.holds;
            let refused = fact.kind == condition::ACCEPTED && !judgement.verdict.accepted;
            let condition = match (refused, owner) {
                (true, Owner::Object | Owner::Parent(_)) => {
                    let is_route = self.body.get("parents").is_some();
                    let reason = if is_route { UNSUPPORTED_VALUE } else { "Invalid" };
                    Condition::new(Truth::False, reason, &judgement.verdict.message, judgement.now)
                }
                (false, Owner::Parent(_)) if is_accepted && !judgement.remarks.is_empty() => {
                    let message = format!("{}; {}", fact.message, judgement.remarks);
                    of_fact(&Fact { message: message.into(), ..fact.clone() }, judgement.now)
                }
                _ => of_fact(fact, judgement.now),
            };
            self.conditions.insert((owner.clone(), fact.kind), condition);
        }
    }

    /// Adds that parts of an accepted route are left out because of errors.
    fn add_dropped(&mut self, owner: &Owner, judgement: &Judgement<'_>) {
        let of = |kind| (owner.clone(), kind);
        let accepted = self.conditions.get(&of(condition::ACCEPTED)).is_some_and(|one| one.truth == Truth::True);
        let left_out = &judgement.verdict.left_out;
        if left_out.is_empty() || !accepted {
            return;
        }
        // As the specification says, the message begins so.
        let message = match self.conditions.get(&of(condition::PARTIALLY_INVALID)) {
            Some(known) => format!("{}; {left_out}", known.message),
            None => format!("Dropped Rule(s) or fields: {left_out}"),
        };
        let dropped = Condition::new(Truth::True, UNSUPPORTED_VALUE, &message, judgement.now);
        self.conditions.insert(of(condition::PARTIALLY_INVALID), dropped);
    }

    /// Says that listeners are left out because of errors.
    fn add_invalid_listeners(&mut self, judgement: &Judgement<'_>) {
        let left_out = &judgement.verdict.left_out;
        let accepted = self.conditions.get_mut(&(Owner::Object, condition::ACCEPTED));
        if let Some(accepted) = accepted.filter(|one| one.truth == Truth::True && !left_out.is_empty()) {
            *accepted = Condition::new(Truth::True, "ListenersNotValid", left_out, judgement.now);
        }
    }

    /// Adds the condition `Programmed`: as the configuration says if it decides it, else as the counts say.
    fn add_programmed(&mut self, owner: &Owner, facts: &[Fact], judgement: &Judgement<'_>, success: &str) {
        let of = |kind: &str| facts.iter().find(|fact| fact.kind == kind);
        let by_proxies = judgement.is_rejected || !judgement.verdict.accepted;
        let is_refused = matches!(owner, Owner::Parent(_)) && of(condition::ACCEPTED).is_some_and(|fact| !fact.holds);
        let condition = match of(condition::PROGRAMMED) {
            Some(fact) if !by_proxies => of_fact(fact, judgement.now),
            _ if is_refused && judgement.verdict.accepted => {
                Condition::new(Truth::False, "Invalid", "the route is not accepted", judgement.now)
            }
            _ => match judgement.programmed.truth {
                Truth::True => Condition::new(Truth::True, condition::PROGRAMMED, success, judgement.now),
                _ => judgement.programmed.clone(),
            },
        };
        self.conditions.insert((owner.clone(), condition::PROGRAMMED), condition);
    }

    /// Whether there is nothing to write for an object whose stored status has nothing of ours.
    pub(crate) fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// A condition of the whole object, or the worst of its parents. True if there is none.
    pub(crate) fn summary(&self, kind: &str) -> Condition {
        let is_whole = |owner: &Owner| matches!(owner, Owner::Object | Owner::Parent(_));
        let all = self.conditions.iter().filter(|((owner, name), _)| *name == kind && is_whole(owner));
        let order = |truth: Truth| [Truth::False, Truth::Unknown, Truth::True].iter().position(|one| *one == truth);
        let worst = all.map(|(_, condition)| condition).min_by_key(|condition| order(condition.truth));
        worst.cloned().unwrap_or_else(|| Condition::new(Truth::True, kind, "", Timestamp::from_unix(0)))
    }

    /// The types of the conditions that report a problem.
    pub fn problems(&self) -> BTreeSet<&'static str> {
        let is_problem = |kind: &str, truth: Truth| match kind {
            condition::ACCEPTED | condition::RESOLVED => truth == Truth::False,
            condition::CONFLICTED | condition::PARTIALLY_INVALID => truth == Truth::True,
            _ => false,
        };
        let problems = self.conditions.iter().filter(|((_, kind), condition)| is_problem(kind, condition.truth));
        problems.map(|((_, kind), _)| *kind).collect()
    }

    /// Whether both are equal except for timestamps.
    pub(crate) fn says_the_same(&self, other: &KubeStatus) -> bool {
        let conditions = || self.conditions.iter().zip(&other.conditions);
        let same = self.conditions.len() == other.conditions.len()
            && conditions()
                .all(|((place, one), (other_place, other))| place == other_place && one.says_the_same(other));
        same && self.body == other.body
    }

    /// Takes over the times of conditions whose truth is unchanged.
    pub(crate) fn keep_times(&mut self, before: &KubeStatus) {
        for (place, now) in &mut self.conditions {
            if let Some(before) = before.conditions.get(place)
                && before.truth == now.truth
            {
                now.since = before.since;
            }
        }
    }

    /// The JSON form.
    pub(crate) fn to_json(&self, observed: i64) -> Value {
        let conditions = |owner: Owner| -> Value {
            let own = self.conditions.iter().filter(|((of, _), _)| *of == owner);
            own.map(|((_, kind), condition)| condition.to_json(kind, observed)).collect()
        };
        let mut json = self.body.clone();
        if ENTRIES.iter().all(|(list, _)| json.get(*list).is_none()) {
            json["conditions"] = conditions(Owner::Object);
        }
        for listener in items_mut(&mut json, "listeners") {
            listener["conditions"] = conditions(Owner::Listener(text(listener, "name")));
        }
        for (list, reference) in ENTRIES {
            for entry in items_mut(&mut json, list) {
                entry["conditions"] = conditions(Owner::Parent(parent_key(&entry[reference])));
            }
        }
        json
    }

    /// Reads a status, with the least generation that one of its conditions describes. None if it has nothing of ours. Parents
    /// of other controllers are left out.
    pub(crate) fn from_json(kind: Kind, status: &Value) -> Option<(i64, KubeStatus)> {
        let mut read = KubeStatus { conditions: BTreeMap::new(), body: Value::Null };
        let mut observed = i64::MAX;
        let mut body = Map::new();
        match form(kind)? {
            Form::Class => {
                body.insert("supportedFeatures".into(), list(status, "supportedFeatures"));
                read.read(&Owner::Object, status, own_conditions(kind)?, &mut observed);
            }
            form @ (Form::Gateway | Form::ListenerSet) => {
                if form == Form::Gateway {
                    body.insert("addresses".into(), list(status, "addresses"));
                    body.extend(status.get(SETS).map(|sets| (SETS.to_owned(), sets.clone())));
                }
                read.read(&Owner::Object, status, own_conditions(kind)?, &mut observed);
                for listener in items(status, "listeners") {
                    let owner = Owner::Listener(text(listener, "name"));
                    read.read(&owner, listener, &condition::ALL, &mut observed);
                }
                let fields = ["name", "supportedKinds", "attachedRoutes"];
                let listeners = items(status, "listeners").iter().map(|listener| only(listener, &fields));
                body.insert("listeners".into(), listeners.collect());
            }
            form @ (Form::Route | Form::Policy | Form::Pool) => {
                let (list, reference) = ENTRIES[usize::from(form == Form::Policy)];
                // CRDs of InferencePools have the field since version 1.2 of the extension.
                let unnamed = |entry: &Value| form == Form::Pool && entry.get("controllerName").is_none();
                let ours = || items(status, list).iter().filter(|entry| is_ours(entry) || unnamed(entry));
                for entry in ours() {
                    let owner = Owner::Parent(parent_key(&entry[reference]));
                    read.read(&owner, entry, &condition::ALL, &mut observed);
                }
                let entries = ours().map(|entry| only(entry, &[reference, "controllerName"]));
                body.insert(list.into(), entries.collect());
            }
        }
        read.body = Value::Object(body);
        (!read.is_empty()).then_some((observed, read))
    }

    fn read(&mut self, owner: &Owner, from: &Value, kinds: &[&'static str], observed: &mut i64) {
        for one in items(from, "conditions") {
            let kind = kinds.iter().find(|kind| one["type"] == ***kind);
            let (Some(kind), Some(condition)) = (kind, Condition::from_json(one)) else { continue };
            *observed = (*observed).min(one["observedGeneration"].as_i64().unwrap_or_default());
            self.conditions.insert((owner.clone(), *kind), condition);
        }
    }
}

/// Whether an entry of `parents` or `ancestors` was written by a control plane that serves the same classes and meshes.
pub fn is_ours(parent: &Value) -> bool {
    let is_known = |name: &str| CONTROLLERS.contains(&name) || MESH_CONTROLLERS.contains(&name);
    parent["controllerName"].as_str().is_some_and(is_known)
}

fn of_fact(fact: &Fact, now: Timestamp) -> Condition {
    let truth = if fact.holds { Truth::True } else { Truth::False };
    Condition::new(truth, fact.reason, &fact.message, now)
}

/// The message about a Gateway that all proxies run.
fn programmed_at(services: &[std::sync::Arc<str>]) -> String {
    match services {
        [] => "Resource programmed".to_owned(),
        some => format!("Resource programmed, assigned to service(s) {}", some.join(" and ")),
    }
}

/// The fields beside the conditions.
fn body(body: &StandingBody) -> Value {
    match body {
        StandingBody::Class { features } => {
            let features: Vec<Value> = features.iter().map(|name| json!({ "name": name })).collect();
            json!({ "supportedFeatures": features })
        }
        StandingBody::Gateway { addresses, listeners, sets, .. } => {
            let address = |one: &model::standing::StatusAddress| json!({ "type": &*one.kind, "value": &*one.value });
            let addresses: Vec<Value> = addresses.iter().map(address).collect();
            let listeners: Vec<Value> = listeners.iter().map(listener_json).collect();
            let mut json = json!({ "addresses": addresses, "listeners": listeners });
            if let Some(sets) = sets {
                json[SETS] = (*sets).into();
            }
            json
        }
        StandingBody::ListenerSet { listeners } => {
            json!({ "listeners": listeners.iter().map(listener_json).collect::<Vec<_>>() })
        }
        StandingBody::Route { parents } | StandingBody::Pool { parents } => entries(ENTRIES[0], parents),
        StandingBody::Policy { ancestors } => entries(ENTRIES[1], ancestors),
    }
}

fn entries((list, reference): (&str, &str), all: &[ParentStanding]) -> Value {
    let entry = |one: &ParentStanding| json!({ reference: parent_json(&one.parent), "controllerName": one.controller });
    json!({ list: all.iter().map(entry).collect::<Vec<_>>() })
}

fn listener_json(listener: &ListenerStanding) -> Value {
    let kinds: Vec<Value> = listener.kinds.iter().map(|kind| json!({ "group": GROUP, "kind": kind.name() })).collect();
    json!({ "name": &*listener.name, "supportedKinds": kinds, "attachedRoutes": listener.attached })
}

fn parent_json(parent: &ParentReference) -> Value {
    let mut json = json!({ "group": &*parent.group, "kind": &*parent.kind, "name": &*parent.name });
    for (field, value) in [("namespace", &parent.namespace), ("sectionName", &parent.section_name)] {
        if let Some(value) = value {
            json[field] = (**value).into();
        }
    }
    if let Some(port) = parent.port {
        json["port"] = port.into();
    }
    json
}

/// Identifies a reference to a parent.
fn parent_key(parent: &Value) -> String {
    let fields = ["group", "kind", "namespace", "name", "sectionName"].map(|field| text(parent, field));
    format!("{} {}", fields.join("/"), parent["port"])
}

fn only(value: &Value, fields: &[&str]) -> Value {
    fields.iter().filter_map(|field| Some(((*field).to_owned(), value.get(field)?.clone()))).collect()
}

fn list(value: &Value, field: &str) -> Value {
    Value::Array(items(value, field).to_vec())
}

fn items<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    value.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn items_mut<'v>(value: &'v mut Value, field: &str) -> &'v mut [Value] {
    value.get_mut(field).and_then(Value::as_array_mut).map(Vec::as_mut_slice).unwrap_or_default()
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}
