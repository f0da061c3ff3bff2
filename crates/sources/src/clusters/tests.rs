//! Secrets and the kubeconfigs in them.

use std::collections::{BTreeMap, BTreeSet};

use config::Timestamp;
use proptest::prelude::*;

use super::*;

const TOKEN: &str = "hush-token";

fn config(user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\nclusters: \
         [{{name: k, cluster: {{server: \"https://127.0.0.1:1\"}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
    )
}

fn good(number: u8) -> String {
    config(&format!("token: {TOKEN}{number}"))
}

fn refusal(text: &str, allowed: Allowed) -> RejectedKubeconfig {
    let refusal = Kubeconfig::read(text.as_bytes(), allowed).expect_err("the kubeconfig is rejected");
    assert!(!format!("{refusal:?}").contains("hush"), "{refusal:?}");
    refusal
}

fn at(second: u8) -> Timestamp {
    Timestamp::parse(&format!("2026-01-01T00:00:{second:02}Z")).unwrap()
}

/// Updates a Secret, parsing its kubeconfigs as the runtime does.
fn put(secrets: &mut Secrets<Kubeconfig>, name: &str, made: u8, data: &[(&str, &str)]) {
    let texts = data.iter().map(|(cluster, text)| {
        let hash = hash(text.as_bytes());
        let read = || Kubeconfig::read(text.as_bytes(), Allowed::default());
        Text { cluster: (*cluster).into(), hash, read: (!secrets.knows(name, cluster, hash)).then(read) }
    });
    let texts = texts.collect();
    secrets.put(name, Some(at(made)), texts);
}

/// The steps, as `+ID SECRET` and `-ID`.
fn steps(settled: &Settled<Kubeconfig>) -> Vec<String> {
    let one = |step: &Step<Kubeconfig>| match step {
        Step::Start { cluster, secret, .. } => format!("+{cluster} {secret}"),
        Step::End { cluster } => format!("-{cluster}"),
    };
    settled.steps.iter().map(one).collect()
}

#[tokio::test]
async fn kubeconfigs_that_run_programs_or_send_files_are_rejected() {
    let cases = [
        ("exec: {command: hush, apiVersion: v1}", "users[0].user.exec"),
        ("auth-provider: {name: oidc, config: {hush: a}}", "users[0].user.auth-provider"),
        ("tokenFile: /etc/hush", "users[0].user.tokenFile"),
        ("client-certificate: /etc/hush", "users[0].user.client-certificate"),
        ("client-key: /etc/hush", "users[0].user.client-key"),
    ];
    for (user, path) in cases {
        let refusal = refusal(&config(user), Allowed::default());
        assert_eq!(refusal.path.to_string(), path);
        assert!(refusal.hint.is_some());
    }
    let allowed = Allowed::parse("exec, tokenFile,clientCertificate,clientKey").unwrap();
    for (user, _) in cases.iter().filter(|(user, _)| !user.starts_with("auth")) {
        assert!(Kubeconfig::read(config(user).as_bytes(), allowed).is_ok(), "{user}");
    }
    assert_eq!(Allowed::parse("exec,gcp"), Err(UnknownFeature("gcp".to_owned())));
    let read = Kubeconfig::read(good(1).as_bytes(), Allowed::default()).unwrap();
    assert!(!format!("{read:?}").contains(TOKEN));
    assert!(read.connect().await.is_ok());
    assert_eq!(read.cluster(), "k");
}

#[tokio::test]
async fn unusable_kubeconfigs_are_rejected() {
    let cases = [
        (String::new(), ""),
        ("hush: [".to_owned(), ""),
        (good(1).replace("current-context: c", "current-context: \"\""), "current-context"),
        (good(1).replace("current-context: c", "current-context: hush"), "current-context"),
        (good(1).replace("{cluster: k,", "{cluster: hush,"), "contexts"),
        (good(1).replace("user: u}", "user: hush}"), "contexts"),
        (good(1).replace("https://127.0.0.1:1", ""), "clusters[0].cluster.server"),
        (good(1).replace("https://", "hush://"), "clusters[0].cluster.server"),
        ("a".repeat(2 << 20), ""),
    ];
    for (text, path) in cases {
        assert_eq!(refusal(&text, Allowed::default()).path.to_string(), path, "{text:.300}");
    }
    let wrong = [
        ("server:", "certificate-authority-data: \"%\", server:", "certificate-authority-data"),
        ("token:", "client-certificate-data: \"%hush\", client-key-data: \"%\", token:", ""),
    ];
    for (from, to, path) in wrong {
        let text = good(1).replace(from, to);
        let read = Kubeconfig::read(text.as_bytes(), Allowed::default()).unwrap();
        let refusal = read.connect().await.err().expect("the kubeconfig is unusable");
        assert!(!format!("{refusal:?}").contains("hush"), "{refusal:?}");
        assert_eq!(refusal.path.to_string(), path);
    }
}

#[test]
fn the_oldest_secret_takes_precedence_and_the_next_takes_over() {
    let mut secrets = Secrets::new("Secret mesh/", "home");
    let (one, two) = (good(1), good(2));
    put(&mut secrets, "b", 1, &[("east", &one), ("home", &one)]);
    put(&mut secrets, "a", 2, &[("east", &two), ("west", &two)]);
    let settled = secrets.settle();
    assert_eq!(steps(&settled), ["+east Secret mesh/b", "+west Secret mesh/a"]);
    let reported: Vec<String> = settled.diagnostics.values().flatten().map(ToString::to_string).collect();
    assert!(reported[0].starts_with("Secret mesh/a: warning: data[\"east\"]: Secret mesh/b"), "{reported:?}");
    assert!(reported[1].contains("data[\"home\"]: this is the config cluster"), "{reported:?}");
    assert!(secrets.settle().steps.is_empty() && secrets.settle().diagnostics.is_empty());

    // A rejected text removes nothing, and does not give the cluster to the next Secret.
    let refused = config("tokenFile: a");
    put(&mut secrets, "b", 1, &[("east", &refused)]);
    let settled = secrets.settle();
    assert!(settled.steps.is_empty(), "{settled:?}");
    let reported = settled.diagnostics["Secret mesh/b"][0].to_string();
    assert!(
        reported.starts_with("Secret mesh/b: error: data[\"east\"].users[0].user.tokenFile: a file of"),
        "{reported}"
    );
    put(&mut secrets, "b", 1, &[("east", &two)]);
    assert_eq!(steps(&secrets.settle()), ["+east Secret mesh/b"], "another text");
    secrets.remove("b");
    let settled = secrets.settle();
    assert_eq!(steps(&settled), ["+east Secret mesh/a"]);
    assert!(settled.diagnostics.values().all(Vec::is_empty), "{settled:?}");
    secrets.remove("a");
    assert_eq!(steps(&secrets.settle()), ["-east", "-west"]);
    assert_eq!(secrets.followed().count(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_bytes_cause_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0..400usize, cut in 0..400usize) {
        let _ = Kubeconfig::read(&bytes, Allowed::default());
        let text = good(1).into_bytes();
        let (at, cut) = (at.min(text.len()), cut.min(text.len()));
        let spliced = [&text[..at.min(cut)], &bytes, &text[at.max(cut)..]].concat();
        if let Err(refusal) = Kubeconfig::read(&spliced, Allowed::default()) {
            let reported = format!("{refusal:?}");
            prop_assert!(!reported.contains(TOKEN), "{}", reported);
        }
    }

    /// After any edits, in any order, the same clusters are followed with the same texts, except those whose text is
    /// rejected now and was valid before.
    #[test]
    fn the_followed_clusters_depend_only_on_the_secrets(edits in proptest::collection::vec((0..3u8, proptest::collection::btree_map(0..3u8, 0..3u8, 0..3)), 1..20)) {
        let mut secrets = Secrets::new("Secret mesh/", "c0");
        let mut there: BTreeMap<u8, BTreeMap<u8, u8>> = BTreeMap::new();
        let mut following: BTreeSet<String> = BTreeSet::new();
        for (secret, data) in edits {
            let texts: Vec<(String, String)> = data.iter().map(|(id, number)| (format!("c{id}"), good(*number))).collect();
            match data.is_empty() {
                true => secrets.remove(&format!("s{secret}")),
                false => {
                    let texts: Vec<(&str, &str)> = texts.iter().map(|(id, text)| (&**id, &**text)).collect();
                    put(&mut secrets, &format!("s{secret}"), secret, &texts);
                }
            }
            there.insert(secret, data);
            for step in secrets.settle().steps {
                match step {
                    Step::Start { cluster, secret, .. } => {
                        following.retain(|held| !held.starts_with(&*cluster));
                        following.insert(format!("{cluster} {secret}"));
                    }
                    Step::End { cluster } => {
                        let before = following.len();
                        following.retain(|held| !held.starts_with(&*cluster));
                        prop_assert_eq!(following.len() + 1, before);
                    }
                }
            }
        }
        let holder = |id: u8| there.iter().find(|(_, data)| data.contains_key(&id)).map(|(secret, _)| format!("c{id} Secret mesh/s{secret}"));
        let expected: BTreeSet<String> = [1, 2].into_iter().filter_map(holder).collect();
        prop_assert_eq!(following, expected);
    }
}
