//! The running parts of the demo's cluster.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use test_harness::kubernetes::{ControlPlane, Method, Node, Settings};
use test_harness::run::{Counts, Protocol, Result, http, read_counts, wait_for};

use super::Choice;
use super::images;
use super::manifests::{self, Addresses, COUNTS_PORT, FIGURES_PORT, METRICS_PORT, NAMESPACE, SYSTEM};
use super::pods::Pod;
use crate::screen::Screen;

/// The timeout of every step.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);

/// A cluster with Rutter, the shop and its client.
pub(crate) struct Stage {
    // Dropped first: the node must end before its control plane.
    node: Node,
    plane: ControlPlane,
    client: IpAddr,
}

impl Stage {
    /// Starts everything and waits until all pods are ready.
    pub(super) async fn start(choice: &Choice, screen: &mut Screen) -> Result<Stage> {
        let begin = Instant::now();
        let (rutter, proxy) = (images::rutter()?, images::proxy(&choice.envoy)?);
        let settings = Settings { node: true, ..Settings::default() };
        let plane = ControlPlane::start(settings).await?;
        let node = Node::start(&plane).await?;
        let mut stage = Stage { node, plane, client: IpAddr::from([0, 0, 0, 0]) };
        let kubeconfig = stage.plane.kubeconfig();
        screen.say(&format!("cluster:       Kubernetes {} with one node", test_harness::kubernetes::VERSION));
        screen.say(&format!("try it:        export KUBECONFIG={}", kubeconfig.display()));
        tokio::try_join!(stage.node.import(&rutter), stage.node.import(&proxy))?;
        screen.say(&format!(
            "images:        {} and {}, made of programs of this machine",
            images::RUTTER,
            images::PROXY
        ));
        stage.install(choice.protocol, screen).await?;
        stage.furnish(screen).await?;
        screen.say(&format!("ready after {:.0} s", begin.elapsed().as_secs_f64()));
        Ok(stage)
    }

    /// Installs Rutter as described in `docs/operations/install.md`, and waits until it injects sidecars.
    async fn install(&self, protocol: Protocol, screen: &mut Screen) -> Result<()> {
        let (rutter, proxy) = (images::RUTTER, images::PROXY);
        let values = [
            format!("image={rutter},global.proxy.image={proxy},global.proxy_init.image={proxy}"),
            // The image has no iptables.
            "global.imagePullPolicy=Never,global.nativeNftables=true".to_owned(),
        ];
        let mut words = vec!["install".to_owned()];
        words.extend(values.into_iter().flat_map(|value| ["--set".to_owned(), value]));
        if protocol == Protocol::Sotw {
            let value = "meshConfig.defaultConfig.proxyMetadata.ISTIO_DELTA_XDS=false";
            words.extend(["--set-string", value].map(str::to_owned));
        }
        screen.say(&format!("rutter:        $ rutter {}", words.join(" ")));
        let mut command = tokio::process::Command::new(std::env::current_exe()?);
        let output = command.args(words).arg("--kubeconfig").arg(self.plane.kubeconfig()).output().await?;
        if output.status.success() {
            return Ok(());
        }
        let said = [output.stdout, output.stderr].concat();
        self.explained(SYSTEM, Err(String::from_utf8_lossy(&said).into_owned().into())).await
    }

    /// Starts the shop and then its client, which must find the shop.
    async fn furnish(&mut self, screen: &mut Screen) -> Result<()> {
        self.apply(&manifests::service(NAMESPACE, "shop")).await?;
        let addresses = self.addresses(NAMESPACE, "shop").await?;
        self.apply(manifests::SPLIT).await?;
        for version in ["v1", "v2"] {
            self.apply(&manifests::shop(version, 2, addresses)).await?;
        }
        for version in ["v1", "v2"] {
            self.rolled_out(NAMESPACE, &format!("shop-{version}")).await?;
        }
        screen.say("shop:          Deployments shop-v1 and shop-v2 of two pods each, Service shop");
        self.apply(&manifests::client(addresses)).await?;
        self.rolled_out(NAMESPACE, "client").await?;
        screen.say("client:        Deployment client, which asks http://shop/ steadily");
        let clients = self.pods(NAMESPACE, "app=client").await?;
        let client = clients.first().and_then(|pod| pod.ip);
        self.client = client.ok_or("the client has no address")?;
        Ok(())
    }

    /// Runs kubectl and shows the command.
    pub(super) async fn kubectl(&self, screen: &mut Screen, command: &str) -> Result<String> {
        screen.say(&format!("     $ kubectl {command}"));
        self.quietly(command).await
    }

    pub(super) async fn quietly(&self, command: &str) -> Result<String> {
        self.plane.kubectl(&command.split(' ').collect::<Vec<_>>(), "").await
    }

    /// Changes the VirtualService with a merge patch, and shows the equivalent command. Returns the time from the
    /// request until the client's sidecar has the route.
    pub(super) async fn route(&self, screen: &mut Screen, patch: &Value) -> Result<Duration> {
        screen.say(&format!("     $ kubectl -n {NAMESPACE} patch virtualservice shop --type merge -p '{patch}'"));
        let reloads = "^http.*rds.*config_reload$";
        let before = self.figure(reloads).await?;
        let begin = Instant::now();
        let path = format!("/apis/networking.istio.io/v1/namespaces/{NAMESPACE}/virtualservices/shop");
        let answer = self.plane.request(Method::PATCH, &path, patch).await?;
        if !answer.status.is_success() {
            return Err(answer.text().into());
        }
        let reached = || async { self.figure(reloads).await.ok().filter(|now| *now > before).map(drop) };
        wait_for("the new route in the client's sidecar", PATIENCE, reached).await?;
        let took = begin.elapsed();
        screen.say(&format!("     in the client's sidecar {:.1} ms after it was sent", took.as_secs_f64() * 1000.0));
        Ok(took)
    }

    pub(super) async fn counts(&self) -> Result<Counts> {
        let address = SocketAddr::new(self.client, COUNTS_PORT);
        let counts = || async { read_counts(address).await.ok() };
        wait_for("the client's counts", PATIENCE, counts).await
    }

    /// The sum of the statistics of the client's sidecar whose names match.
    pub(super) async fn figure(&self, filter: &str) -> Result<u64> {
        self.figure_of(self.client, filter).await
    }

    /// The sum of the matching statistics of the sidecar at this address.
    pub(super) async fn figure_of(&self, pod: IpAddr, filter: &str) -> Result<u64> {
        // Cluster names contain `|`, which is an operator in regular expressions.
        let filter = filter.replace('|', "%5C%7C").replace('^', "%5E");
        sum((pod, FIGURES_PORT).into(), &format!("/stats/prometheus?filter={filter}"), "").await
    }

    /// The number of proxies that are connected to the control plane at this address.
    pub(super) async fn connected(&self, istiod: IpAddr) -> Result<u64> {
        sum((istiod, METRICS_PORT).into(), "/metrics", "pilot_xds{").await
    }

    /// The pods that match a selector, including terminating ones.
    pub(super) async fn pods(&self, namespace: &str, selector: &str) -> Result<Vec<Pod>> {
        let path = format!(
            "/api/v1/namespaces/{namespace}/pods?labelSelector={}",
            selector.replace('=', "%3D").replace(',', "%2C")
        );
        let answer = self.plane.request(Method::GET, &path, &Value::Null).await?;
        if !answer.status.is_success() {
            return Err(answer.text().into());
        }
        Ok(Pod::list(&answer.json()?))
    }

    /// Waits until there are exactly `count` pods and all are ready. Returns them.
    pub(super) async fn settled(&self, namespace: &str, selector: &str, count: usize) -> Result<Vec<Pod>> {
        let settled = || async {
            let pods = self.pods(namespace, selector).await.ok()?;
            Some(pods).filter(|pods| pods.len() == count && pods.iter().all(Pod::is_ready))
        };
        let what = format!("{count} pods ({selector}), all ready");
        self.explained(namespace, wait_for(&what, PATIENCE, settled).await).await
    }

    /// Waits until the client's sidecar has this many endpoints of a version.
    pub(super) async fn known(&self, version: &str, count: u64) -> Result<()> {
        let filter = format!("^cluster.outbound|80|{version}|shop.*membership_healthy$");
        let known = || async { self.figure(&filter).await.ok().filter(|now| *now == count).map(drop) };
        wait_for(&format!("{count} instances of {version} in the client's sidecar"), PATIENCE, known).await
    }

    /// Kills a container's program, as a crash would, and waits until it is restarted.
    pub(super) async fn crash(&self, pod: &Pod, name: &str) -> Result<()> {
        let container = pod.containers.get(name).ok_or("there is no such container")?;
        self.node.kill_container(&container.id).await?;
        let again = || async {
            let pods = self.pods(NAMESPACE, "app=shop").await.ok()?;
            let now = pods.into_iter().find(|now| now.name == pod.name)?;
            let restarted = now.containers.get(name)?.restarts > container.restarts;
            (restarted && now.is_ready()).then_some(())
        };
        let what = format!("{name} of {} to be started again", pod.name);
        self.explained(NAMESPACE, wait_for(&what, PATIENCE, again).await).await
    }

    /// Kills Envoy in a pod, but not the agent beside it, and waits until the agent has started it again.
    pub(super) async fn crash_envoy(&self, pod: &Pod) -> Result<()> {
        let id = &pod.containers.get("istio-proxy").ok_or("there is no such container")?.id;
        let first = envoy(id).ok_or("Envoy does not run")?;
        Command::new("sh").args(["-c", &format!("kill -KILL {first}")]).status()?;
        let again = || async { envoy(id).filter(|pid| *pid != first).map(drop) };
        wait_for(&format!("Envoy of {} to be started again", pod.name), PATIENCE, again).await
    }

    /// Logs and statistics that may explain a loss.
    pub(super) async fn evidence(&self) -> String {
        let looks = [
            format!("-n {NAMESPACE} get events --sort-by=.metadata.creationTimestamp --field-selector=type=Warning"),
            format!("-n {NAMESPACE} get endpointslices,pods -o wide"),
            format!("-n {SYSTEM} logs deployment/istiod --tail=40"),
        ];
        let mut evidence = Vec::new();
        for look in looks {
            let output = self.quietly(&look).await;
            evidence.push(output.unwrap_or_else(|error| error.to_string()));
        }
        for name in
            ["ejections_enforced_total$", "membership_change$", "upstream_cx_connect_fail$", "upstream_rq_timeout$"]
        {
            let figure = self.figure(&format!("^cluster.outbound|80|v2|shop.*{name}")).await;
            evidence.push(format!("{name} {figure:?}"));
        }
        evidence.join("\n")
    }

    pub(super) async fn apply(&self, manifests: &str) -> Result<()> {
        let flags = ["apply", "--server-side", "-f", "-"];
        // CRDs are served some time after they are created.
        let applied = || async {
            let output = self.plane.kubectl(&flags, manifests).await;
            let early = output.as_ref().is_err_and(|error| error.to_string().contains("ensure CRDs are installed"));
            (!early).then_some(output)
        };
        wait_for("the kinds to be served", PATIENCE, applied).await??;
        Ok(())
    }

    pub(super) async fn rolled_out(&self, namespace: &str, deployment: &str) -> Result<()> {
        let name = format!("deployment/{deployment}");
        let words = ["-n", namespace, "rollout", "status", &name, "--timeout=90s"];
        let done = self.plane.kubectl(&words, "").await;
        self.explained(namespace, done.map(drop)).await
    }

    /// The addresses for the hosts files of pods that call this Service.
    pub(super) async fn addresses(&self, namespace: &str, service: &'static str) -> Result<Addresses> {
        let (istiod, address) = (self.address(SYSTEM, "istiod").await?, self.address(namespace, service).await?);
        Ok(Addresses { istiod, service: (service, address) })
    }

    async fn address(&self, namespace: &str, service: &str) -> Result<IpAddr> {
        let path = format!("/api/v1/namespaces/{namespace}/services/{service}");
        let found = self.plane.request(Method::GET, &path, &Value::Null).await?.json()?;
        let ip = found["spec"]["clusterIP"].as_str();
        Ok(ip.ok_or_else(|| format!("the Service {service} has no address"))?.parse()?)
    }

    /// Adds the status and logs of a namespace's pods to an error.
    async fn explained<T>(&self, namespace: &str, result: Result<T>) -> Result<T> {
        let Err(error) = result else { return result };
        let mut text = format!("{error}\n");
        let pods = self.plane.kubectl(&["-n", namespace, "describe", "pods"], "").await;
        text += &pods.unwrap_or_else(|error| error.to_string());
        for pod in self.pods(namespace, "").await.unwrap_or_default() {
            let words = ["-n", namespace, "logs", &pod.name, "--all-containers", "--prefix", "--tail=10"];
            text += &self.plane.kubectl(&words, "").await.unwrap_or_else(|error| error.to_string());
        }
        Err(text.into())
    }
}

/// The process ID of Envoy in a container of the node, on this machine.
fn envoy(container: &str) -> Option<String> {
    let id = container.rsplit('/').next()?;
    let processes = fs::read_dir("/proc").ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let file = |process: &Path, name: &str| fs::read_to_string(process.join(name)).unwrap_or_default();
    let mut found =
        processes.filter(|process| file(process, "comm") == "envoy\n" && file(process, "cgroup").contains(id));
    Some(found.next()?.file_name()?.to_string_lossy().into_owned())
}

/// The sum of the metrics at this address whose names start with `prefix`.
async fn sum(address: SocketAddr, path: &str, prefix: &str) -> Result<u64> {
    let text = http::get(address, path, &[]).await?.text();
    let lines = text.lines().filter(|line| line.starts_with(prefix) && !line.starts_with('#'));
    Ok(lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum::<f64>() as u64)
}
