//! `rutter serve --store kubernetes` and its proxies when the real API server fails: afterwards the state equals a
//! fresh list, no proxy received a partial change, and no stream broke. Two of the proxies are real Envoys, which lose
//! no request.

use std::fs;

use e2e::cluster::{Namespace, apply_crds};
use e2e::envoy_binary;
use e2e::home::{PATIENCE, Rutter, client};
use e2e::observer::Observer;
use e2e::steady::Steady;
use serde_json::json;
use test_harness::kubernetes::{ControlPlane, Method, Settings};
use test_harness::run::{Backend, Envoy, Node, Protocol, Result, Traffic, free_port, wait_for};
use tokio::sync::watch;

/// The number of services in the population.
const HOSTS: usize = 4;
/// The host to which the Envoys send requests.
const LIVE: &str = "live.example.com";

/// A ServiceEntry with this name and `spec` in the population's namespace.
fn entry(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{ name: {name} }}\nspec:\n  hosts: \
         [{name}.example.com]\n  location: MESH_INTERNAL\n  resolution: STATIC\n{spec}"
    )
}

/// A ServiceEntry that is visible only in its own namespace.
fn private(name: &str, port: u16) -> String {
    let ports = format!("  exportTo: [.]\n  ports: [{{ number: {port}, name: http, protocol: HTTP }}]\n");
    entry(name, &format!("{ports}  workloadSelector: {{ labels: {{ app: {name} }} }}\n"))
}

/// Two Envoys that forward requests, and a third proxy that observes.
struct Proxies {
    looking_on: Observer,
    envoys: [Envoy; 2],
    traffic: Traffic,
    _backend: Backend,
}

impl Proxies {
    async fn start(rutter: &Rutter, space: &str, live: &Namespace<'_>) -> Result<Proxies> {
        let (backend, port) = (Backend::start("v1", "live").await?, free_port());
        let ports = format!("  ports: [{{ number: {port}, name: http, protocol: HTTP }}]\n");
        let (ip, to) = (backend.address().ip(), backend.address().port());
        let endpoint = format!("  endpoints: [{{ address: {ip}, ports: {{ http: {to} }} }}]\n");
        live.apply(&entry("live", &(ports + &endpoint))).await?;
        rutter.shows("/debug/registryz", LIVE, true).await?;
        let node = |name: &str| Node::sidecar(name, live.name(), "127.0.0.2", &[("app", name)]);
        let xds = rutter.control.grpc();
        let envoys = [
            Envoy::start(envoy_binary(), &node("delta"), Protocol::Delta, xds).await?,
            Envoy::start(envoy_binary(), &node("sotw"), Protocol::Sotw, xds).await?,
        ];
        let address = ([127, 0, 0, 1], port).into();
        for envoy in &envoys {
            envoy.wait_for_listener(address).await?;
        }
        Ok(Proxies {
            looking_on: Observer::start(xds, &client(space)),
            envoys,
            traffic: Traffic::start(address, "/", &[("host", LIVE)], 100, 4),
            _backend: backend,
        })
    }

    /// Waits for this generation, and checks that no connection, cluster or request was lost.
    async fn are_well(&self, rutter: &Rutter, generation: u64) -> Result<()> {
        rutter.explained(self.looking_on.settled(HOSTS, generation).await)?;
        self.are_connected().await?;
        for envoy in &self.envoys {
            let gone = "^(cluster_manager.cluster_removed|listener_manager.listener_removed)$";
            assert_eq!(envoy.stat(gone).await?, 0, "no resource was removed");
        }
        let counts = self.traffic.next(100).await?;
        let all = self.traffic.counts();
        assert_eq!((counts.errors, all.errors), (0, 0), "{:?}", all.described);
        Ok(())
    }

    async fn are_connected(&self) -> Result<()> {
        self.looking_on.check()?;
        for envoy in &self.envoys {
            assert_eq!(envoy.stat("^control_plane.connected_state$").await?, 1);
            assert_eq!(envoy.stat("^cluster.xds-grpc.upstream_cx_total$").await?, 1, "one connection");
        }
        Ok(())
    }
}

/// The server is killed, its data is restored from a backup, and definitions are deleted and created again under load.
async fn faults() -> Result<()> {
    let plane = ControlPlane::start(Settings::default()).await?;
    apply_crds(&plane).await?;
    let space = Namespace::create(&plane, "faults").await?;
    let live = Namespace::create(&plane, "live").await?;
    let steady = Steady::create(&plane, &space, HOSTS).await?;
    let rutter = Rutter::start(&plane, space.name()).await?;
    let proxies = Proxies::start(&rutter, space.name(), &live).await?;
    proxies.are_well(&rutter, 1).await?;

    plane.kill_api_server()?;
    rutter.says("from the Kubernetes API:", true).await?;
    proxies.are_well(&rutter, 1).await?;
    plane.begin_api_server().await?;
    steady.move_to(2).await?;
    proxies.are_well(&rutter, 2).await?;
    rutter.is_as_new_to(&proxies.looking_on, &plane, space.name()).await?;

    restored(&plane, &space, &steady, (&rutter, &proxies)).await?;
    rutter.is_as_new_to(&proxies.looking_on, &plane, space.name()).await?;
    undefined(&plane, &space, &steady, (&rutter, &proxies)).await?;

    // Without the ServiceEntries, proxies lose all resources of the mesh. They stay connected and get them again.
    proxies.looking_on.forgive(true);
    let crd = "serviceentries.networking.istio.io";
    plane.kubectl(&["delete", "crd", crd], "").await?;
    rutter.shows("/debug/registryz", ".steady.test", false).await?;
    apply_crds(&plane).await?;
    steady.make().await?;
    rutter.explained(proxies.looking_on.settled(HOSTS, 1).await)?;
    rutter.is_as_new_to(&proxies.looking_on, &plane, space.name()).await?;
    rutter.is_as_new(&plane, space.name()).await?;
    proxies.are_connected().await
}

/// etcd is restored to an older state, after which the changes of a kind are sent together.
async fn restored(
    plane: &ControlPlane,
    space: &Namespace<'_>,
    steady: &Steady<'_>,
    (rutter, proxies): (&Rutter, &Proxies),
) -> Result<()> {
    space.apply(&private("first", 8080)).await?;
    steady.move_to(5).await?;
    proxies.are_well(rutter, 5).await?;
    let snapshot = plane.snapshot()?;
    space.apply(&private("second", 8080)).await?;
    space.kubectl(&["delete", "serviceentry", "first"], "").await?;
    steady.move_to(9).await?;
    proxies.are_well(rutter, 9).await?;
    rutter.shows("/debug/registryz", "second.example.com", true).await?;
    rutter.shows("/debug/registryz", "first.example.com", false).await?;
    let since = proxies.looking_on.responses();
    proxies.looking_on.may_go_back(true);
    plane.restore(&snapshot).await?;
    proxies.are_well(rutter, 5).await?;
    proxies.looking_on.never_mixed(since)?;
    proxies.looking_on.may_go_back(false);
    rutter.shows("/debug/registryz", "first.example.com", true).await?;
    rutter.shows("/debug/registryz", "second.example.com", false).await
}

/// A definition is deleted while objects of this and other kinds are written, and is created again.
async fn undefined(
    plane: &ControlPlane,
    space: &Namespace<'_>,
    steady: &Steady<'_>,
    (rutter, proxies): (&Rutter, &Proxies),
) -> Result<()> {
    space.apply(&private("selecting", 8080)).await?;
    let stop = watch::Sender::new(false);
    let path = format!("/apis/networking.istio.io/v1/namespaces/{}/workloadentries", space.name());
    let write = async |number: u64| {
        let object = json!({
            "apiVersion": "networking.istio.io/v1", "kind": "WorkloadEntry",
            "metadata": {"name": format!("w{number}")},
            "spec": {"address": format!("10.200.{}.{}", number / 250, number % 250 + 1), "labels": {"app": "selecting"}},
        });
        // Writes fail while there is no definition, which is expected.
        plane.request(Method::POST, &path, &object).await.is_ok_and(|answer| answer.status.is_success())
    };
    let load = async {
        let mut number = 0;
        while !*stop.borrow() {
            write(number).await;
            number += 1;
        }
        number
    };
    let fault = async {
        rutter.shows("/debug/configz", "10.200.0.3", true).await?;
        plane.kubectl(&["delete", "crd", "workloadentries.networking.istio.io"], "").await?;
        rutter.shows("/debug/configz", "10.200.", false).await?;
        proxies.looking_on.check()?;
        apply_crds(plane).await?;
        rutter.shows("/debug/configz", "10.200.", true).await?;
        stop.send_replace(true);
        Result::Ok(())
    };
    let guarded = async {
        let done = fault.await;
        stop.send_replace(true);
        done
    };
    let (last, number, done) = tokio::join!(steady.move_until(5, &stop), load, guarded);
    done?;
    assert!(last > 6 && number > 5, "there was load: {last}, {number}");
    steady.move_to(last + 1).await?;
    proxies.are_well(rutter, last + 1).await?;
    rutter.is_as_new_to(&proxies.looking_on, plane, space.name()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_each_failure_the_state_equals_a_fresh_list() {
    faults().await.unwrap_or_else(|error| panic!("{error}"));
}

/// A replica that starts while the server is unavailable serves the snapshot of an earlier run, and continues from it.
async fn without_server() -> Result<()> {
    let plane = ControlPlane::start(Settings::default()).await?;
    apply_crds(&plane).await?;
    let space = Namespace::create(&plane, "snapshot").await?;
    let mut rutter = Rutter::start(&plane, space.name()).await?;
    let steady = Steady::create(&plane, &space, HOSTS).await?;
    let file = rutter.data().join("kubernetes.snapshot");
    let last = format!("h{}.{}.steady.test", HOSTS - 1, space.name());
    let kept = || async {
        let bytes = fs::read(&file).ok()?;
        // The VirtualService of the last host was written last.
        let text = String::from_utf8_lossy(&bytes);
        (text.matches(&last).count() >= 3).then_some(())
    };
    wait_for("the snapshot", PATIENCE, kept).await?;
    rutter.control.stop().await?;
    plane.kill_api_server()?;
    rutter.control.begin().await?;
    rutter.says("serving the snapshot", true).await?;
    assert_eq!(rutter.control.metric("rutter_kubernetes_from_snapshot", "").await?, 1.0);
    let proxy = Observer::start(rutter.control.grpc(), &client(space.name()));
    rutter.explained(proxy.settled(HOSTS, 1).await)?;
    let received = proxy.received();
    plane.begin_api_server().await?;
    let read = || async {
        let still = rutter.control.metric("rutter_kubernetes_from_snapshot", "").await.ok()?;
        (still == 0.0).then_some(())
    };
    rutter.explained(wait_for("the server to be read", PATIENCE, read).await)?;
    space.apply(&private("marker", 8081)).await?;
    let marked = || async { proxy.holds("marker.example.com").then_some(()) };
    rutter.explained(wait_for("what is new", PATIENCE, marked).await)?;
    assert_eq!(proxy.received(), received, "unchanged resources are not sent");
    steady.move_to(2).await?;
    rutter.explained(proxy.settled(HOSTS, 2).await)?;
    rutter.is_as_new_to(&proxy, &plane, space.name()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_is_served_while_the_api_server_is_unavailable() {
    without_server().await.unwrap_or_else(|error| panic!("{error}"));
}
