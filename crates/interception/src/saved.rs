//! The output of `iptables-save`.

use std::collections::BTreeSet;

use ipnet::IpNet;

use crate::plan::OUTBOUND_MARK;
use crate::rule::Table;

/// The beginning of the names of our chains, and of Istio's.
const OWN: &str = "ISTIO_";

/// The chains and rules that are there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Saved(Vec<(Table, SavedChain)>);

/// A chain with its rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SavedChain {
    pub(crate) name: String,
    /// The rules as they are written, without `-A` and the name of the chain.
    pub(crate) rules: Vec<String>,
}

impl SavedChain {
    /// Whether it is a chain of ours or of Istio's.
    pub(crate) fn is_own(&self) -> bool {
        self.name.starts_with(OWN)
    }
}

impl Saved {
    /// Reads the output, or input of `iptables-restore`. Lines that it does not know, and other tables, are skipped.
    pub(crate) fn parse(text: &str) -> Saved {
        let mut saved = Saved::default();
        let mut table = None;
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix('*') {
                table = Table::ALL.into_iter().find(|table| table.name() == name.trim());
            }
            let Some(table) = table else { continue };
            let chain = line.strip_prefix(':').or_else(|| line.strip_prefix("-N "));
            if let Some(name) = chain.and_then(|rest| rest.split(' ').next()) {
                saved.chain(table, name);
            } else if let Some(rest) = line.strip_prefix("-A ") {
                let (name, rule) = rest.split_once(' ').unwrap_or((rest, ""));
                saved.chain(table, name).rules.push(rule.to_owned());
            } else if let Some(rest) = line.strip_prefix("-I ") {
                let mut words = rest.splitn(3, ' ');
                let name = words.next().unwrap_or_default();
                let at: usize = words.next().and_then(|at| at.parse().ok()).unwrap_or(1);
                let rules = &mut saved.chain(table, name).rules;
                rules.insert(at.saturating_sub(1).min(rules.len()), words.next().unwrap_or_default().to_owned());
            }
        }
        saved
    }

    fn chain(&mut self, table: Table, name: &str) -> &mut SavedChain {
        let found = self.0.iter().position(|(of, chain)| *of == table && chain.name == name);
        let index = found.unwrap_or_else(|| {
            self.0.push((table, SavedChain { name: name.to_owned(), rules: Vec::new() }));
            self.0.len() - 1
        });
        &mut self.0[index].1
    }

    /// The chains of a table.
    pub(crate) fn chains(&self, table: Table) -> impl Iterator<Item = &SavedChain> {
        self.0.iter().filter(move |(of, _)| *of == table).map(|(_, chain)| chain)
    }
}

/// The properties and the target of a rule, each as a flag, whether it is negated, and a value. Rules with the same effect have
/// the same form, in whatever way they are written.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Normal(BTreeSet<(String, bool, String)>);

impl Normal {
    /// Whether the rule jumps to a chain of ours or of Istio's.
    pub(crate) fn jumps_to_own(&self) -> bool {
        self.0.iter().any(|(flag, _, value)| flag == "-j" && value.starts_with(OWN))
    }

    /// Whether the rule is one that mode TPROXY needs in a chain of the kernel, with any mark and owner.
    pub(crate) fn is_tproxy_mark(&self) -> bool {
        let flags: Vec<&str> = self.0.iter().map(|(flag, _, _)| flag.as_str()).collect();
        let is = |flag: &str, value: &str| self.0.contains(&(flag.to_owned(), false, value.to_owned()));
        let sets_mark = is("-o", "lo") && is("--set-xmark", &OUTBOUND_MARK.to_string());
        match flags.as_slice() {
            ["--mark", "--restore-mark" | "--save-mark", "-j", "-p"] => true,
            ["--mark", "-j", "-o", "-p"] => is("-o", "lo") && is("-j", "RETURN"),
            ["--gid-owner", "--set-xmark", "-d", "-j", "-o", "-p"] => sets_mark,
            ["--set-xmark", "--uid-owner", "-d", "-j", "-o", "-p"] => sets_mark,
            _ => false,
        }
    }
}

/// The comparable form of a rule that is written as arguments of `iptables`.
pub(crate) fn normal(rule: &str) -> Normal {
    let mut properties = BTreeSet::new();
    let mut words = words(rule).into_iter().peekable();
    let mut not = false;
    while let Some(word) = words.next() {
        if word == "!" {
            not = true;
            continue;
        }
        let mut values = Vec::new();
        while let Some(value) = words.next_if(|next| !next.starts_with('-') && next != "!") {
            values.push(value);
        }
        if let Some((flag, value)) = property(&word, &values.join(" ")) {
            properties.insert((flag.to_owned(), not, value));
        }
        not = false;
    }
    Normal(properties)
}

/// A property as it is compared, or none if it has no meaning of its own.
fn property<'a>(flag: &'a str, value: &str) -> Option<(&'a str, String)> {
    match flag {
        // Modules are implied by the flags that they bring; masks are complete if they are not given.
        "-m" => None,
        "--nfmask" | "--ctmask" if value == "0xffffffff" => None,
        "--on-ip" if value == "0.0.0.0" || value == "::" => None,
        "--set-mark" | "--set-xmark" => Some(("--set-xmark", mark(value))),
        "--mark" | "--tproxy-mark" => Some((flag, mark(value))),
        "--to-port" | "--to-ports" => Some(("--to-ports", value.to_owned())),
        "-s" | "-d" => Some((flag, value.parse().map_or(value.to_owned(), |net: IpNet| net.trunc().to_string()))),
        "--ctstate" => {
            let mut states: Vec<&str> = value.split(',').collect();
            states.sort_unstable();
            Some((flag, states.join(",")))
        }
        _ => Some((flag, value.to_owned())),
    }
}

/// A mark in decimal form, without a complete mask.
fn mark(value: &str) -> String {
    let value = value.strip_suffix("/0xffffffff").unwrap_or(value);
    crate::values::mark(value).map_or(value.to_owned(), |mark| mark.to_string())
}

/// The words of a rule. Quotes hold words together, and `\` takes the next character as it is.
fn words(rule: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    let mut characters = rule.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            '\\' => word.get_or_insert_default().extend(characters.next()),
            ' ' if !quoted => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rules_are_equal_in_whatever_way_they_are_written() {
        for (ours, saved) in [
            ("-o lo -s 127.0.0.6/32 -j RETURN", "-s 127.0.0.6/32 -o lo -j RETURN"),
            ("-p tcp --dport 15008 -j RETURN", "-p tcp -m tcp --dport 15008 -j RETURN"),
            ("-j MARK --set-mark 1337", "-j MARK --set-xmark 0x539/0xffffffff"),
            ("-m conntrack --ctstate ESTABLISHED,RELATED -j X", "-m conntrack --ctstate RELATED,ESTABLISHED -j X"),
            (
                "-p tcp -j TPROXY --tproxy-mark 1337/0xffffffff --on-port 15006",
                "-p tcp -j TPROXY --on-port 15006 --on-ip 0.0.0.0 --tproxy-mark 0x539/0xffffffff",
            ),
            ("-j CONNMARK --save-mark", "-j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff"),
            ("-d 10.1.2.3/8 -j RETURN", "-d 10.0.0.0/8 -j RETURN"),
        ] {
            assert_eq!(normal(ours), normal(saved), "{ours}");
        }
        assert_ne!(normal("! -d 10.0.0.0/8 -j RETURN"), normal("-d 10.0.0.0/8 -j RETURN"));
        assert_ne!(normal("-m mark --mark 1 -j RETURN"), normal("-m mark --mark 2 -j RETURN"));
    }

    #[test]
    fn quoted_values_are_one_word() {
        assert_eq!(words(r#"--comment "a \"b\" c" -j X"#), ["--comment", "a \"b\" c", "-j", "X"]);
        assert_eq!(words(r#"--comment "" -j"#), ["--comment", "", "-j"]);
    }

    #[test]
    fn marks_of_other_programs_are_not_ours() {
        assert!(normal("-p tcp -m mark --mark 0x9 -j CONNMARK --save-mark --nfmask 0xffffffff").is_tproxy_mark());
        assert!(normal("-p tcp -o lo -m mark --mark 9 -j RETURN").is_tproxy_mark());
        assert!(
            normal("! -d 127.0.0.1/32 -o lo -p tcp -m owner --uid-owner 7 -j MARK --set-mark 1338").is_tproxy_mark()
        );
        for other in [
            "-j CONNMARK --restore-mark --nfmask 0xff0000 --ctmask 0xff0000",
            "-p tcp -m mark --mark 0x1/0x1 -i wg0 -j CONNMARK --save-mark --nfmask 0xff --ctmask 0xff",
            "-p tcp -m mark --mark 0x1 -j RETURN",
            "-p tcp -o lo -m owner --uid-owner 7 -j MARK --set-mark 1",
        ] {
            assert!(!normal(other).is_tproxy_mark(), "{other}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(\\*(nat|mangle|raw|x)|:ISTIO_[A-Z]{0,3} -|-A [A-Z_]{0,9}( [-! \"\\\\a-z0-9]{0,20})?|COMMIT|\\PC{0,20})(\n(\\*nat|-A [A-Z_]{0,9} \\PC{0,20}|:X|\\PC{0,20})){0,8}") {
            let saved = Saved::parse(&text);
            for table in Table::ALL {
                for chain in saved.chains(table) {
                    for rule in &chain.rules {
                        let once = normal(rule);
                        prop_assert_eq!(&once, &normal(rule));
                    }
                }
            }
        }
    }
}
