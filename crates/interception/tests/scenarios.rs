//! Settings and the rules that they give: the cases of `tests/data`, in the format that [`Case`] reads.
//!
//! `RUTTER_BLESS=1` rewrites the rules of the files.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fmt::Write as _;
use std::path::Path;

use interception::{Config, Family, Host, Kind, Plan, iptables, nftables, routes};

/// A case: its title after `==`, lines with settings, and the expected rules after `--`.
#[derive(Default)]
struct Case {
    title: String,
    /// The lines up to the rules.
    settings: Vec<String>,
    /// The lines with the rules.
    expected: String,
}

fn read(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("== ") {
            cases.push(Case { title: title.to_owned(), ..Case::default() });
            continue;
        }
        let case = cases.last_mut().unwrap();
        match line.is_empty() || line.starts_with("--") || !case.expected.is_empty() {
            true => writeln!(case.expected, "{line}").unwrap(),
            false => case.settings.push(line.to_owned()),
        }
    }
    for case in &mut cases {
        case.expected = format!("{}\n", case.expected.trim_end());
    }
    cases
}

impl Case {
    fn words(&self, key: &str) -> Vec<&str> {
        let lines = self.settings.iter().filter_map(|line| line.strip_prefix(key));
        lines.flat_map(|rest| rest.split_whitespace()).collect()
    }

    fn config(&self) -> Result<Config, interception::ConfigError> {
        let environment: Vec<(&str, &str)> =
            self.words("env ").iter().map(|pair| pair.split_once('=').unwrap()).collect();
        let variable = |name: &str| Some(environment.iter().find(|(of, _)| *of == name)?.1.to_owned());
        let mut config = Config::from_environment(variable)?;
        let mut words = self.words("flags ").into_iter();
        while let Some(word) = words.next() {
            let flag = interception::FLAGS.iter().find(|flag| match word.strip_prefix("--") {
                Some(long) => flag.name == Some(long),
                None => flag.short.is_some_and(|short| word == format!("-{short}")),
            });
            let flag = flag.unwrap_or_else(|| panic!("{word} in {}", self.title));
            let value = if flag.kind == Kind::Switch { "true" } else { words.next().unwrap() };
            config.set(flag.name.unwrap(), value)?;
        }
        Ok(config)
    }

    fn host(&self) -> Host {
        let addresses = |key| self.words(key).into_iter().map(|text| text.parse().unwrap()).collect();
        let groups = self.words("group ").into_iter().map(|pair| pair.split_once('=').unwrap());
        Host {
            addresses: addresses("host "),
            nameservers: addresses("dns "),
            groups: groups.map(|(name, id)| (name.to_owned(), id.parse().unwrap())).collect(),
            ..Host::default()
        }
    }

    fn actual(&self) -> String {
        let config = match self.config() {
            Ok(config) => config,
            Err(error) => return format!("-- error\n{error}\n"),
        };
        let plan = match Plan::new(&config, &self.host()) {
            Ok(plan) => plan,
            Err(error) => return format!("-- error\n{error}\n"),
        };
        let mut text: String = plan.warnings.iter().map(|warning| format!("-- warning\n{warning}\n")).collect();
        for family in [Family::V4, Family::V6] {
            if let Some(command) = iptables::apply(&plan, family, &config, "").unwrap() {
                write!(text, "-- {command}").unwrap();
            }
        }
        let routes = routes::add(&config, &plan);
        routes.iter().for_each(|command| write!(text, "-- {command}").unwrap());
        // The first lines remove the tables.
        let nftables = nftables::script(&plan);
        let rules = nftables.lines().filter(|line| line.starts_with("add chain") || line.starts_with("add rule"));
        text.push_str("-- nft -f -\n");
        rules.for_each(|line| {
            writeln!(text, "{}", line.trim_start_matches("add ").replace("inet istio-proxy-", "")).unwrap()
        });
        text
    }
}

#[test]
fn settings_give_the_expected_rules() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let (mut files, mut failures) = (0, Vec::new());
    for entry in std::fs::read_dir(data).unwrap() {
        let path = entry.unwrap().path();
        files += 1;
        let cases = read(&std::fs::read_to_string(&path).unwrap());
        if std::env::var_os("RUTTER_BLESS").is_some() {
            let text = |case: &Case| format!("== {}\n{}\n{}", case.title, case.settings.join("\n"), case.actual());
            std::fs::write(&path, cases.iter().map(text).collect::<Vec<_>>().join("\n")).unwrap();
            continue;
        }
        for case in cases {
            let actual = case.actual();
            if actual != case.expected {
                failures.push(format!("{}: {}\n{actual}", path.display(), case.title));
            }
        }
    }
    assert!(files > 0);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Rules that were made are recognized, and rules of other settings are replaced and removed.
#[test]
fn made_rules_are_recognized_and_replaced() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(data).unwrap() {
        cases.extend(read(&std::fs::read_to_string(entry.unwrap().path()).unwrap()));
    }
    let plans: Vec<(Config, Plan)> = cases
        .iter()
        .filter_map(|case| {
            case.config().ok().and_then(|config| Some((config.clone(), Plan::new(&config, &case.host()).ok()?)))
        })
        .collect();
    assert!(plans.len() > 50);
    let (config, other) = &plans[0];
    for (of, plan) in &plans {
        for family in &plan.families {
            let there = iptables::fresh(plan, *family);
            assert_eq!(iptables::apply(plan, *family, of, &there), Ok(None));
            assert!(iptables::remove(plan, *family, &there).unwrap().input.contains("-X ISTIO_REDIRECT\n"));
            let forced = Config { force_apply: true, ..of.clone() };
            assert!(iptables::apply(plan, *family, &forced, &there).unwrap().is_some());
            if iptables::fresh(other, *family) == iptables::fresh(plan, *family) || !other.families.contains(family) {
                continue;
            }
            assert!(iptables::apply(other, *family, config, &there).is_err());
            let replace = Config { reconcile: true, ..config.clone() };
            let input = iptables::apply(other, *family, &replace, &there).unwrap().unwrap().input;
            assert!(
                input.contains(":ISTIO_REDIRECT - [0:0]\n") && input.contains("-D OUTPUT -j ISTIO_OUTPUT\n"),
                "{input}"
            );
        }
    }
}
