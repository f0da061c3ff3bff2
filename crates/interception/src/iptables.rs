//! The rules as input of `iptables-restore`, and their comparison with the output of `iptables-save`.

use std::fmt::Write as _;

use crate::command::{Command, Program};
use crate::config::Config;
use crate::plan::{Plan, ordered};
use crate::rule::{Chain, Family, Match, Rule, Table, Target, Test};
use crate::saved::{Normal, Saved, normal};

/// Rules of another configuration are there, and [`Config::reconcile`] is not set.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the chain {chain} of the table {table} has other rules; --reconcile replaces them, --cleanup-only removes them"
)]
pub struct Conflict {
    /// The chain.
    pub chain: &'static str,
    /// The table.
    pub table: &'static str,
}

/// The command that makes the rules of a family, or none if they are there already. `saved` is the output of `iptables-save`.
///
/// The rules of a table are replaced in one step, so that no packet passes without rules.
///
/// # Errors
/// There are rules of another configuration that are not to be replaced.
pub fn apply(plan: &Plan, family: Family, config: &Config, saved: &str) -> Result<Option<Command>, Conflict> {
    let found = Found::new(plan, family, saved);
    if !found.is_any() {
        return Ok(restore(family, fresh(plan, family)));
    }
    if !config.force_apply && found.is_expected(plan, family) {
        return Ok(None);
    }
    if !config.force_apply && !config.reconcile {
        found.conflict(plan, family)?;
    }
    Ok(restore(family, found.replaced(plan, family)))
}

/// The command that removes all rules of a family: those of this configuration, and those of any other that jump to a chain
/// whose name begins with `ISTIO_`. None if there are none.
#[must_use]
pub fn remove(plan: &Plan, family: Family, saved: &str) -> Option<Command> {
    let found = Found::new(plan, family, saved);
    restore(family, found.replaced(&Plan { rules: Vec::new(), ..plan.clone() }, family))
}

fn restore(family: Family, input: String) -> Option<Command> {
    let command = |input| Command {
        program: Program::Restore(family),
        arguments: vec!["--noflush".to_owned()],
        input,
        done_already: &[],
    };
    (!input.is_empty()).then_some(input).map(command)
}

/// The input of `iptables-restore` for a namespace without rules of ours.
#[must_use]
pub fn fresh(plan: &Plan, family: Family) -> String {
    by_table(|table| {
        let new = own_chains(plan, family, table).into_iter().map(|chain| format!("-N {}", chain.name()));
        new.chain(of_table(plan, family, table).map(|rule| arguments(rule, family).join(" "))).collect()
    })
}

fn by_table(lines: impl Fn(Table) -> Vec<String>) -> String {
    let mut text = String::new();
    for table in Table::ALL {
        let lines = lines(table);
        if !lines.is_empty() {
            let _ = writeln!(text, "*{}\n{}\nCOMMIT", table.name(), lines.join("\n"));
        }
    }
    text
}

fn of_table(plan: &Plan, family: Family, table: Table) -> impl Iterator<Item = &Rule> {
    plan.of(family).filter(move |rule| rule.table == table)
}

/// The chains of a table that are not the kernel's.
fn own_chains(plan: &Plan, family: Family, table: Table) -> Vec<Chain> {
    let chains = ordered(of_table(plan, family, table)).into_iter().map(|(chain, _)| chain);
    chains.filter(|chain| !chain.is_built_in()).collect()
}

/// The rules of ours that are there.
struct Found {
    tables: Vec<(Table, Tables)>,
}

/// The rules of ours in a table.
struct Tables {
    /// Rules in chains of the kernel: as they are deleted, and in their comparable form.
    built_in: Vec<(String, Normal)>,
    /// Chains whose names begin with `ISTIO_`, with their rules.
    chains: Vec<(String, Vec<Normal>)>,
}

impl Found {
    fn new(plan: &Plan, family: Family, saved: &str) -> Found {
        let saved = Saved::parse(saved);
        let table = |table: Table| {
            let expected: Vec<(Chain, Normal)> = built_in(plan, family, table).collect();
            let is_ours = |chain: &str, rule: &Normal| {
                rule.jumps_to_own() || expected.iter().any(|(of, expected)| of.name() == chain && expected == rule)
                    // Of another configuration.
                    || table == Table::Mangle && rule.is_tproxy_mark()
            };
            let mut tables = Tables { built_in: Vec::new(), chains: Vec::new() };
            for chain in saved.chains(table) {
                let rules = chain.rules.iter().map(|rule| (rule.as_str(), normal(rule)));
                match chain.is_own() {
                    true => tables.chains.push((chain.name.clone(), rules.map(|(_, rule)| rule).collect())),
                    false => {
                        let ours = rules.filter(|(_, rule)| is_ours(&chain.name, rule));
                        tables.built_in.extend(ours.map(|(text, rule)| (format!("{} {text}", chain.name), rule)));
                    }
                }
            }
            (table, tables)
        };
        Found { tables: Table::ALL.into_iter().map(table).collect() }
    }

    fn is_any(&self) -> bool {
        self.tables.iter().any(|(_, tables)| !tables.built_in.is_empty() || !tables.chains.is_empty())
    }

    /// Whether exactly the rules of the plan are there, those of our chains in the same order.
    fn is_expected(&self, plan: &Plan, family: Family) -> bool {
        self.tables.iter().all(|(table, found)| {
            let mut there: Vec<&Normal> = found.built_in.iter().map(|(_, rule)| rule).collect();
            let expected: Vec<(Chain, Normal)> = built_in(plan, family, *table).collect();
            let mut expected: Vec<&Normal> = expected.iter().map(|(_, rule)| rule).collect();
            there.sort();
            expected.sort();
            let chains = ordered(of_table(plan, family, *table)).into_iter().filter(|(chain, _)| !chain.is_built_in());
            let chains: Vec<(Chain, Vec<&Rule>)> = chains.collect();
            let equal = |(name, rules): &(String, Vec<Normal>)| {
                let expected = chains.iter().find(|(chain, _)| chain.name() == name);
                let normals = |(_, rules): &(Chain, Vec<&Rule>)| rules.iter().map(|rule| of(rule, family)).collect();
                expected.map(normals).as_ref() == Some(rules)
            };
            there == expected && chains.len() == found.chains.len() && found.chains.iter().all(equal)
        })
    }

    fn conflict(&self, plan: &Plan, family: Family) -> Result<(), Conflict> {
        for (table, found) in &self.tables {
            let there = |chain: &Chain| found.chains.iter().any(|(name, _)| name == chain.name());
            if let Some(chain) = own_chains(plan, family, *table).into_iter().find(there) {
                return Err(Conflict { chain: chain.name(), table: table.name() });
            }
        }
        Ok(())
    }

    /// The input of `iptables-restore` that replaces what is there.
    fn replaced(&self, plan: &Plan, family: Family) -> String {
        by_table(|table| {
            let own = own_chains(plan, family, table);
            // Makes a chain, or removes the rules of an existing one.
            let mut lines: Vec<String> = own.iter().map(|chain| format!(":{} - [0:0]", chain.name())).collect();
            for (_, found) in self.tables.iter().filter(|(of, _)| *of == table) {
                lines.extend(found.built_in.iter().map(|(rule, _)| format!("-D {rule}")));
                let names = found.chains.iter().map(|(name, _)| name);
                let stale: Vec<&String> = names.filter(|name| own.iter().all(|chain| chain.name() != *name)).collect();
                lines.extend(stale.iter().map(|name| format!("-F {name}")));
                lines.extend(stale.iter().map(|name| format!("-X {name}")));
            }
            lines.extend(of_table(plan, family, table).map(|rule| arguments(rule, family).join(" ")));
            lines
        })
    }
}

/// The rules of a plan in chains of the kernel.
fn built_in(plan: &Plan, family: Family, table: Table) -> impl Iterator<Item = (Chain, Normal)> {
    let rules = of_table(plan, family, table).filter(|rule| rule.chain.is_built_in());
    rules.map(move |rule| (rule.chain, of(rule, family)))
}

/// The comparable form of a rule.
fn of(rule: &Rule, family: Family) -> Normal {
    normal(&condition(rule, family).join(" "))
}

/// The arguments of `iptables` that add a rule.
#[must_use]
pub fn arguments(rule: &Rule, family: Family) -> Vec<String> {
    let chain = rule.chain.name().to_owned();
    let mut words = match rule.at {
        Some(at) => vec!["-I".to_owned(), chain, at.to_string()],
        None => vec!["-A".to_owned(), chain],
    };
    words.extend(condition(rule, family));
    words
}

/// The matches and the target.
fn condition(rule: &Rule, family: Family) -> Vec<String> {
    let mut words = Vec::new();
    for of in &rule.matches {
        let (module, flag, value) = test(of, family);
        if !module.is_empty() {
            words.extend(["-m".to_owned(), module.to_owned()]);
        }
        words.extend(of.not.then(|| "!".to_owned()));
        words.extend([flag.to_owned(), value]);
    }
    words.push("-j".to_owned());
    words.extend(target(rule.target));
    words
}

/// The module, the flag and the value of a match.
fn test(of: &Match, family: Family) -> (&'static str, &'static str, String) {
    let net = |net: crate::rule::Net| net.of(family).map_or_else(String::new, |net| net.to_string());
    match &of.test {
        Test::In(name) => ("", "-i", name.clone()),
        Test::Out(name) => ("", "-o", name.clone()),
        Test::Protocol(protocol) => ("", "-p", protocol.name().to_owned()),
        Test::Source(range) => ("", "-s", net(*range)),
        Test::Destination(range) => ("", "-d", net(*range)),
        Test::SourcePort(ports) => ("", "--sport", ports.to_string()),
        Test::DestinationPort(ports) => ("", "--dport", ports.to_string()),
        Test::DestinationPorts(ports) => {
            let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
            ("multiport", "--dports", ports.join(","))
        }
        Test::User(owner) => ("owner", "--uid-owner", owner.as_str().to_owned()),
        Test::Group(owner) => ("owner", "--gid-owner", owner.as_str().to_owned()),
        Test::State(states) => ("conntrack", "--ctstate", (*states).to_owned()),
        Test::Mark(mark) => ("mark", "--mark", mark.to_string()),
        Test::ConnectionMark(mark) => ("connmark", "--mark", mark.to_string()),
    }
}

fn target(target: Target) -> Vec<String> {
    let text = match target {
        Target::Return => "RETURN".to_owned(),
        Target::Accept => "ACCEPT".to_owned(),
        Target::Drop => "DROP".to_owned(),
        Target::Jump(chain) => chain.name().to_owned(),
        Target::Redirect(port) => format!("REDIRECT --to-ports {port}"),
        Target::Tproxy { port, mark } => format!("TPROXY --tproxy-mark {mark}/0xffffffff --on-port {port}"),
        Target::SetMark(mark) => format!("MARK --set-mark {mark}"),
        Target::SaveMark => "CONNMARK --save-mark".to_owned(),
        Target::RestoreMark => "CONNMARK --restore-mark".to_owned(),
        Target::Zone(zone) => format!("CT --zone {zone}"),
    };
    text.split(' ').map(str::to_owned).collect()
}
