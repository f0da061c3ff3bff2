//! A conformance suite: a Go module, built and run unchanged.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use test_harness::run::Result;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::Choice;
use crate::cluster::{CLASS, Cluster, MESH};
use crate::outcome::Outcome;

/// The folders that pin the DNS server of the pods, and the programs of mesh tests: their dependencies differ.
const DNS: &str = "go-dns";
const ECHO: &str = "go-echo";

/// The published profiles.
pub(crate) const PROFILES: [&str; 7] =
    ["GATEWAY-HTTP", "GATEWAY-GRPC", "GATEWAY-TLS", "GATEWAY-TCP", "GATEWAY-UDP", "MESH-HTTP", "MESH-GRPC"];

/// An address that no Service gets: one for documentation.
const UNUSABLE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// A suite that can be built.
pub(crate) struct Source {
    /// The folder that pins it.
    folder: &'static str,
    module: &'static str,
    /// The modules with CRDs, and their directories there.
    crds: &'static [(&'static str, &'static str)],
    /// The names of its program and of its report.
    program: &'static str,
    report: &'static str,
    /// The package of the endpoint picker that its pods run, if there is one.
    picker: Option<&'static str>,
}

/// The CRDs of the Gateway API, those of the experimental channel.
const GATEWAY_CRDS: (&str, &str) = ("sigs.k8s.io/gateway-api", "config/crd/experimental");

/// The suite of the Gateway API.
pub(crate) const GATEWAY_API: Source = Source {
    folder: "go",
    module: "sigs.k8s.io/gateway-api/conformance",
    crds: &[GATEWAY_CRDS],
    program: "suite",
    report: "report.yaml",
    picker: None,
};

/// The suite of the Gateway API Inference Extension.
pub(crate) const INFERENCE: Source = Source {
    folder: "go-inference",
    module: "sigs.k8s.io/gateway-api-inference-extension/conformance",
    crds: &[GATEWAY_CRDS, ("sigs.k8s.io/gateway-api-inference-extension", "config/crd/bases")],
    program: "inference-suite",
    report: "inference-report.yaml",
    picker: Some("./picker"),
};

/// The built suite.
pub(crate) struct Suite {
    source: &'static Source,
    go: PathBuf,
    program: PathBuf,
    /// The program that most of its pods run.
    pub(crate) echo: PathBuf,
    /// CoreDNS.
    pub(crate) dns: PathBuf,
    /// The server and the client that the pods of mesh tests run, if there are such tests.
    pub(crate) mesh: Option<[PathBuf; 2]>,
    /// The endpoint picker of the pods, if the suite has one.
    pub(crate) picker: Option<PathBuf>,
}

impl Suite {
    /// Builds the suite and the programs of its pods, as far as their sources changed. Those of mesh tests are built on demand.
    pub(crate) fn build(source: &'static Source, mesh: bool) -> Result<Suite> {
        let say = &mut |line: &str| eprintln!("==> {line}");
        let go = test_harness::go_toolchain(say)?;
        let place = test_harness::tools_dir().join("conformance");
        let [program, echo, dns] = [source.program, "echo-basic", "coredns"].map(|name| place.join(name));
        let mesh = mesh.then(|| ["server", "client"].map(|name| place.join("echo").join(name)));
        let picker = source.picker.is_some().then(|| place.join("picker"));
        let suite = Suite { source, go, program, echo, dns, mesh, picker };
        let test = ["test", "-c", "-trimpath", "-o"];
        let build = ["build", "-trimpath", "-o"];
        suite.make(source.folder, &test, &suite.program, source.module)?;
        suite.make(GATEWAY_API.folder, &build, &suite.echo, &format!("{}/echo-basic", GATEWAY_API.module))?;
        suite.make(DNS, &build, &suite.dns, "github.com/coredns/coredns")?;
        for program in suite.mesh.iter().flatten() {
            let name = program.file_name().unwrap_or_default().display();
            suite.make(ECHO, &build, program, &format!("istio.io/istio/pkg/test/echo/cmd/{name}"))?;
        }
        for (package, program) in source.picker.iter().zip(&suite.picker) {
            suite.make(source.folder, &build, program, package)?;
        }
        Ok(suite)
    }

    fn make(&self, folder: &str, words: &[&str], to: &Path, package: &str) -> Result<()> {
        eprintln!("==> building {package}");
        self.go(folder, &[words, &[&to.display().to_string(), package]].concat()).map(drop)
    }

    /// The files with CRDs.
    pub(crate) fn crds(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for (module, directory) in self.source.crds {
            for entry in std::fs::read_dir(self.directory(module)?.join(directory))? {
                files.push(entry?.path());
            }
        }
        // The folders also have a file that is no object.
        files.retain(|path| !path.ends_with("kustomization.yaml"));
        Ok(files)
    }

    /// The names of the images in the suite's manifests.
    pub(crate) fn image_names(&self) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for manifest in self.manifests()? {
            names.extend(images_in(&manifest));
        }
        Ok(names)
    }

    /// The texts of the suite's manifests.
    pub(crate) fn manifests(&self) -> Result<Vec<String>> {
        let mut texts = Vec::new();
        let mut directories = vec![self.directory(self.source.module)?];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(&directory)? {
                let path = entry?.path();
                match path.extension().and_then(|extension| extension.to_str()) {
                    _ if path.is_dir() => directories.push(path),
                    Some("yaml") => texts.push(std::fs::read_to_string(&path)?),
                    _ => {}
                }
            }
        }
        Ok(texts)
    }

    /// Runs the suite against a cluster whose Services may request this address.
    pub(crate) async fn run(&self, cluster: &Cluster, usable: Ipv4Addr, choice: &Choice) -> Result<Outcome> {
        let mut command = tokio::process::Command::new(&self.program);
        command
            .args(["-test.v=test2json", "-test.timeout=0"])
            .arg(format!("-test.run={}", choice.pattern()))
            .args(profiles(choice))
            .arg(format!("--usable-address={usable}"))
            .arg(format!("--unusable-address={UNUSABLE}"))
            .args(choice.skip.as_ref().map(|tests| format!("--skip-tests={tests}")))
            .args(choice.all_features.then_some("--all-features"))
            .args(report(choice, self.source.report)?)
            .env("KUBECONFIG", cluster.kubeconfig())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        let output = child.stdout.take().ok_or("the suite has no output")?;
        let mut log = std::fs::File::create(choice.output.join("suite.log"))?;
        let (mut lines, mut outcome) = (BufReader::new(output).lines(), Outcome::default());
        while let Some(line) = lines.next_line().await? {
            writeln!(log, "{line}")?;
            outcome.note(&line);
        }
        outcome.succeeded = child.wait().await?.success();
        Ok(outcome)
    }

    /// The directory of a module in Go's cache.
    fn directory(&self, module: &str) -> Result<PathBuf> {
        Ok(PathBuf::from(self.go(self.source.folder, &["list", "-m", "-f", "{{.Dir}}", module])?.trim()))
    }

    fn go(&self, folder: &str, arguments: &[&str]) -> Result<String> {
        let output = Command::new(&self.go)
            .args(arguments)
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder))
            .env("CGO_ENABLED", "0")
            .stdin(Stdio::null())
            .output()?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(format!("go {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()).into())
    }
}

/// The arguments that select profiles and features.
fn profiles(choice: &Choice) -> Vec<String> {
    if choice.inference {
        // The suite has one profile, whose features are all of the core.
        return vec![format!("--gateway-class={CLASS}")];
    }
    let profiles = choice.profiles();
    // Tests of the mesh use pods that the suite deploys only for those of gateways.
    let mut arguments =
        vec![format!("--gateway-class={CLASS}"), format!("--conformance-profiles={}", profiles.join(","))];
    if choice.has_mesh() {
        arguments.push("--namespace-labels=istio-injection=enabled".to_owned());
        arguments.push(format!("--mesh-name={MESH}"));
    }
    arguments.extend(choice.features.as_ref().map(|names| format!("--supported-features={names}")));
    arguments
}

/// Whether a profile is for sidecars.
pub(crate) fn is_of_mesh(profile: &str) -> bool {
    profile.starts_with("MESH")
}

/// The arguments for the report. A run of single tests has none: the suite would count the others as successes.
fn report(choice: &Choice, name: &str) -> Result<Vec<String>> {
    if !choice.run.is_empty() {
        return Ok(Vec::new());
    }
    let path = std::path::absolute(choice.output.join(name))?;
    let about =
        ["--organization=rutter", "--project=rutter", "--url=https://rutter.io", "--contact=@rutter/maintainers"];
    let mut arguments: Vec<String> = about.map(str::to_owned).into();
    arguments.push(format!("--version={}", env!("CARGO_PKG_VERSION")));
    arguments.push(format!("--report-output={}", path.display()));
    Ok(arguments)
}

/// The images in a manifest.
fn images_in(manifest: &str) -> impl Iterator<Item = String> {
    manifest.lines().filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix("image: ")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_found() {
        let found: Vec<String> = images_in("spec:\n  - image: a/b:1\n    image: c/d:2\n").collect();
        assert_eq!(found, ["a/b:1", "c/d:2"]);
    }
}
