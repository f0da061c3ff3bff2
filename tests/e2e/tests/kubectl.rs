//! Real `kubectl` against Rutter's API, over the embedded store and over etcd, with the outputs that a real API server
//! gives; `docs/api.md` explains what differs.
//!
//! `RUTTER_PEER=KUBECONFIG cargo test -p e2e --test kubectl -- --ignored` plays the same scripts against a real API server,
//! from which the outputs were recorded. It is given Rutter's CRDs, and the namespaces of the scripts are emptied first.

use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::script::{Against, Server, Shell, play, reasons};
use e2e::{kubectl_binary, rutter_binary};
use parts::etcd::{Cluster, Settings};
use parts::run::{Control, Result};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Makes a real API server ready: the CRDs are there, and the namespaces that the scripts make are not. Nothing else runs
/// beside such a server that would take a namespace away.
const PREPARE: &str = r#"
rutter crds | kubectl apply --server-side --force-conflicts -f - > /dev/null
kubectl wait --for=condition=established crd --all > /dev/null
kinds=$(kubectl api-resources --namespaced --verbs=delete -o name | paste -s -d , -)
for namespace in shop cellar; do
  kubectl get namespace $namespace -o name > /dev/null 2>&1 || continue
  kubectl delete namespace $namespace --wait=false > /dev/null
  kubectl delete "$kinds" --all --namespace $namespace --wait=false > /dev/null
  kubectl get "$kinds" --namespace $namespace -o name 2> /dev/null | while read object; do
    kubectl patch $object --namespace $namespace --type merge -p '{"metadata":{"finalizers":null}}' > /dev/null || true
  done
  echo '{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"'$namespace'"},"spec":{"finalizers":[]}}' |
    kubectl replace --raw /api/v1/namespaces/$namespace/finalize -f - > /dev/null
  kubectl wait --for=delete namespace/$namespace --timeout=10s > /dev/null
done
"#;

fn scripts() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/kubectl");
    let entries = std::fs::read_dir(directory).unwrap_or_else(|error| panic!("{error}"));
    let only = std::env::var("RUTTER_SCRIPT").unwrap_or_default();
    let mut scripts: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.to_string_lossy().contains(&only))
        .collect();
    scripts.sort();
    scripts
}

fn shell(kubeconfig: PathBuf, server: Server) -> Result<Shell> {
    let programs = [("kubectl", kubectl_binary()), ("rutter", rutter_binary())];
    Ok(Shell {
        kubeconfig,
        programs: programs.map(|(name, path)| (name.to_owned(), path.to_owned())).into(),
        against: Against {
            server,
            kubectl: parts::kubectl_minor(kubectl_binary()).ok_or("kubectl does not say its version")?,
        },
    })
}

/// How many scripts are played at once: steps that wait leave the machine to others, and too many would be late for all.
static TURNS: Semaphore = Semaphore::const_new(3);

/// Plays a script over a control plane of its own; what differs, and the end of its log.
async fn play_one(script: PathBuf, flags: Vec<String>) -> Result<Option<String>> {
    let _turn = TURNS.acquire().await?;
    let data = tempfile::tempdir()?;
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let control = Control::start_with_api(rutter_binary(), data.path(), &flags).await?;
    let shell = shell(control.kubeconfig().ok_or("it has no kubeconfig")?, Server::Rutter)?;
    let played = tokio::task::spawn_blocking(move || play(&script, &shell)).await?;
    let log = control.log_end()?;
    Ok(played
        .err()
        .map(|different| format!("{different}\nthe log ends:\n{log}\n")))
}

async fn play_all(flags: impl Fn(usize) -> Vec<String>) -> Result<()> {
    let mut players = JoinSet::new();
    for (number, script) in scripts().into_iter().enumerate() {
        players.spawn(play_one(script, flags(number)));
    }
    let mut wrong = String::new();
    while let Some(played) = players.join_next().await {
        wrong.extend(played??);
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.into()) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_over_the_embedded_store() {
    let played = play_all(|_| Vec::new()).await;
    played.unwrap_or_else(|error| panic!("{error}"));
}

async fn over_etcd() -> Result<()> {
    let binary = parts::etcd::program(&mut |line| eprintln!("{line}"))?;
    let cluster = Cluster::start(&binary, 1, Settings::default()).await?;
    let endpoints = cluster.endpoints().join(",");
    let flags = |number| {
        let flags = format!("--store etcd --etcd-endpoints {endpoints} --etcd-prefix /script-{number}");
        flags.split(' ').map(str::to_owned).collect()
    };
    play_all(flags).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_over_etcd() {
    over_etcd().await.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn every_difference_is_explained() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api.md");
    let page = std::fs::read_to_string(page).unwrap();
    for script in scripts() {
        for reason in reasons(&script).unwrap() {
            let listed = page.contains(&format!("**{reason}**"));
            assert!(listed, "{}: `{reason}` is not in docs/api.md", script.display());
        }
    }
}

#[test]
#[ignore = "needs a real API server, whose kubeconfig RUTTER_PEER names"]
fn scripts_over_a_peer() {
    let peer = std::env::var_os("RUTTER_PEER").expect("RUTTER_PEER names the kubeconfig of an API server");
    let peer = PathBuf::from(peer);
    let shell = shell(peer.clone(), Server::Kubernetes).unwrap();
    let programs = tempfile::tempdir().unwrap();
    for (name, path) in &shell.programs {
        std::os::unix::fs::symlink(path, programs.path().join(name)).unwrap();
    }
    let path = format!(
        "{}:{}",
        programs.path().display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let mut wrong = String::new();
    for script in scripts() {
        let mut prepare = Command::new("sh");
        prepare
            .args(["-c", PREPARE])
            .env("PATH", &path)
            .env("KUBECONFIG", &peer);
        assert!(
            prepare.status().unwrap().success(),
            "the server could not be made ready"
        );
        if let Err(different) = play(&script, &shell) {
            wrong.push_str(&different);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
