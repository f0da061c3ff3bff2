//! Real `kubectl` with Rutter's API, over the embedded store and over etcd. The expected outputs were recorded from a
//! real API server; `docs/reference/api.md` explains the differences.
//!
//! The same scripts are also played with a real API server, so that the recorded outputs are checked again.

use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::cluster::apply_crds;
use e2e::script::{Against, Server, Shell, play, reasons};
use e2e::{kubectl_binary, rutter_binary};
use test_harness::etcd::{Cluster, Settings};
use test_harness::kubernetes::ControlPlane;
use test_harness::run::{Control, Result};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Deletes the namespaces that the scripts create. No controllers run beside the server, because the objects that they
/// create in each namespace would appear in the outputs.
const EMPTY: &str = r#"
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
            kubectl: test_harness::kubectl_minor(kubectl_binary()).ok_or("kubectl does not say its version")?,
        },
    })
}

/// The number of scripts that are played concurrently. Some steps wait; too many at once would exceed timeouts.
static TURNS: Semaphore = Semaphore::const_new(3);

/// Plays a script with its own control plane. Returns the differences and the end of the log.
async fn play_one(script: PathBuf, flags: Vec<String>) -> Result<Option<String>> {
    let _turn = TURNS.acquire().await?;
    let data = tempfile::tempdir()?;
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let control = Control::start_with_api(rutter_binary(), data.path(), &flags).await?;
    let shell = shell(control.kubeconfig().ok_or("it has no kubeconfig")?, Server::Rutter)?;
    let played = tokio::task::spawn_blocking(move || play(&script, &shell)).await?;
    let log = control.log_end()?;
    Ok(played.err().map(|different| format!("{different}\nthe log ends:\n{log}\n")))
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
async fn kubectl_scripts_with_the_embedded_store() {
    let played = play_all(|_| Vec::new()).await;
    played.unwrap_or_else(|error| panic!("{error}"));
}

async fn over_etcd() -> Result<()> {
    let binary = test_harness::etcd::program(&mut |line| eprintln!("{line}"))?;
    let cluster = Cluster::start(&binary, 1, Settings::default()).await?;
    let endpoints = cluster.endpoints().join(",");
    let flags = |number| {
        let flags = format!("--store etcd --etcd-endpoints {endpoints} --etcd-prefix /script-{number}");
        flags.split(' ').map(str::to_owned).collect()
    };
    play_all(flags).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_scripts_with_etcd() {
    over_etcd().await.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn every_difference_from_a_kubernetes_api_server_has_a_reason() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/api.md");
    let page = std::fs::read_to_string(page).unwrap();
    for script in scripts() {
        for reason in reasons(&script).unwrap() {
            let listed = page.contains(&format!("**{reason}**"));
            assert!(listed, "{}: `{reason}` is not in docs/reference/api.md", script.display());
        }
    }
}

/// Plays all scripts with a real API server, one after the other. Returns the differences.
async fn over_kubernetes() -> Result<()> {
    let settings = test_harness::kubernetes::Settings { controllers: false, ..Default::default() };
    let plane = ControlPlane::start(settings).await?;
    apply_crds(&plane).await?;
    let shell = shell(plane.kubeconfig(), Server::Kubernetes)?;
    let played = tokio::task::spawn_blocking(move || {
        let mut wrong = String::new();
        for script in scripts() {
            empty(&shell)?;
            if let Err(different) = play(&script, &shell) {
                wrong.push_str(&different);
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.into()) }
    });
    played.await?
}

fn empty(shell: &Shell) -> Result<()> {
    let programs = tempfile::tempdir()?;
    for (name, path) in &shell.programs {
        std::os::unix::fs::symlink(path, programs.path().join(name))?;
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let emptied = Command::new("sh")
        .args(["-ec", EMPTY])
        .env("PATH", format!("{}:{path}", programs.path().display()))
        .env("KUBECONFIG", &shell.kubeconfig)
        .output()?;
    match emptied.status.success() {
        true => Ok(()),
        false => Err(format!("not emptied: {}", String::from_utf8_lossy(&emptied.stderr)).into()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_scripts_with_kubernetes() {
    over_kubernetes().await.unwrap_or_else(|error| panic!("{error}"));
}
