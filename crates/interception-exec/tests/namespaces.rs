//! The rules in a real network namespace, with each back end: which connections reach the proxy, and what is left behind.
#![allow(clippy::unwrap_used, missing_docs)]

mod pod;

use std::path::Path;

use interception::{Config, Host, iptables};
use interception_exec::{ExecError, ValidationError};

use pod::{INSIDE, POD, POD6, Pod};

/// The flags of each back end.
const BACK_ENDS: [&str; 3] = ["--native-nftables", "--force-iptables-binary nft", "--force-iptables-binary legacy"];

/// Runs a test with each back end in a new pod.
fn with_each(test: &str, check: impl Fn(&mut Pod, &str)) {
    for back_end in BACK_ENDS {
        let Some(mut pod) = Pod::or_skip(test) else { return };
        check(&mut pod, back_end);
    }
}

/// Asks all questions at once and compares the answers.
fn expect(answers: &[String], cases: &[(&str, &str)], of: &str) {
    let expected: Vec<&str> = cases.iter().map(|(_, answer)| *answer).collect();
    assert_eq!(answers, expected, "{of}: {cases:#?}");
}

fn ask(pod: &Pod, cases: &[(&str, &str)], of: &str) {
    let questions: Vec<&str> = cases.iter().map(|(question, _)| *question).collect();
    expect(&pod.ask(&questions), cases, of);
}

fn ask_from_outside(pod: &Pod, cases: &[(&str, &str)], of: &str) {
    let questions: Vec<&str> = cases.iter().map(|(question, _)| *question).collect();
    expect(&pod.ask_from_outside(&questions), cases, of);
}

#[test]
fn all_traffic_is_captured() {
    with_each("all traffic is captured", |pod, back_end| {
        pod.serve("REDIRECT");
        ask(pod, &[("1000 1000 tcp 192.0.2.10 80", "outside from 10.77.0.2 to 192.0.2.10:80")], "without rules");
        pod.apply(&pod.config(&format!("-b * -i * {back_end} --dual-stack"))).unwrap();
        ask(
            pod,
            &[
                ("1000 1000 tcp 192.0.2.10 80", "15001 from 10.77.0.2 to 192.0.2.10:80"),
                ("0 0 tcp 10.77.0.1 443", "15001 from 10.77.0.2 to 10.77.0.1:443"),
                ("1000 1000 tcp 2001:db8::10 80", "15001 from fd77::2 to 2001:db8::10:80"),
                // The proxy's user, and its group.
                ("1337 1337 tcp 192.0.2.10 80", "outside from 10.77.0.2 to 192.0.2.10:80"),
                ("1000 1337 tcp 192.0.2.10 80", "outside from 10.77.0.2 to 192.0.2.10:80"),
                ("1337 1000 tcp 2001:db8::10 80", "outside from fd77::2 to 2001:db8::10:80"),
                // The application's own addresses.
                ("1000 1000 tcp 127.0.0.1 8080", "application from 127.0.0.1 to 127.0.0.1:8080"),
                ("1000 1000 tcp 10.77.0.2 8080", "application from 10.77.0.2 to 10.77.0.2:8080"),
                // The proxy to its own pod passes its inbound side; but not to the loopback address.
                ("1337 1337 tcp 10.77.0.2 8080", "15006 from 10.77.0.2 to 10.77.0.2:8080"),
                ("1337 1337 tcp 10.77.0.2 15008", "application from 10.77.0.2 to 10.77.0.2:15008"),
                ("1337 1337 tcp 127.0.0.1 8080", "application from 127.0.0.1 to 127.0.0.1:8080"),
                // Only TCP.
                ("1000 1000 udp 192.0.2.53 53", "outside"),
            ],
            back_end,
        );
        ask_from_outside(
            pod,
            &[
                (&format!("0 0 tcp {POD} 8080"), "15006 from 10.77.0.1 to 10.77.0.2:8080"),
                (&format!("0 0 tcp {POD} 15008"), "application from 10.77.0.1 to 10.77.0.2:15008"),
                (&format!("0 0 tcp {POD6} 8080"), "15006 from fd77::1 to fd77::2:8080"),
            ],
            back_end,
        );
    });
}

#[test]
fn ipv6_passes_if_the_host_is_an_ipv4_host() {
    with_each("IPv6 passes if the host is an IPv4 host", |pod, back_end| {
        pod.serve("REDIRECT");
        pod.apply(&pod.config(&format!("-b * -i * {back_end}"))).unwrap();
        ask(
            pod,
            &[
                ("1000 1000 tcp 2001:db8::10 80", "outside from fd77::2 to 2001:db8::10:80"),
                ("1000 1000 tcp 192.0.2.10 80", "15001 from 10.77.0.2 to 192.0.2.10:80"),
            ],
            back_end,
        );
        let inbound = [("0 0 tcp fd77::2 8080", "application from fd77::1 to fd77::2:8080")];
        ask_from_outside(pod, &inbound, back_end);
    });
}

#[test]
fn exclusions_and_inclusions_are_obeyed() {
    with_each("exclusions and inclusions are obeyed", |pod, back_end| {
        pod.serve("REDIRECT");
        let flags = "-b 8080 -d 9090 -i 192.0.2.0/25 -x 192.0.2.64/26 -q 7000 -o 22,6000:6010";
        let mut config = pod.config(&format!("{flags} {back_end}"));
        config.owner_groups_exclude = vec!["4000".parse().unwrap()];
        pod.apply(&config).unwrap();
        ask(
            pod,
            &[
                ("0 0 tcp 192.0.2.10 80", "15001 from 10.77.0.2 to 192.0.2.10:80"),
                ("0 0 tcp 192.0.2.70 80", "outside from 10.77.0.2 to 192.0.2.70:80"),
                ("0 0 tcp 192.0.2.200 80", "outside from 10.77.0.2 to 192.0.2.200:80"),
                ("0 0 tcp 192.0.2.200 7000", "15001 from 10.77.0.2 to 192.0.2.200:7000"),
                ("0 0 tcp 192.0.2.10 22", "outside from 10.77.0.2 to 192.0.2.10:22"),
                ("0 0 tcp 192.0.2.10 6005", "outside from 10.77.0.2 to 192.0.2.10:6005"),
                ("0 4000 tcp 192.0.2.10 80", "outside from 10.77.0.2 to 192.0.2.10:80"),
            ],
            back_end,
        );
        ask_from_outside(
            pod,
            &[
                ("0 0 tcp 10.77.0.2 8080", "15006 from 10.77.0.1 to 10.77.0.2:8080"),
                ("0 0 tcp 10.77.0.2 9090", "application from 10.77.0.1 to 10.77.0.2:9090"),
            ],
            back_end,
        );
        // Other settings instead: an excluded interface, and only some groups.
        config = pod.config(&format!("-b * -i * -c eth0 {back_end} --reconcile"));
        pod.apply(&config).unwrap();
        ask(pod, &[("0 0 tcp 192.0.2.10 80", "outside from 10.77.0.2 to 192.0.2.10:80")], back_end);
        let inbound = [("0 0 tcp 10.77.0.2 8080", "application from 10.77.0.1 to 10.77.0.2:8080")];
        ask_from_outside(pod, &inbound, back_end);
    });
}

#[test]
fn dns_is_captured() {
    with_each("DNS is captured", |pod, back_end| {
        pod.serve("REDIRECT");
        pod.apply(&pod.config(&format!("-b * -i * --redirect-dns {back_end}"))).unwrap();
        let captured = [
            ("1000 1000 udp 192.0.2.53 53", "15053"),
            ("1000 1000 tcp 192.0.2.53 53", "15053 from 10.77.0.2 to 192.0.2.53:53"),
            // The agent's own requests.
            ("1337 1337 udp 192.0.2.53 53", "outside"),
            ("1337 1337 tcp 192.0.2.53 53", "outside from 10.77.0.2 to 192.0.2.53:53"),
            // Another server.
            ("1000 1000 udp 192.0.2.54 53", "outside"),
        ];
        ask(pod, &captured, back_end);
        pod.apply(&pod.config(&format!("-b * -i * --redirect-dns --capture-all-dns {back_end} --reconcile"))).unwrap();
        ask(pod, &[("1000 1000 udp 192.0.2.54 53", "15053"), ("1337 1337 udp 192.0.2.54 53", "outside")], back_end);
    });
}

#[test]
fn tproxy_keeps_the_source_address() {
    with_each("TPROXY keeps the source address", |pod, back_end| {
        pod.serve("TPROXY");
        pod.apply(&pod.config(&format!("-b * -i * -d 9090 -m TPROXY {back_end}"))).unwrap();
        ask_from_outside(
            pod,
            &[
                // The proxy and the application behind it both see the client.
                ("0 0 tcp 10.77.0.2 8080", "15006 from 10.77.0.1; application from 10.77.0.1 to 10.77.0.2:8080"),
                ("0 0 tcp 10.77.0.2 9090", "application from 10.77.0.1 to 10.77.0.2:9090"),
            ],
            back_end,
        );
        let own = [
            ("1000 1000 tcp 192.0.2.10 80", "15001 from 10.77.0.2 to 192.0.2.10:80"),
            ("1000 1000 tcp 10.77.0.2 8080", "application from 10.77.0.2 to 10.77.0.2:8080"),
        ];
        ask(pod, &own, back_end);
    });
}

#[test]
fn nothing_is_left_and_nothing_changes_the_second_time() {
    with_each("nothing is left and nothing changes the second time", |pod, back_end| {
        // Rules of somebody else stay.
        let variant = if back_end.contains("legacy") { "legacy" } else { "nft" };
        pod.shell(&format!("iptables-{variant} -t nat -A OUTPUT -d 192.0.2.99 -m comment --comment a\"b -j RETURN"));
        pod.shell(&format!("iptables-{variant} -t mangle -A PREROUTING -j CONNMARK --restore-mark --nfmask 0xff0000"));
        let before = pod.state();
        assert!(before.contains("192.0.2.99"), "{before}");
        for flags in [
            "-b * -i * --redirect-dns --capture-all-dns --drop-invalid",
            "-b * -i * --redirect-dns -m TPROXY --dual-stack -c eth1,net+ -k virt1",
            "-b 80,8000:8080 -i 10.0.0.0/8,fd00::/8 -x 10.1.0.0/16 --dual-stack -u 5,6 -g 7",
        ] {
            let config = pod.config(&format!("{flags} {back_end}"));
            pod.apply(&config).unwrap();
            let made = pod.state();
            assert_ne!(made, before);
            pod.apply(&config).unwrap();
            same(&pod.state(), &made, flags);
            // Somebody removes a part.
            if !config.native_nftables {
                pod.shell(&format!("iptables-{variant} -t nat -D OUTPUT -j ISTIO_OUTPUT"));
                assert!(matches!(pod.apply(&config), Err(ExecError::Conflict(_))));
                pod.apply(&Config { reconcile: true, ..config.clone() }).unwrap();
                let restored = pod.state();
                same(&restored, &made, flags);
                pod.shell(&format!("iptables-{variant} -t nat -F ISTIO_OUTPUT"));
                pod.shell(&format!("iptables-{variant} -t nat -D OUTPUT -j ISTIO_OUTPUT"));
            }
            // The settings of the rules need not be known to remove them, but for excluded interfaces.
            let other = if flags.contains("-c ") { flags } else { "" };
            let clean = pod.config(&format!("{other} --cleanup-only {back_end} --dual-stack"));
            pod.apply(&clean).unwrap();
            same(&pod.state(), &before, flags);
            pod.apply(&clean).unwrap();
        }
    });
}

/// Compares states, apart from the order of rules of different programs, and shows the lines that differ.
fn same(state: &str, expected: &str, of: &str) {
    let only = |a: &str, b: &str| -> Vec<String> {
        a.lines().filter(|line| !b.lines().any(|other| other == *line)).map(str::to_owned).collect()
    };
    let differences = (only(state, expected), only(expected, state));
    assert_eq!(differences, (Vec::new(), Vec::new()), "{of}");
    assert_eq!(state.lines().count(), expected.lines().count(), "{of}: a rule is there twice\n{state}\n{expected}");
}

#[test]
fn the_variant_with_rules_is_chosen() {
    let Some(pod) = Pod::or_skip("the variant with rules is chosen") else { return };
    let config = pod.config("-b * -i *");
    pod.apply(&config).unwrap();
    assert!(pod.shell("iptables-nft-save").contains("ISTIO_OUTPUT"));
    pod.apply(&Config { cleanup_only: true, ..config.clone() }).unwrap();
    pod.shell("iptables-legacy -t filter -A INPUT -s 192.0.2.1 -j DROP");
    pod.apply(&config).unwrap();
    assert!(pod.shell("iptables-legacy-save").contains("ISTIO_OUTPUT"));
    assert!(!pod.shell("iptables-nft-save").contains("ISTIO_OUTPUT"));
    // Rules of ours in the other variant, as another program may have made them, are found; both are removed.
    pod.apply(&Config { force_binary: Some(interception::Binary::Nft), ..config.clone() }).unwrap();
    pod.apply(&config).unwrap();
    pod.apply(&Config { cleanup_only: true, ..config }).unwrap();
    let left = pod.state();
    assert!(!left.contains("ISTIO_") && left.contains("-A INPUT -s 192.0.2.1/32 -j DROP"), "{left}");
    pod.shell("iptables-legacy -t filter -F");
    pod.shell("iptables-legacy -t nat -S");
    pod.apply(&pod.config("-b * -i *")).unwrap();
    assert!(pod.shell("iptables-nft-save").contains("ISTIO_OUTPUT"), "empty tables are no rules");
}

#[test]
fn a_dry_run_changes_nothing() {
    with_each("a dry run changes nothing", |pod, back_end| {
        let before = pod.state();
        let config = pod.config(&format!("-b * -i * -m TPROXY -n {back_end}"));
        let mut output = Vec::new();
        interception_exec::run(&config, &pod.host(&config), &mut output).unwrap();
        let output = String::from_utf8(output).unwrap();
        assert!(
            output.contains("15006") && output.contains("ip -4 rule add pref 32765 fwmark 1337 lookup 133"),
            "{output}"
        );
        assert_eq!(pod.state(), before);
    });
}

/// The rules of each scenario of `interception` are made, recognized and removed by both variants of iptables, and nft takes them.
#[test]
fn the_rules_of_all_scenarios_are_recognized() {
    let Some(pod) = Pod::or_skip("the rules of all scenarios are recognized") else { return };
    let before = pod.state();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../interception/tests/data");
    let mut count = 0;
    for entry in std::fs::read_dir(data).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for case in text.split("== ").filter(|case| case.contains("-- nft")) {
            count += 1;
            scenario(&pod, case);
        }
    }
    assert!(count > 70, "{count}");
    same(&pod.state(), &before, "all scenarios");
}

fn scenario(pod: &Pod, case: &str) {
    let words = |key: &str| case.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().split(' ');
    let addresses = |key: &str| words(key).filter_map(|word| word.parse().ok()).collect();
    let host = Host { addresses: addresses("host "), nameservers: addresses("dns "), ..Host::default() };
    let flags = words("flags ").collect::<Vec<_>>().join(" ");
    for back_end in BACK_ENDS {
        let config = pod.config(&format!("{flags} {back_end}"));
        let plan = interception_exec::run(&config, &host, &mut std::io::sink()).unwrap();
        for family in plan.families.iter().filter(|_| !config.native_nftables) {
            let save = interception::Program::Save(*family);
            let saved = pod.shell(&save.name(if back_end.contains("legacy") { "-legacy" } else { "-nft" }));
            assert_eq!(iptables::apply(&plan, *family, &config, &saved), Ok(None), "{case}\n{saved}");
        }
        let clean = Config { cleanup_only: true, ..config };
        interception_exec::run(&clean, &host, &mut std::io::sink()).unwrap();
    }
}

#[test]
fn validation_finds_missing_rules() {
    for back_end in BACK_ENDS {
        let Some(pod) = Pod::or_skip("validation finds missing rules") else { return };
        assert!(pod.test("validation_in_the_pod_fails").unwrap().contains("1 passed"));
        // Here, the check runs as root: it needs to be the proxy's user.
        pod.apply(&pod.config(&format!("-b * -i * -u 0 {back_end}"))).unwrap();
        assert!(pod.test("validation_in_the_pod_passes").unwrap().contains("1 passed"));
    }
}

async fn validate() -> Option<Result<(), ValidationError>> {
    std::env::var_os(INSIDE)?;
    let config = Config { probe_timeout: std::time::Duration::from_millis(1500), ..Config::default() };
    let host = Host { addresses: vec![POD.parse().unwrap()], ..Host::default() };
    let plan = interception::Plan::new(&config, &host).unwrap();
    Some(interception_exec::validate(&config, &plan).await)
}

/// Runs in the pod of `validation_finds_missing_rules` only.
#[tokio::test]
async fn validation_in_the_pod_fails() {
    let result = validate().await;
    assert!(matches!(result, None | Some(Err(ValidationError::NotRedirected { .. }))), "{result:?}");
}

/// Runs in the pod of `validation_finds_missing_rules` only.
#[tokio::test]
async fn validation_in_the_pod_passes() {
    let result = validate().await;
    assert!(matches!(result, None | Some(Ok(()))), "{result:?}");
}
