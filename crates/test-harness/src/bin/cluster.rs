//! Runs a real Kubernetes for interactive use: `cargo xtask cluster up | down | status`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use test_harness::kubernetes::{Kept, VERSION, down, status, up};
use test_harness::run::Result;

const USAGE: &str = "\
usage: cargo xtask cluster COMMAND

A real Kubernetes on this machine, which runs until it is ended. It is kept in target/cluster and changes nothing else.

  up            start etcd, kube-apiserver and kube-controller-manager: 3 seconds, 400 MB, no root.
                The programs are built the first time: 5 minutes
  up --node     the same with a node that runs pods: 15 seconds, 400 MB more. It needs root and, on Debian,
                apt-get install containerd runc containernetworking-plugins nftables iproute2
  status        what runs, and the kubeconfig
  down          end it and take everything away

Use it with `export KUBECONFIG=…` as `up` prints it. Logs are in target/cluster/logs.
`cargo xtask setup` gets a kubectl where there is none: target/tools/kubernetes-…/kubectl.";

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let dir = test_harness::tools_dir().with_file_name("cluster");
    let done = match words[..] {
        ["up"] => go_up(&dir, false).await,
        ["up", "--node"] => go_up(&dir, true).await,
        ["status"] => show(&dir),
        ["down"] => go_down(&dir),
        ["help" | "--help" | "-h"] | [_, "--help" | "-h"] => {
            say(USAGE);
            return ExitCode::SUCCESS;
        }
        [] => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
        _ => {
            eprintln!("cluster: `{}` is not understood\n\n{USAGE}", words.join(" "));
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("cluster: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn go_up(dir: &Path, node: bool) -> Result<ExitCode> {
    let begin = std::time::Instant::now();
    let kept = up(dir, node, &mut |line| eprintln!("==> {line}")).await?;
    eprintln!("==> ready after {:.1} s", begin.elapsed().as_secs_f32());
    say(&format!("export KUBECONFIG={}", kept.kubeconfig.display()));
    Ok(ExitCode::SUCCESS)
}

fn show(dir: &Path) -> Result<ExitCode> {
    let Some(kept) = status(dir)? else {
        say("no cluster; `cargo xtask cluster up` starts one");
        return Ok(ExitCode::FAILURE);
    };
    say(&table(&kept, &dir.join("logs")));
    if kept.is_whole() {
        say(&format!("export KUBECONFIG={}", kept.kubeconfig.display()));
        return Ok(ExitCode::SUCCESS);
    }
    say("the cluster is not whole; `cargo xtask cluster down` takes away what is left");
    Ok(ExitCode::FAILURE)
}

fn table(kept: &Kept, logs: &Path) -> String {
    let node = if kept.node { "with a node" } else { "without a node" };
    let mut lines = vec![format!("Kubernetes {VERSION}, {node}")];
    for program in &kept.programs {
        let state = if program.running { "running" } else { "ended" };
        let log: PathBuf = logs.join(format!("{}.log", program.name));
        lines.push(format!("{:<24} {:>8} {state:<8} {}", program.name, program.pid, log.display()));
    }
    lines.join("\n")
}

fn go_down(dir: &Path) -> Result<ExitCode> {
    match down(dir)? {
        true => say("the cluster is gone"),
        false => say("there was no cluster"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the requested output for a person or a script.
#[allow(clippy::print_stdout)]
fn say(line: &str) {
    println!("{line}");
}
