//! A proxy of `rutter serve --store kubernetes` while the connection to the real API server is bad: responses are
//! truncated, late, refused or 410. The proxy's stream survives, it never receives a partial change, and afterwards its
//! resources equal those of a newly started control plane.

// The helpers fail the test if they cannot continue.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use e2e::cluster::{Namespace, shared_with_crds};
use e2e::home::{PATIENCE, Rutter, client};
use e2e::observer::Observer;
use e2e::steady::Steady;
use test_harness::kubernetes::{ControlPlane, FaultPlan, Link, Passage};
use test_harness::run::{Result, wait_for};
use tokio::sync::watch;

/// The number of services in the population.
const HOSTS: usize = 4;

/// A control plane behind a link, with a proxy and a population that it sees.
struct Scene<'a> {
    plane: &'a ControlPlane,
    space: Namespace<'a>,
    link: Link,
    rutter: Rutter,
    steady: Steady<'a>,
    proxy: Observer,
}

impl<'a> Scene<'a> {
    async fn start(prefix: &str, seed: u64) -> Result<Scene<'a>> {
        let plane = shared_with_crds().await?;
        let space = Namespace::create(plane, prefix).await?;
        let link = Link::start(plane, seed).await?;
        let kubeconfig = link.kubeconfig();
        Scene::with(plane, space, link, &kubeconfig).await
    }

    async fn with(plane: &'a ControlPlane, space: Namespace<'a>, link: Link, user: &str) -> Result<Scene<'a>> {
        let steady = Steady::create(plane, &space, HOSTS).await?;
        let mut rutter = Rutter::idle(plane, space.name(), Some(user), &[])?;
        rutter.control.launch()?;
        rutter.says("", true).await?;
        let proxy = Observer::start(rutter.control.grpc(), &client(space.name()));
        rutter.explained(proxy.settled(HOSTS, 1).await)?;
        Ok(Scene { plane, space, link, rutter, steady, proxy })
    }

    /// Waits until the proxy has this generation, and checks that nothing went wrong before.
    async fn ends_well(&self, generation: u64) -> Result<()> {
        self.link.set(FaultPlan::default());
        self.steady.move_to(generation).await?;
        self.rutter.explained(self.proxy.settled(HOSTS, generation).await)?;
        self.rutter.is_as_new_to(&self.proxy, self.plane, self.space.name()).await
    }

    /// Changes the population during a fault. Returns the last generation that was started.
    async fn under_change(&self, from: u64, fault: impl Future<Output = Result<()>>) -> Result<u64> {
        let stop = watch::Sender::new(false);
        let fault = async {
            let done = fault.await;
            stop.send_replace(true);
            done
        };
        let (last, done) = tokio::join!(self.steady.move_until(from, &stop), fault);
        done?;
        Ok(last)
    }

    async fn happens(&self, what: &str, happened: impl Fn(&Passage) -> bool) -> Result<()> {
        let check = || async { happened(&self.link.seen()).then_some(()) };
        let waited = wait_for(what, PATIENCE, check).await;
        self.rutter.explained(waited.map_err(|error| format!("{error}: {:?}", self.link.seen()).into()))
    }
}

/// All faults at random: connections cut in the middle of a line, responses in small chunks, refusals, and 410.
async fn storm(seed: u64) -> Result<()> {
    eprintln!("seed {seed}");
    let scene = Scene::start("storm", seed).await?;
    scene.link.set(FaultPlan {
        busy: 50,
        failing: 50,
        expired: 200,
        cut: 700,
        cut_within: 10_000,
        delay: Duration::from_millis(2),
        crumb: 700,
        ..FaultPlan::default()
    });
    let fault = async {
        for round in 1..=3 {
            scene.link.cut();
            scene.happens("answers that were cut", |seen| seen.cut >= round * 15).await?;
        }
        Ok(())
    };
    let last = scene.under_change(1, fault).await?;
    let seen = scene.link.seen();
    assert!(seen.answered > 0 && last > 3, "{seen:?} in {last} generations");
    eprintln!("{} cut, {} refused, {last} generations", seen.cut, seen.answered);
    scene.ends_well(last + 1).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_connection_failures_break_no_stream() {
    let seed = std::env::var("RUTTER_SEED").ok().and_then(|text| text.parse().ok());
    storm(seed.unwrap_or(20_261_121)).await.unwrap_or_else(|error| panic!("{error}"));
}

/// Changes in a gap that the server has already compacted (410) are applied together, by kind.
async fn too_old() -> Result<()> {
    let scene = Scene::start("too-old", 1).await?;
    for generation in [2, 5, 9] {
        let (since, answered) = (scene.proxy.responses(), scene.link.seen().answered);
        // Nothing passes the link any more; data that the server sends in the meantime is lost.
        scene.link.set(FaultPlan { silent: true, ..FaultPlan::default() });
        scene.steady.move_to(generation).await?;
        let expired = FaultPlan { expired: 1000, ..FaultPlan::default() };
        // Buffered data must not be passed on, and no watch must continue.
        scene.link.set(FaultPlan { silent: true, ..expired.clone() });
        scene.link.cut();
        scene.link.set(expired);
        scene.happens("\"too old\"", |seen| seen.answered >= answered + 3).await?;
        scene.rutter.explained(scene.proxy.settled(HOSTS, generation).await)?;
        scene.rutter.explained(scene.proxy.never_mixed(since))?;
    }
    scene.ends_well(10).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_in_a_gap_before_410_are_applied_at_once() {
    too_old().await.unwrap_or_else(|error| panic!("{error}"));
}

/// A server that answers late and in small chunks is waited for, at startup and later. A silent server is retried.
async fn slow() -> Result<()> {
    let plane = shared_with_crds().await?;
    let space = Namespace::create(plane, "slow").await?;
    let link = Link::start(plane, 2).await?;
    link.set(FaultPlan { delay: Duration::from_millis(200), crumb: 10_000, ..FaultPlan::default() });
    let kubeconfig = link.kubeconfig();
    let scene = Scene::with(plane, space, link, &kubeconfig).await?;
    let lists = scene.rutter.control.metric("rutter_kubernetes_lists", "").await?;
    scene.steady.move_to(2).await?;
    scene.rutter.explained(scene.proxy.settled(HOSTS, 2).await)?;
    // The server is suspended: its connections stay open, and nothing is lost.
    scene.link.set(FaultPlan { silent: true, ..FaultPlan::default() });
    scene.steady.move_to(3).await?;
    scene.link.set(FaultPlan::default());
    scene.rutter.explained(scene.proxy.settled(HOSTS, 3).await)?;
    let again = scene.rutter.control.metric("rutter_kubernetes_lists", "").await?;
    assert_eq!(lists, again, "nothing had to be listed again");
    scene.ends_well(4).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_api_server_is_waited_for() {
    slow().await.unwrap_or_else(|error| panic!("{error}"));
}

/// All requests get 429 for a while, during changes.
async fn busy() -> Result<()> {
    let scene = Scene::start("busy", 3).await?;
    scene.link.set(FaultPlan { busy: 1000, ..FaultPlan::default() });
    scene.link.cut();
    let fault = scene.happens("refusals", |seen| seen.answered >= 100);
    let last = scene.under_change(1, fault).await?;
    scene.rutter.says("busy", true).await?;
    scene.ends_well(last + 1).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_answers_429_removes_no_objects() {
    busy().await.unwrap_or_else(|error| panic!("{error}"));
}

/// A role for all kinds that are read and written except VirtualServices, and one for these.
fn roles(space: &str) -> String {
    let rules = |kinds: &str| {
        format!("{{ apiGroups: [networking.istio.io], resources: [{kinds}], verbs: [get, list, watch] }}")
    };
    let role = |name: &str, rules: &str| {
        format!(
            "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{ name: {space}-{name} }}\nrules: [{rules}]\n\
             ---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{ name: {space}-{name} }}\n\
             roleRef: {{ apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {space}-{name} }}\n\
             subjects: [{{ kind: ServiceAccount, namespace: {space}, name: rutter }}]\n"
        )
    };
    let others = "destinationrules, envoyfilters, gateways, proxyconfigs, serviceentries, sidecars, workloadentries, workloadgroups";
    let groups = "'', discovery.k8s.io, security.istio.io, telemetry.istio.io, extensions.istio.io, gateway.networking.k8s.io, \
                  gateway.networking.x-k8s.io, inference.networking.k8s.io, apiextensions.k8s.io, admissionregistration.k8s.io, \
                  networking.k8s.io, multicluster.x-k8s.io, coordination.k8s.io";
    let most = format!("{}, {{ apiGroups: [{groups}], resources: ['*'], verbs: ['*'] }}", rules(others));
    let account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: { name: rutter }\n";
    [account, &role("most", &most), &role("routes", &rules("virtualservices"))].concat()
}

/// The permission to read one kind is revoked while it is read, and granted again.
async fn denied() -> Result<()> {
    let plane = shared_with_crds().await?;
    let space = Namespace::create(plane, "denied").await?;
    let link = Link::start(plane, 4).await?;
    space.apply(&roles(space.name())).await?;
    let user = link.through(&plane.service_account(space.name(), "rutter").await?);
    let scene = Scene::with(plane, space, link, &user).await?;
    let binding = format!("{}-routes", scene.space.name());
    plane.kubectl(&["delete", "clusterrolebinding", &binding], "").await?;
    scene.link.cut();
    scene.rutter.says("access denied to virtualservices.networking.istio.io", true).await?;
    let since = scene.proxy.responses();
    scene.steady.move_to(2).await?;
    scene.space.apply(&roles(scene.space.name())).await?;
    scene.rutter.explained(scene.proxy.settled(HOSTS, 2).await)?;
    scene.proxy.routes_never_mixed(since)?;
    scene.ends_well(3).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_stay_in_effect_after_permission_is_revoked() {
    denied().await.unwrap_or_else(|error| panic!("{error}"));
}
