//! A proxy of `rutter serve --store kubernetes` while the way to the real API server is bad: answers that are cut in the
//! middle, late, refused, or told that they are too old. Its connection survives, it is never told of half a change, and
//! afterwards it has what a control plane gives that has just read everything.

// The helpers of a test fail it where they cannot go on.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use e2e::cluster::{Namespace, shared_with_crds};
use e2e::home::{PATIENCE, Rutter, client};
use e2e::observer::Observer;
use e2e::steady::Steady;
use test_harness::kubernetes::{ControlPlane, FaultPlan, Link, Passage};
use test_harness::run::{Result, wait_for};
use tokio::sync::watch;

/// Services of the population.
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
        Ok(Scene {
            plane,
            space,
            link,
            rutter,
            steady,
            proxy,
        })
    }

    /// Waits in good faults until the proxy has this generation, and sees that nothing went wrong on the way.
    async fn ends_well(&self, generation: u64) -> Result<()> {
        self.link.set(FaultPlan::default());
        self.steady.move_to(generation).await?;
        self.rutter.explained(self.proxy.settled(HOSTS, generation).await)?;
        self.rutter
            .is_as_new_to(&self.proxy, self.plane, self.space.name())
            .await
    }

    /// Moves the population on while something goes wrong; the last generation that was begun.
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
        self.rutter
            .explained(waited.map_err(|error| format!("{error}: {:?}", self.link.seen()).into()))
    }
}

/// Everything at once, at random: cuts in the middle of lines, answers in crumbs, refusals, and "too old".
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
            scene
                .happens("answers that were cut", |seen| seen.cut >= round * 15)
                .await?;
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
    storm(seed.unwrap_or(20_261_121))
        .await
        .unwrap_or_else(|error| panic!("{error}"));
}

/// What changed in a gap after which the server has forgotten what happened is told at once, per kind.
async fn too_old() -> Result<()> {
    let scene = Scene::start("too-old", 1).await?;
    for generation in [2, 5, 9] {
        let (since, answered) = (scene.proxy.responses(), scene.link.seen().answered);
        // Nothing passes any more; what the server sends meanwhile is lost.
        scene.link.set(FaultPlan {
            silent: true,
            ..FaultPlan::default()
        });
        scene.steady.move_to(generation).await?;
        let expired = FaultPlan {
            expired: 1000,
            ..FaultPlan::default()
        };
        // What waits to be passed on must not be, and no watch must go on.
        scene.link.set(FaultPlan {
            silent: true,
            ..expired.clone()
        });
        scene.link.cut();
        scene.link.set(expired);
        scene
            .happens("\"too old\"", |seen| seen.answered >= answered + 3)
            .await?;
        scene.rutter.explained(scene.proxy.settled(HOSTS, generation).await)?;
        scene.rutter.explained(scene.proxy.never_mixed(since))?;
    }
    scene.ends_well(10).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_in_a_gap_before_410_are_applied_at_once() {
    too_old().await.unwrap_or_else(|error| panic!("{error}"));
}

/// A server that answers late and in crumbs is waited for, at the start and later; one that says nothing is not given up.
async fn slow() -> Result<()> {
    let plane = shared_with_crds().await?;
    let space = Namespace::create(plane, "slow").await?;
    let link = Link::start(plane, 2).await?;
    link.set(FaultPlan {
        delay: Duration::from_millis(200),
        crumb: 10_000,
        ..FaultPlan::default()
    });
    let kubeconfig = link.kubeconfig();
    let scene = Scene::with(plane, space, link, &kubeconfig).await?;
    let lists = scene.rutter.control.metric("rutter_kubernetes_lists", "").await?;
    scene.steady.move_to(2).await?;
    scene.rutter.explained(scene.proxy.settled(HOSTS, 2).await)?;
    // A pause of the server: its connections stay, and nothing is lost.
    scene.link.set(FaultPlan {
        silent: true,
        ..FaultPlan::default()
    });
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

/// Everything is refused with 429 for a while, under change.
async fn busy() -> Result<()> {
    let scene = Scene::start("busy", 3).await?;
    scene.link.set(FaultPlan {
        busy: 1000,
        ..FaultPlan::default()
    });
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

/// A role for what is read and written, but for VirtualServices; and one for these.
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
    let most = format!(
        "{}, {{ apiGroups: [{groups}], resources: ['*'], verbs: ['*'] }}",
        rules(others)
    );
    let account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: { name: rutter }\n";
    [
        account,
        &role("most", &most),
        &role("routes", &rules("virtualservices")),
    ]
    .concat()
}

/// The right to read one kind is taken away while it is read, and given back.
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
    scene
        .rutter
        .says("access denied to virtualservices.networking.istio.io", true)
        .await?;
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
