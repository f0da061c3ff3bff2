//! Two replicas with one etcd: both serve the same objects, one of them writes statuses that count the proxies of both,
//! and either one may stop.

// The helpers fail the test if they cannot continue.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use e2e::{HOST, done, envoy_binary, rutter_binary, shop_service, virtual_service};
use test_harness::etcd::{Cluster, Settings, program};
use test_harness::run::{Backend, Control, Envoy, Node, Protocol, Result, free_port, wait_for};

/// Exceeds Envoy's limit on the size of a compiled regular expression. The expression is valid, so only Envoy rejects
/// it.
const REGEX: &str = "/[a-z]{1,50}/[0-9]{1,50}/(one|two|three|four|five|six|seven|eight|nine|ten)+";
/// A part of Envoy's error message.
const WORDS: &str = "max program size";

const PATIENCE: Duration = Duration::from_secs(60);

struct Replica {
    control: Control,
    _data: tempfile::TempDir,
}

impl Replica {
    async fn start(etcd: &Cluster) -> Result<Replica> {
        let data = tempfile::tempdir()?;
        let endpoints = etcd.endpoints().join(",");
        let flags = ["--store", "etcd", "--etcd-endpoints", &endpoints];
        let control = Control::start_with_api(rutter_binary(), data.path(), &flags).await?;
        Ok(Replica { control, _data: data })
    }

    async fn run(&self, arguments: &[&str], input: &str) -> Result<String> {
        let kubeconfig = self.control.kubeconfig().ok_or("it has no kubeconfig")?;
        done(&kubeconfig, arguments, input).await
    }

    /// Applies a DestinationRule with this name and waits until its status is `Accepted`.
    async fn apply(&self, name: &str) -> Result<()> {
        let rule = format!(
            "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{ name: {name}, namespace: test }}\n\
             spec: {{ host: {name}.test }}\n"
        );
        self.run(&["apply", "-f", "-"], &rule).await?;
        let path = "jsonpath={.status.conditions[?(@.type==\"Accepted\")].status}";
        let told = || async {
            let printed = self.run(&["get", "destinationrule", name, "-n", "test", "-o", path], "").await;
            (printed.ok()? == "True").then_some(())
        };
        wait_for(&format!("the status of {name}"), PATIENCE, told).await
    }

    async fn wait_for_object(&self, text: &str) -> Result<()> {
        let reached = || async {
            let page = self.control.debug("/debug/configz").await.ok()?.text();
            page.contains(text).then_some(())
        };
        wait_for(text, PATIENCE, reached).await
    }

    /// Waits until the proxies in the status of the route are `GENERATION: RUNNING of TOTAL, REJECTED: MESSAGE`.
    async fn wait_for_proxies(&self, wanted: &str) -> Result<()> {
        let field = |name: &str| format!("{{.status.proxies.{name}}}");
        let path = format!(
            "jsonpath={}: {} of {}, {}: {}",
            field("generation"),
            field("running"),
            field("total"),
            field("rejected"),
            field("rejection.message")
        );
        let said = || async {
            let printed = self.run(&["get", "virtualservice", "shop", "-n", "test", "-o", &path], "").await.ok()?;
            printed.contains(wanted).then_some(())
        };
        wait_for(&format!("a status with {wanted:?}"), PATIENCE, said).await
    }

    /// A proxy that connects to this replica.
    async fn proxy(&self, name: &str, ip: &str) -> Result<Envoy> {
        let node = Node::sidecar(name, "test", ip, &[("app", name)]);
        Envoy::start(envoy_binary(), &node, Protocol::Delta, self.control.grpc()).await
    }

    /// A field of the Lease.
    async fn lease(&self, field: &str) -> Result<String> {
        let path = format!("jsonpath={{.{field}}}");
        self.run(&["get", "lease", "rutter-status", "-n", "istio-system", "-o", &path], "").await
    }
}

async fn either_may_go() -> Result<()> {
    let mut etcd = Cluster::start(&program(&mut |line| eprintln!("{line}"))?, 1, Settings::default()).await?;
    let mut first = Replica::start(&etcd).await?;
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: { name: test }\n";
    first.run(&["create", "-f", "-"], namespace).await?;
    first.apply("one").await?;
    let second = Replica::start(&etcd).await?;
    second.wait_for_object("one.test").await?;
    // Written through one replica, watched through the other.
    second.apply("two").await?;
    first.wait_for_object("two.test").await?;
    let (leader, uid) = (first.lease("spec.holderIdentity").await?, first.lease("metadata.uid").await?);
    assert!(leader.contains('_') && uid.len() == 36, "{leader} {uid}");
    assert_eq!(second.lease("spec.holderIdentity").await?, leader);

    // The leader stops gracefully. The other replica takes over the same Lease object.
    first.control.stop().await?;
    second.apply("three").await?;
    assert_ne!(second.lease("spec.holderIdentity").await?, leader);
    assert_eq!(second.lease("metadata.uid").await?, uid);

    // etcd is unavailable for a moment: no object is lost, and later changes are received.
    etcd.kill(0).await?;
    second.wait_for_object("three.test").await?;
    etcd.begin(0).await?;
    second.apply("four").await?;
    first.control.begin().await?;
    first.wait_for_object("four.test").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_share_a_store_and_fail_over() {
    either_may_go().await.unwrap_or_else(|error| panic!("{error}"));
}

fn route(rest: &str) -> String {
    let route = format!("[{{ route: [{{ destination: {{ host: {HOST}, subset: v1 }} }}]{rest} }}]");
    virtual_service("[mesh]", &route)
}

async fn all_proxies_count() -> Result<()> {
    let etcd = Cluster::start(&program(&mut |line| eprintln!("{line}"))?, 1, Settings::default()).await?;
    let leader = Replica::start(&etcd).await?;
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: { name: test }\n";
    leader.run(&["create", "-f", "-"], namespace).await?;
    // It has written a status, so it is the leader.
    leader.apply("first").await?;
    let mut other = Replica::start(&etcd).await?;
    let backend = Backend::start("v1", "shop-0").await?;
    let service = shop_service(free_port(), "{ tls: { mode: DISABLE } }", &[&backend]);
    let objects = format!("{service}---\n{}", route(""));
    leader.run(&["apply", "-f", "-"], &objects).await?;
    leader.wait_for_proxies("1: 0 of 0, 0: ").await?;

    // The status counts a proxy of the other replica, and its rejection.
    let _far = other.proxy("far", "127.0.0.2").await?;
    leader.wait_for_proxies("1: 1 of 1, 0: ").await?;
    let bad = route(&format!(", match: [{{ uri: {{ regex: '{REGEX}' }} }}]"));
    leader.run(&["apply", "-f", "-"], &bad).await?;
    leader.wait_for_proxies("2: 0 of 1, 1: ").await?;
    leader.wait_for_proxies(WORDS).await?;
    other.run(&["apply", "-f", "-"], &route("")).await?;
    leader.wait_for_proxies("3: 1 of 1, 0: ").await?;

    // A proxy at each replica; then the other replica stops, and its proxy is not counted any more.
    let _near = leader.proxy("near", "127.0.0.3").await?;
    leader.wait_for_proxies("3: 2 of 2, 0: ").await?;
    other.control.stop().await?;
    leader.wait_for_proxies("3: 1 of 1, 0: ").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statuses_count_the_proxies_of_all_replicas() {
    all_proxies_count().await.unwrap_or_else(|error| panic!("{error}"));
}
