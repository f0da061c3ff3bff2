//! Facts for the statuses of the Gateway API, as text.

use std::fmt::Write;

use config::ObjectKey;
use config::gateway_api::reference::ParentReference;
use model::standing::{Fact, ListenerStanding, ParentStanding, Standing, StandingBody};
use world::Facts;

/// The facts about an object, with a line for each condition.
pub fn text(key: &ObjectKey, facts: &Facts) -> String {
    let mut out = format!("{key}\n");
    match facts {
        None => out.push_str("  nothing\n"),
        Some(standing) => write_standing(&mut out, standing),
    }
    out
}

fn write_standing(out: &mut String, standing: &Standing) {
    write_facts(out, "  ", &standing.conditions);
    match &standing.body {
        StandingBody::Class { features } => list(out, "features", features.iter().copied()),
        StandingBody::Gateway { addresses, services, listeners, sets } => {
            let addresses = addresses.iter().map(|address| format!("{} {}", address.kind, address.value));
            list(out, "addresses", addresses.collect::<Vec<_>>().iter().map(String::as_str));
            list(out, "services", services.iter().map(|service| &**service));
            list(out, "listener sets", sets.map(|count| count.to_string()).as_deref().into_iter());
            write_listeners(out, listeners);
        }
        StandingBody::Policy { ancestors } => write_entries(out, "ancestor", ancestors),
        StandingBody::Pool { parents } => write_entries(out, "parent", parents),
        StandingBody::ListenerSet { listeners } => write_listeners(out, listeners),
        StandingBody::Route { parents } if parents.is_empty() => out.push_str("  no parents\n"),
        StandingBody::Route { parents } => write_entries(out, "parent", parents),
    }
}

fn write_entries(out: &mut String, what: &str, entries: &[ParentStanding]) {
    for entry in entries {
        let _ = writeln!(out, "  {what} {} by {}", reference(&entry.parent), entry.controller);
        write_facts(out, "    ", &entry.conditions);
    }
}

fn write_listeners(out: &mut String, listeners: &[ListenerStanding]) {
    for ListenerStanding { name, kinds, attached, conditions } in listeners {
        let kinds: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
        let _ = writeln!(out, "  listener {name}: [{}], attached: {attached}", kinds.join(", "));
        write_facts(out, "    ", conditions);
    }
}

fn write_facts(out: &mut String, indent: &str, facts: &[Fact]) {
    for Fact { kind, holds, reason, message } in facts {
        let holds = if *holds { "True" } else { "False" };
        let _ = writeln!(out, "{indent}{kind}: {holds} {reason} — {message}");
    }
}

fn list<'a>(out: &mut String, name: &str, items: impl Iterator<Item = &'a str>) {
    let items: Vec<&str> = items.collect();
    if !items.is_empty() {
        let _ = writeln!(out, "  {name}: {}", items.join(", "));
    }
}

/// `[NAMESPACE/]NAME[ SECTION][ port PORT]`.
fn reference(parent: &ParentReference) -> String {
    let namespace = parent.namespace.iter().map(|namespace| format!("{namespace}/"));
    let section = parent.section_name.iter().map(|section| format!(" {section}"));
    let port = parent.port.iter().map(|port| format!(" port {port}"));
    namespace.chain([parent.name.to_string()]).chain(section).chain(port).collect()
}
