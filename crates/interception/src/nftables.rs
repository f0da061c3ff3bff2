//! The rules as a script of `nft`.
//!
//! The tables have the names that Istio's tables have, so that the script replaces those as well. Each rule of the plan
//! becomes one rule, or one for each family if it names addresses. A script is one transaction.

use std::fmt::Write as _;

use crate::command::{Command, Program};
use crate::plan::{Plan, ordered};
use crate::rule::{Chain, Family, Match, Protocol, Rule, Table, Target, Test};

/// The command that makes the rules, and removes all that were there.
#[must_use]
pub fn apply(plan: &Plan) -> Command {
    command(&script(plan))
}

/// The command that removes all rules.
#[must_use]
pub fn remove() -> Command {
    command(&removal())
}

fn command(script: &str) -> Command {
    Command {
        program: Program::Nft,
        arguments: vec!["-f".to_owned(), "-".to_owned()],
        input: script.to_owned(),
        done_already: &[],
    }
}

/// The name of a table in nftables.
#[must_use]
pub fn table_name(table: Table) -> String {
    format!("istio-proxy-{}", table.name())
}

/// Removes the tables. They are added first, because removing a table that is not there is an error.
fn removal() -> String {
    let mut script = String::new();
    for table in Table::ALL {
        let name = table_name(table);
        let _ = writeln!(script, "add table inet {name}\ndelete table inet {name}");
    }
    script
}

/// The script that makes the rules.
#[must_use]
pub fn script(plan: &Plan) -> String {
    let mut script = removal();
    for table in Table::ALL {
        let chains = chains(plan, table);
        if chains.is_empty() {
            continue;
        }
        let name = table_name(table);
        let _ = writeln!(script, "add table inet {name}");
        for (chain, _) in &chains {
            let _ = writeln!(script, "add chain inet {name} {}{}", chain_name(*chain), hook(table, *chain));
        }
        for (chain, rules) in chains {
            for rule in rules {
                let _ = writeln!(script, "add rule inet {name} {} {rule}", chain_name(chain));
            }
        }
    }
    script
}

/// The chains of a table with their rules in their final order.
fn chains(plan: &Plan, table: Table) -> Vec<(Chain, Vec<String>)> {
    let captured = |rule: &&Rule| rule.table == table && plan.families.iter().any(|family| rule.is_for(*family));
    let rendered = |(chain, rules): (Chain, Vec<&Rule>)| {
        // Without IPv6 capture, IPv6 packets pass.
        let only_v4 = chain.is_built_in() && !plan.families.contains(&Family::V6);
        let guard = only_v4.then(|| "meta nfproto != ipv4 return".to_owned());
        (chain, guard.into_iter().chain(rules.into_iter().flat_map(|rule| lines(plan, rule))).collect())
    };
    ordered(plan.rules.iter().filter(captured)).into_iter().map(rendered).collect()
}

fn chain_name(chain: Chain) -> String {
    chain.name().to_ascii_lowercase().replace('_', "-")
}

/// The place of a chain of the kernel.
fn hook(table: Table, chain: Chain) -> String {
    let hook = match chain {
        Chain::Prerouting => "prerouting",
        Chain::Output => "output",
        _ => return String::new(),
    };
    let (kind, priority) = match (table, chain) {
        (Table::Nat, _) => ("nat", -100),
        (Table::Mangle, Chain::Output) => ("route", -150),
        (Table::Mangle, _) => ("filter", -150),
        (Table::Raw, _) => ("filter", -300),
    };
    format!(" {{ type {kind} hook {hook} priority {priority} ; }}")
}

/// A rule, once or for each family.
fn lines(plan: &Plan, rule: &Rule) -> Vec<String> {
    match rule.differs_by_family() {
        false => vec![line(rule, None)],
        true => plan.families.iter().filter(|f| rule.is_for(**f)).map(|f| line(rule, Some(*f))).collect(),
    }
}

fn line(rule: &Rule, family: Option<Family>) -> String {
    let protocol = rule.matches.iter().find_map(|of| match of.test {
        Test::Protocol(protocol) => Some(protocol),
        _ => None,
    });
    let mut words = Vec::new();
    if let (Some(family), None) = (rule.family, address(rule)) {
        words.push(format!("meta nfproto {}", if family == Family::V6 { "ipv6" } else { "ipv4" }));
    }
    words.extend(rule.matches.iter().filter_map(|of| expression(of, protocol, family, rule)));
    words.push("counter".to_owned());
    words.push(verdict(rule.target, family));
    words.join(" ")
}

fn address(rule: &Rule) -> Option<&Match> {
    rule.matches.iter().find(|of| matches!(of.test, Test::Source(_) | Test::Destination(_)))
}

fn ip(family: Family) -> &'static str {
    if family == Family::V6 { "ip6" } else { "ip" }
}

fn expression(of: &Match, protocol: Option<Protocol>, family: Option<Family>, rule: &Rule) -> Option<String> {
    let not = if of.not { "!= " } else { "" };
    let of_protocol = protocol.map_or("th", Protocol::name);
    let range = |ports: crate::values::Ports| ports.to_string().replace(':', "-");
    let name = |name: &str| match name.strip_suffix('+') {
        Some(start) => format!("\"{start}*\""),
        None => format!("\"{name}\""),
    };
    let net = |net: crate::rule::Net| family.and_then(|family| Some((ip(family), net.of(family)?)));
    Some(match &of.test {
        Test::In(interface) => format!("iifname {not}{}", name(interface)),
        Test::Out(interface) => format!("oifname {not}{}", name(interface)),
        // The test of a port implies it.
        Test::Protocol(_) if rule.matches.iter().any(|other| is_port(&other.test)) => return None,
        Test::Protocol(protocol) => format!("meta l4proto {not}{}", protocol.name()),
        Test::Source(range) => net(*range).map(|(ip, net)| format!("{ip} saddr {not}{net}"))?,
        Test::Destination(range) => net(*range).map(|(ip, net)| format!("{ip} daddr {not}{net}"))?,
        Test::SourcePort(ports) => format!("{of_protocol} sport {not}{}", range(*ports)),
        Test::DestinationPort(ports) => format!("{of_protocol} dport {not}{}", range(*ports)),
        Test::DestinationPorts(ports) => {
            let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
            format!("{of_protocol} dport {not}{{ {} }}", ports.join(", "))
        }
        Test::User(owner) => format!("meta skuid {not}{}", owner.as_str()),
        Test::Group(owner) => format!("meta skgid {not}{}", owner.as_str()),
        Test::State(states) => format!("ct state {not}{}", states.to_ascii_lowercase()),
        Test::Mark(mark) => format!("meta mark {not}{mark}"),
        Test::ConnectionMark(mark) => format!("ct mark {not}{mark}"),
    })
}

fn is_port(test: &Test) -> bool {
    matches!(test, Test::SourcePort(_) | Test::DestinationPort(_) | Test::DestinationPorts(_))
}

fn verdict(target: Target, family: Option<Family>) -> String {
    match target {
        Target::Return => "return".to_owned(),
        Target::Accept => "accept".to_owned(),
        Target::Drop => "drop".to_owned(),
        Target::Jump(chain) => format!("jump {}", chain_name(chain)),
        Target::Redirect(port) => format!("redirect to :{port}"),
        Target::Tproxy { port, mark } => {
            format!("tproxy {} to :{port} meta mark set {mark} accept", ip(family.unwrap_or(Family::V4)))
        }
        Target::SetMark(mark) => format!("meta mark set {mark}"),
        Target::SaveMark => "ct mark set meta mark".to_owned(),
        Target::RestoreMark => "meta mark set ct mark".to_owned(),
        Target::Zone(zone) => format!("ct zone set {zone}"),
    }
}
