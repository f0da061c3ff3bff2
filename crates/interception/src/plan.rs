//! The list of rules for a configuration.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::config::{Config, ConfigError, Host, Mode, numbers};
use crate::rule::{Chain, Family, Match, Net, Protocol, Rule, Table, Target, Test};
use crate::values::{Included, Owner, PASSTHROUGH, Ports};

/// The port of the agent's DNS server.
const DNS_PORT: u16 = 15053;
/// The mark of connections from the proxy to the address of its own pod, in mode TPROXY.
pub(crate) const OUTBOUND_MARK: u32 = 1338;
/// The user and group of the proxy if nothing else is known.
const PROXY_USER: u32 = 1337;

/// The rules for a configuration, in their order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The rules of both families.
    pub rules: Vec<Rule>,
    /// The families that are captured.
    pub families: Vec<Family>,
    /// The address that stands for the host.
    pub address: IpAddr,
    /// Remarks on settings without effect.
    pub warnings: Vec<String>,
}

impl Plan {
    /// Lists the rules.
    ///
    /// # Errors
    /// The host has no address, or a name of a user or group is not known.
    pub fn new(config: &Config, host: &Host) -> Result<Plan, ConfigError> {
        let (address, ipv6) = host.primary(config.dual_stack)?;
        let mut warnings = Vec::new();
        let mut dns = config.redirect_dns;
        if dns && !config.capture_all_dns && host.nameservers.is_empty() {
            dns = false;
            warnings.push(
                "DNS is not redirected: /etc/resolv.conf has no DNS server, and --capture-all-dns is not set"
                    .to_owned(),
            );
        }
        let users = match config.proxy_users.as_slice() {
            [] => vec![Owner::of(host.proxy_user.unwrap_or(PROXY_USER))],
            users => numbers(users, &host.users)?,
        };
        let groups = match config.proxy_groups.as_slice() {
            [] => users.clone(),
            groups => numbers(groups, &host.groups)?,
        };
        let owner_groups = match &config.owner_groups {
            Included::All => Included::All,
            Included::Listed(groups) => Included::Listed(numbers(groups, &host.groups)?),
        };
        let owner_groups_exclude = numbers(&config.owner_groups_exclude, &host.groups)?;
        let config = &Config { owner_groups, owner_groups_exclude, ..config.clone() };
        let loopback = Net::Each(config.loopback, Ipv6Net::from(Ipv6Addr::LOCALHOST));
        let mut builder = Builder { config, host, dns, users, groups, loopback, rules: Vec::new() };
        builder.all();
        let families = if ipv6 { vec![Family::V4, Family::V6] } else { vec![Family::V4] };
        Ok(Plan { rules: builder.rules, families, address, warnings })
    }

    /// The rules for a family.
    pub fn of(&self, family: Family) -> impl Iterator<Item = &Rule> {
        let captured = self.families.contains(&family);
        self.rules.iter().filter(move |rule| captured && rule.is_for(family))
    }
}

/// Chains with their rules, in the order of their first rule. Rules are at their final place. Chains that are only jumped to
/// follow, without rules.
pub(crate) fn ordered<'a>(rules: impl Iterator<Item = &'a Rule>) -> Vec<(Chain, Vec<&'a Rule>)> {
    let mut chains: Vec<(Chain, Vec<&Rule>)> = Vec::new();
    let mut targets = Vec::new();
    for rule in rules {
        let index = chains.iter().position(|(chain, _)| *chain == rule.chain).unwrap_or_else(|| {
            chains.push((rule.chain, Vec::new()));
            chains.len() - 1
        });
        let rules = &mut chains[index].1;
        rules.insert(rule.at.map_or(rules.len(), |at| at.saturating_sub(1).min(rules.len())), rule);
        if let Target::Jump(target) = rule.target {
            targets.push(target);
        }
    }
    for target in targets {
        if chains.iter().all(|(chain, _)| *chain != target) {
            chains.push((target, Vec::new()));
        }
    }
    chains
}

struct Builder<'a> {
    config: &'a Config,
    host: &'a Host,
    dns: bool,
    users: Vec<Owner>,
    groups: Vec<Owner>,
    loopback: Net,
    rules: Vec<Rule>,
}

/// The properties of a packet, as a list of matches.
macro_rules! when {
    ($($test:expr),*) => { vec![$(Match::from($test)),*] };
}

const TCP: Test = Test::Protocol(Protocol::Tcp);
const UDP: Test = Test::Protocol(Protocol::Udp);
const KNOWN: Test = Test::State("RELATED,ESTABLISHED");

fn lo() -> Test {
    Test::Out("lo".to_owned())
}

fn from_lo() -> Test {
    Test::In("lo".to_owned())
}

fn to_port(ports: impl Into<Ports>) -> Test {
    Test::DestinationPort(ports.into())
}

/// The source of connections from the proxy to the application.
fn passthrough() -> Test {
    let v6 = Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6);
    Test::Source(Net::Each(Ipv4Net::from(PASSTHROUGH), Ipv6Net::from(v6)))
}

impl Builder<'_> {
    fn add(&mut self, table: Table, chain: Chain, matches: Vec<Match>, target: Target) {
        self.rules.push(Rule { table, chain, at: None, family: None, matches, target });
    }

    fn insert(&mut self, table: Table, chain: Chain, at: usize, matches: Vec<Match>, target: Target) {
        self.rules.push(Rule { table, chain, at: Some(at), family: None, matches, target });
    }

    fn for_family(&mut self, family: Family, table: Table, chain: Chain, target: Target) {
        self.rules.push(Rule { table, chain, at: None, family: Some(family), matches: Vec::new(), target });
    }

    fn nat(&mut self, chain: Chain, matches: Vec<Match>, target: Target) {
        self.add(Table::Nat, chain, matches, target);
    }

    fn mangle(&mut self, chain: Chain, matches: Vec<Match>, target: Target) {
        self.add(Table::Mangle, chain, matches, target);
    }

    fn tproxy(&self) -> bool {
        self.config.mode == Mode::Tproxy
    }

    fn all(&mut self) {
        let config = self.config;
        self.interfaces();
        if config.drop_invalid {
            self.mangle(Chain::Prerouting, when![Test::State("INVALID")], Target::Jump(Chain::Drop));
            self.mangle(Chain::Drop, Vec::new(), Target::Drop);
        }
        self.nat(Chain::Inbound, when![TCP, to_port(config.inbound_tunnel_port)], Target::Return);
        self.nat(Chain::Redirect, when![TCP], Target::Redirect(config.proxy_port));
        self.nat(Chain::InRedirect, when![TCP], Target::Redirect(config.inbound_capture_port));
        if !config.inbound_ports.is_empty() {
            self.inbound();
        }
        self.outbound();
        if self.tproxy() {
            self.marks();
        }
    }

    fn interfaces(&mut self) {
        let tables: &[Table] = if self.tproxy() { &[Table::Nat, Table::Mangle] } else { &[Table::Nat] };
        for table in tables {
            for name in &self.config.exclude_interfaces {
                self.add(*table, Chain::Prerouting, when![Test::In(name.clone())], Target::Return);
                self.add(*table, Chain::Output, when![Test::Out(name.clone())], Target::Return);
            }
        }
        for name in &self.config.reroute_interfaces {
            self.insert(Table::Nat, Chain::Prerouting, 1, when![Test::In(name.clone())], Target::Return);
        }
    }

    fn inbound(&mut self) {
        let (mark, port) = (self.config.tproxy_mark, self.config.inbound_capture_port);
        let table = if self.tproxy() { Table::Mangle } else { Table::Nat };
        if self.tproxy() {
            self.mangle(Chain::Divert, Vec::new(), Target::SetMark(mark));
            self.mangle(Chain::Divert, Vec::new(), Target::Accept);
            let away = !Test::Destination(self.loopback);
            self.mangle(Chain::Tproxy, when![away, TCP], Target::Tproxy { port, mark });
        }
        self.add(table, Chain::Prerouting, when![TCP], Target::Jump(Chain::Inbound));
        let config = self.config;
        match &config.inbound_ports {
            Included::All => {
                for ports in &config.inbound_ports_exclude {
                    self.add(table, Chain::Inbound, when![TCP, to_port(*ports)], Target::Return);
                }
                self.capture_inbound(when![TCP]);
            }
            Included::Listed(listed) => {
                for ports in listed {
                    self.capture_inbound(when![TCP, to_port(*ports)]);
                }
            }
        }
    }

    fn capture_inbound(&mut self, matches: Vec<Match>) {
        if !self.tproxy() {
            return self.nat(Chain::Inbound, matches, Target::Jump(Chain::InRedirect));
        }
        let known = matches.iter().cloned().chain([KNOWN.into()]).collect();
        self.mangle(Chain::Inbound, known, Target::Jump(Chain::Divert));
        self.mangle(Chain::Inbound, matches, Target::Jump(Chain::Tproxy));
    }

    fn outbound(&mut self) {
        let (config, out) = (self.config, Chain::Outbound);
        self.nat(Chain::Output, Vec::new(), Target::Jump(out));
        for ports in &config.outbound_ports_exclude {
            self.nat(out, when![TCP, to_port(*ports)], Target::Return);
            self.nat(out, when![UDP, to_port(*ports)], Target::Return);
        }
        self.nat(out, when![lo(), passthrough()], Target::Return);
        for owner in self.users.clone() {
            self.own(Test::User(owner), true);
        }
        for owner in self.groups.clone() {
            self.own(Test::Group(owner), false);
        }
        self.owner_groups();
        if self.dns {
            self.dns();
        }
        self.nat(out, when![Test::Destination(self.loopback)], Target::Return);
        for range in &config.outbound_ranges_exclude {
            self.nat(out, when![Test::Destination(Net::One(*range))], Target::Return);
        }
        for ports in &config.outbound_ports {
            self.nat(out, when![TCP, to_port(*ports)], Target::Jump(Chain::Redirect));
        }
        self.ranges();
    }

    /// Traffic of the proxy itself, and traffic to the pod's own addresses.
    fn own(&mut self, owner: Test, is_user: bool) {
        let tunnel = self.config.inbound_tunnel_port;
        // The agent asks a DNS server on this host directly.
        let except = match self.dns && is_user {
            true => !Test::DestinationPorts(vec![53, tunnel]),
            false => !to_port(tunnel),
        };
        // An application that calls itself through a service passes the inbound side of its proxy, too.
        let itself = when![lo(), !Test::Destination(self.loopback), TCP, except, owner.clone()];
        self.nat(Chain::Outbound, itself, Target::Jump(Chain::InRedirect));
        // An application that calls itself by its address does not, unless the loopback addresses are to be captured.
        if !self.captures_loopback() {
            let other = match self.dns {
                true => when![lo(), TCP, !to_port(53), !owner.clone()],
                false => when![lo(), !owner.clone()],
            };
            self.nat(Chain::Outbound, other, Target::Return);
        }
        self.nat(Chain::Outbound, when![owner], Target::Return);
    }

    fn captures_loopback(&self) -> bool {
        match &self.config.outbound_ranges {
            Included::All => false,
            Included::Listed(ranges) => ranges.iter().any(|range| range.addr().is_loopback()),
        }
    }

    fn owner_groups(&mut self) {
        let config = self.config;
        match &config.owner_groups {
            Included::All => {
                for group in &config.owner_groups_exclude {
                    self.nat(Chain::Outbound, when![Test::Group(group.clone())], Target::Return);
                }
            }
            Included::Listed(groups) => {
                let others = groups.iter().map(|group| !Test::Group(group.clone())).collect();
                self.nat(Chain::Outbound, others, Target::Return);
            }
        }
    }

    fn ranges(&mut self) {
        let config = self.config;
        let redirect = Target::Jump(Chain::Redirect);
        match &config.outbound_ranges {
            Included::All => {
                self.nat(Chain::Outbound, Vec::new(), redirect);
                for name in &config.reroute_interfaces {
                    self.insert(Table::Nat, Chain::Prerouting, 1, when![Test::In(name.clone())], redirect);
                }
            }
            Included::Listed(ranges) => {
                for range in ranges {
                    let to = Test::Destination(Net::One(*range));
                    for name in &config.reroute_interfaces {
                        let matches = when![Test::In(name.clone()), to.clone()];
                        self.insert(Table::Nat, Chain::Prerouting, 1, matches, redirect);
                    }
                    self.nat(Chain::Outbound, when![to], redirect);
                }
            }
        }
    }

    /// DNS requests go to the agent. Its own requests are tracked in a zone of their own: to the connection tracking, a
    /// request of the application and the one that the agent makes for it may look the same.
    fn dns(&mut self) {
        let servers = self.servers();
        let dns = Chain::OutputDns;
        self.add(Table::Raw, Chain::Output, Vec::new(), Target::Jump(dns));
        for family in [Family::V4, Family::V6] {
            if servers.iter().any(|server| server.is_none_or(|net| net.of(family).is_some())) {
                self.for_family(family, Table::Nat, Chain::Outbound, Target::Jump(dns));
            }
        }
        for protocol in [TCP, UDP] {
            for server in &servers {
                let to = server.map(|net| Test::Destination(net).into());
                let matches = when![protocol.clone(), to_port(53)].into_iter().chain(to).collect();
                self.nat(dns, matches, Target::Redirect(DNS_PORT));
            }
        }
        self.zones(&servers);
    }

    fn zones(&mut self, servers: &[Option<Net>]) {
        let (dns, raw) = (Chain::OutputDns, Table::Raw);
        let from_port = |port: u16| Test::SourcePort(port.into());
        let users = self.users.iter().cloned().map(Test::User);
        let owners: Vec<Test> = users.chain(self.groups.iter().cloned().map(Test::Group)).collect();
        for owner in owners {
            self.add(raw, dns, when![UDP, to_port(53), owner.clone()], Target::Zone(1));
            self.add(raw, dns, when![UDP, from_port(DNS_PORT), owner], Target::Zone(2));
        }
        for family in [Family::V4, Family::V6] {
            if servers.iter().any(|server| server.is_none_or(|net| net.of(family).is_some())) {
                self.for_family(family, raw, Chain::Prerouting, Target::Jump(Chain::Inbound));
            }
        }
        for server in servers {
            let to = server.map(|net| Test::Destination(net).into());
            let from = server.map(|net| Test::Source(net).into());
            self.add(raw, dns, when![UDP, to_port(53)].into_iter().chain(to).collect(), Target::Zone(2));
            let answers = when![UDP, from_port(53)].into_iter().chain(from).collect();
            self.add(raw, Chain::Inbound, answers, Target::Zone(1));
        }
    }

    /// The DNS servers whose requests are redirected, or one entry for any server.
    fn servers(&self) -> Vec<Option<Net>> {
        if self.config.capture_all_dns {
            return vec![None];
        }
        let mut servers: Vec<IpAddr> = self.host.nameservers.clone();
        servers.sort_by_key(IpAddr::is_ipv6);
        servers.into_iter().map(|server| Some(Net::One(IpNet::from(server)))).collect()
    }

    /// In mode TPROXY, marks route the packets of captured connections, and packets of the proxy are told apart.
    fn marks(&mut self) {
        let mark = self.config.tproxy_mark;
        self.mangle(Chain::Prerouting, when![TCP, Test::Mark(mark)], Target::SaveMark);
        self.mangle(Chain::Output, when![TCP, lo(), Test::Mark(mark)], Target::Return);
        let users = self.users.iter().cloned().map(Test::User);
        let owners: Vec<Test> = users.chain(self.groups.iter().cloned().map(Test::Group)).collect();
        for owner in owners {
            let itself = when![!Test::Destination(self.loopback), TCP, lo(), owner];
            self.mangle(Chain::Output, itself, Target::SetMark(OUTBOUND_MARK));
        }
        self.mangle(Chain::Output, when![TCP, Test::ConnectionMark(mark)], Target::RestoreMark);
        let (table, inbound) = (Table::Mangle, Chain::Inbound);
        self.insert(table, inbound, 1, when![TCP, Test::Mark(mark)], Target::Return);
        self.insert(table, inbound, 2, when![TCP, passthrough(), from_lo()], Target::Return);
        self.insert(table, inbound, 3, when![TCP, from_lo(), !Test::Mark(OUTBOUND_MARK)], Target::Return);
    }
}
