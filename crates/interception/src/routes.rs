//! The routes and addresses that the rules rely on.

use crate::command::{Command, Program};
use crate::config::{Config, Mode};
use crate::plan::Plan;
use crate::rule::Family;

/// The messages of `ip` for what is there already, or not there any more.
const DONE: &[&str] = &[
    "File exists",
    "already assigned",
    "No such",
    "Cannot assign requested address",
    "address not found",
    "does not exist",
];

/// The commands that add the routes of mode TPROXY, and the IPv6 address from which the proxy connects to the application.
/// To run them again changes nothing.
#[must_use]
pub fn add(config: &Config, plan: &Plan) -> Vec<Command> {
    let mut commands = Vec::new();
    if plan.families.contains(&Family::V6) {
        commands.push(ip(Family::V6, "addr add ::6/128 dev lo"));
    }
    if config.mode == Mode::Tproxy && !config.inbound_ports.is_empty() {
        let (rule, route) = routes(config);
        for family in &plan.families {
            // The preference that the kernel gives to the first rule. With it, a rule that is there is not added again.
            commands.push(ip(*family, &format!("rule add pref 32765 {rule}")));
            commands.push(ip(*family, &format!("route add {route}")));
        }
    }
    commands
}

/// The commands that remove both again, of any mode.
#[must_use]
pub fn remove(config: &Config, plan: &Plan) -> Vec<Command> {
    let (rule, route) = routes(config);
    let mut commands = Vec::new();
    for family in &plan.families {
        commands.push(ip(*family, &format!("rule del {rule}")));
        commands.push(ip(*family, &format!("route del {route}")));
    }
    if plan.families.contains(&Family::V6) {
        commands.push(ip(Family::V6, "addr del ::6/128 dev lo"));
    }
    commands
}

fn routes(config: &Config) -> (String, String) {
    let (mark, table) = (config.tproxy_mark, config.tproxy_route_table);
    (format!("fwmark {mark} lookup {table}"), format!("local default dev lo table {table}"))
}

fn ip(family: Family, arguments: &str) -> Command {
    let family = if family == Family::V6 { "-6" } else { "-4" };
    Command {
        program: Program::Ip,
        arguments: [family].into_iter().chain(arguments.split(' ')).map(str::to_owned).collect(),
        input: String::new(),
        done_already: DONE,
    }
}
