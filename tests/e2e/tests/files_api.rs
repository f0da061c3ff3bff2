//! The read-only API over a directory of files, with real `kubectl` and a real Envoy: objects, edits, statuses and refused
//! writes.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use e2e::{HOST, envoy_binary, kubectl_binary, rutter, rutter_binary, shop_service, virtual_service};
use tempfile::TempDir;
use test_harness::run::{Backend, ConfigDir, Control, Envoy, Node, Protocol, Result, free_port, wait_for};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

const PATIENCE: Duration = Duration::from_secs(30);

/// A control plane with a directory.
struct Home {
    control: Control,
    config: ConfigDir,
    kubeconfig: PathBuf,
    _data: TempDir,
}

impl Home {
    async fn start(files: &[(&str, &str)]) -> Result<Home> {
        let (config, data) = (ConfigDir::new()?, tempfile::tempdir()?);
        for (name, text) in files {
            config.put(name, text)?;
        }
        let control = Control::start_with_files(rutter_binary(), config.path(), data.path(), &[]).await?;
        let kubeconfig = control.kubeconfig().ok_or("it has no kubeconfig")?;
        Ok(Home { control, config, kubeconfig, _data: data })
    }

    /// Runs `kubectl` with this input.
    async fn kubectl(&self, arguments: &str, input: &str) -> Result<Output> {
        let mut command = command(&self.kubeconfig, arguments);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes()).await?;
        }
        Ok(tokio::time::timeout(PATIENCE, child.wait_with_output()).await??)
    }

    /// The output of a successful `kubectl`.
    async fn done(&self, arguments: &str) -> Result<String> {
        let output = self.kubectl(arguments, "").await?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.success() {
            true => Ok(text),
            false => Err(format!("kubectl {arguments}: {text}{}", String::from_utf8_lossy(&output.stderr)).into()),
        }
    }

    /// The error of a refused write.
    async fn refused(&self, arguments: &str, input: &str) -> Result<()> {
        let output = self.kubectl(arguments, input).await?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let place = format!("its objects are read from the files in {}", self.config.path().display());
        assert!(!output.status.success() && text.contains("the API is read-only"), "{arguments}: {text}");
        assert!(text.contains(&place) && text.contains("edit the files there to change them"), "{arguments}: {text}");
        Ok(())
    }
}

fn command(kubeconfig: &Path, arguments: &str) -> Command {
    let mut command = Command::new(kubectl_binary());
    command.args(arguments.split(' ')).env("KUBECONFIG", kubeconfig).env("HOME", kubeconfig.with_file_name("home"));
    command.stdout(Stdio::piped()).kill_on_drop(true);
    command
}

/// A running `kubectl get --watch`.
struct Watch {
    _child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watch {
    fn start(home: &Home, arguments: &str) -> Result<Watch> {
        let mut child = command(&home.kubeconfig, arguments).stdin(Stdio::null()).spawn()?;
        let out = child.stdout.take().ok_or("no output")?;
        Ok(Watch { _child: child, lines: BufReader::new(out).lines() })
    }

    /// Reads until a line has this text.
    async fn see(&mut self, text: &str) -> Result<()> {
        let seen = async {
            while let Some(line) = self.lines.next_line().await? {
                if line.contains(text) {
                    return Ok(());
                }
            }
            Err(format!("the watch ended before `{text}`").into())
        };
        tokio::time::timeout(PATIENCE, seen).await.map_err(|_| format!("no `{text}` in the watch"))?
    }
}

fn to(version: &str) -> String {
    let route = format!("[{{ route: [{{ destination: {{ host: {HOST}, subset: {version} }} }}] }}]");
    virtual_service("[mesh]", &route)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_reads_and_watches_files() {
    reads().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn reads() -> Result<()> {
    const SECRET: &str = "apiVersion: v1\nkind: Secret\nmetadata: { name: s }\nstringData: { key: hidden }\n";
    let backend = Backend::start("v1", "shop-0").await?;
    let service = shop_service(free_port(), "{ tls: { mode: DISABLE } }", &[&backend]);
    let home = Home::start(&[("mesh.yaml", &service), ("route.yaml", &to("v1")), ("secret.yaml", SECRET)]).await?;
    let uid = home.done("get vs shop -n test -o jsonpath={.metadata.uid}").await?;
    assert_eq!(uid.len(), 36);
    assert!(home.done("get serviceentries,destinationrules -n test").await?.lines().count() >= 4);
    assert!(home.done("describe vs shop -n test").await?.contains("Subset:  v1"));
    assert_eq!(home.done("get secrets -A -o name").await?, "");
    let verbs = home.done("api-resources --api-group networking.istio.io --verbs list -o wide --no-headers").await?;
    assert!(verbs.contains("get,list,watch") && !verbs.contains("create"), "{verbs}");
    let may = home.kubectl("auth can-i delete virtualservices.networking.istio.io", "").await?;
    assert!(!may.status.success());

    let mut watch =
        Watch::start(&home, "get vs -n test -o jsonpath={.spec.http[0].route[0].destination.subset}{\"\\n\"} --watch")?;
    watch.see("v1").await?;
    home.config.put("route.yaml", &to("v2"))?;
    watch.see("v2").await?;
    let path = "get vs shop -n test -o jsonpath={.metadata.uid},{.metadata.generation}";
    assert_eq!(home.done(path).await?, format!("{uid},2"), "the same object in its second generation");

    // The status says that the reference does not resolve, until the file is corrected.
    let wait = |what: &str| format!("wait vs/shop -n test --for={what} --timeout 20s");
    home.done(&wait("jsonpath={.status.conditions[?(@.type==\"ResolvedRefs\")].status}=False")).await?;
    home.config.put("route.yaml", &to("v1"))?;
    home.done(&wait("jsonpath={.status.observedGeneration}=3")).await?;
    home.done(&wait("condition=Programmed")).await?;
    // An invalid version: the last valid one stays in effect.
    home.config.put("route.yaml", &to("v1").replacen(HOST, "'-bad-'", 1))?;
    home.done(&wait("condition=Accepted=False")).await?;
    home.config.remove("route.yaml")?;
    home.done(&wait("delete")).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_are_refused() {
    writes().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn writes() -> Result<()> {
    let mut home = Home::start(&[("route.yaml", &to("v1"))]).await?;
    home.refused("apply -f -", &to("v2")).await?;
    home.refused("create -f -", &to("v2").replace("name: shop", "name: other")).await?;
    home.refused("delete vs shop -n test", "").await?;
    home.refused("delete vs --all -n test", "").await?;
    home.refused("label vs shop -n test a=b", "").await?;
    home.refused("replace -f -", &to("v2")).await?;
    home.refused("patch vs shop -n test --subresource status --type merge -p {\"status\":null}", "").await?;
    let version = |text: String| -> Result<u64> { Ok(text.trim().parse()?) };
    let path = "get vs shop -n test -o jsonpath={.metadata.resourceVersion}";
    let before = version(home.done(path).await?)?;
    // Revisions ascend across a restart, so that clients notice it.
    assert!(home.control.stop().await?);
    home.control.begin().await?;
    assert!(version(home.done(path).await?)? > before);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_validated_against_the_live_mesh() {
    validated().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn validated() -> Result<()> {
    let backend = Backend::start("v1", "shop-0").await?;
    let service = shop_service(free_port(), "{ tls: { mode: DISABLE } }", &[&backend]);
    let home = Home::start(&[("mesh.yaml", &service)]).await?;
    let validate = async |arguments: &[&str], text: &str| -> Result<(bool, String)> {
        let all = [&["validate", "-", "-o", "short", "--strict"], arguments].concat();
        let output = rutter(&home.kubeconfig, &all, text).await?;
        Ok((output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned()))
    };
    let (good, text) = validate(&["--live"], &to("v1")).await?;
    assert!(good, "{text}");
    let (good, text) = validate(&["--live"], &to("v3")).await?;
    assert!(
        !good
            && text
                .contains("destination.subset: no DestinationRule for shop.test.svc.cluster.local has the subset v3"),
        "{text}"
    );
    let gateway = to("v1").replacen("[mesh]", "[mesh, edge]", 1);
    let (good, text) = validate(&["--live"], &gateway).await?;
    assert!(!good && text.contains("spec.gateways[1]: there is no Gateway test/edge"), "{text}");
    // Without a server, the objects are elsewhere.
    assert!(validate(&[], &gateway).await?.0);
    let exported = rutter(&home.kubeconfig, &["export", "-A"], "").await?;
    assert!(String::from_utf8_lossy(&exported.stdout).contains("kind: WorkloadEntry"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statuses_count_the_proxies_that_run_a_file() {
    counts().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn counts() -> Result<()> {
    let backend = Backend::start("v1", "shop-0").await?;
    let port = free_port();
    let service = shop_service(port, "{ tls: { mode: DISABLE } }", &[&backend]);
    let home = Home::start(&[("mesh.yaml", &service), ("route.yaml", &to("v1"))]).await?;
    let node = Node::sidecar("client", "test", "127.0.0.2", &[("app", "client")]);
    let envoy = Envoy::start(envoy_binary(), &node, Protocol::Delta, home.control.grpc()).await?;
    envoy.wait_for_listener(([127, 0, 0, 1], port).into()).await?;
    let running = "get vs shop -n test -o jsonpath={.status.proxies.running}/{.status.proxies.generation}";
    let counted = |wanted: &'static str| {
        let home = &home;
        wait_for(wanted, PATIENCE, move || async move { (home.done(running).await.ok()? == wanted).then_some(()) })
    };
    counted("1/1").await?;
    home.config.put("route.yaml", &to("v1").replace("http:", "exportTo: ['*'], http:"))?;
    counted("1/2").await?;
    home.done("wait vs/shop -n test --for=condition=Programmed --timeout 20s").await.map(drop)
}
