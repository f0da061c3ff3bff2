//! A proxy of `rutter serve --store kubernetes` while the way to the real API server is bad: answers that are cut in the
//! middle, late, refused, or told that they are too old. Its connection survives, it is never told of half a change, and
//! afterwards it has what a control plane gives that has just read everything.

// The helpers of a test fail it where they cannot go on.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use e2e::cluster::{Namespace, shared_with_crds};
use e2e::home::{PATIENCE, Rutter};
use e2e::observer::Observer;
use e2e::steady::Steady;
use parts::kubernetes::{ControlPlane, Link, Weather};
use parts::run::{Node, Result, wait_for};
use tokio::sync::watch;

/// Services of the population.
const HOSTS: usize = 5;

/// A control plane behind a link, with a proxy and a population that it sees.
struct Scene<'a> {
    plane: &'a ControlPlane,
    space: Namespace<'a>,
    link: Link,
    rutter: Rutter,
    steady: Steady<'a>,
    proxy: Observer,
}

fn node(space: &str) -> Node {
    Node::sidecar("client", space, "127.0.0.2", &[("app", "client")])
}

impl<'a> Scene<'a> {
    async fn start(prefix: &str, seed: u64) -> Result<Scene<'a>> {
        let plane = shared_with_crds().await?;
        let space = Namespace::create(plane, prefix).await?;
        let steady = Steady::create(plane, &space, HOSTS).await?;
        let link = Link::start(plane, seed).await?;
        let mut rutter = Rutter::idle(plane, space.name(), Some(&link.kubeconfig()), &[])?;
        rutter.control.begin().await?;
        let proxy = Observer::start(rutter.control.grpc(), &node(space.name()));
        proxy.settled(HOSTS, 1).await?;
        Ok(Scene {
            plane,
            space,
            link,
            rutter,
            steady,
            proxy,
        })
    }

    /// Waits until the proxy has this generation, and sees that nothing went wrong on the way.
    async fn ends_well(&self, generation: u64) -> Result<()> {
        self.link.set(Weather::default());
        self.steady.move_to(generation).await?;
        self.rutter.explained(self.proxy.settled(HOSTS, generation).await)?;
        self.rutter.is_as_new(self.plane, self.space.name()).await?;
        let fresh = Rutter::start(self.plane, self.space.name()).await?;
        let other = Observer::start(fresh.control.grpc(), &node(self.space.name()));
        other.settled(HOSTS, generation).await?;
        assert_eq!(self.proxy.versions(), other.versions(), "the bytes of a fresh list");
        self.proxy.check()
    }

    /// Moves the population on while something goes wrong, until so many steps have been made.
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

    async fn happens(&self, what: &str, happened: impl Fn(&parts::kubernetes::Passage) -> bool) -> Result<()> {
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
    scene.link.set(Weather {
        busy: 50,
        failing: 50,
        expired: 200,
        cut: 700,
        cut_within: 30_000,
        delay: Duration::from_millis(5),
        crumb: 700,
        ..Weather::default()
    });
    scene.link.cut();
    let fault = async {
        for round in 1..=6 {
            scene.link.cut();
            scene
                .happens("answers that were cut", |seen| seen.cut >= round * 20)
                .await?;
        }
        Ok(())
    };
    let last = scene.under_change(1, fault).await?;
    let seen = scene.link.seen();
    assert!(seen.answered > 0 && last > 3, "{seen:?} in {last} generations");
    eprintln!("{seen:?} in {last} generations, {} responses", scene.proxy.responses());
    scene.ends_well(last + 1).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_breaks_no_proxy() {
    let seed = std::env::var("RUTTER_SEED").ok().and_then(|text| text.parse().ok());
    storm(seed.unwrap_or(20_261_121))
        .await
        .unwrap_or_else(|error| panic!("{error}"));
}
