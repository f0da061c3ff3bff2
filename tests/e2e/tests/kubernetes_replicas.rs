//! Two replicas of `rutter serve --store kubernetes`: the leader writes statuses, which count the proxies of the other replica. Two
//! revisions: each writes the statuses of its own objects.

use e2e::cluster::{Namespace, shared_with_crds};
use e2e::envoy_binary;
use e2e::home::{PATIENCE, Rutter};
use serde_json::Value;
use test_harness::kubernetes::{ControlPlane, FaultPlan, Link};
use test_harness::run::{Envoy, Node, Protocol, Result, free_port, wait_for};
use tokio::sync::Mutex;

/// The label of the ConfigMaps with the counts of a replica.
const COUNTS: &str = "rutter.io/proxy-counts-of";
/// Exceeds Envoy's limit on the size of a compiled regular expression, so that only Envoy rejects it.
const REGEX: &str = "/[a-z]{1,50}/[0-9]{1,50}/(one|two|three|four|five|six|seven|eight|nine|ten)+";

/// Control planes write the statuses of all namespaces, so that only one test may run at a time.
static ALONE: Mutex<()> = Mutex::const_new(());

async fn replica(plane: &ControlPlane, space: &str, link: &Link, name: &str) -> Result<Rutter> {
    replica_of("", plane, space, link, name).await
}

async fn replica_of(revision: &str, plane: &ControlPlane, space: &str, link: &Link, name: &str) -> Result<Rutter> {
    let flags = ["--pod-name", name, "--gateway-deployments", "off", "--revision", revision];
    let mut rutter = Rutter::idle(plane, space, Some(&link.kubeconfig()), &flags)?;
    rutter.control.begin().await?;
    Ok(rutter)
}

/// A namespace with a Gateway and a route.
struct Shop<'a> {
    plane: &'a ControlPlane,
    space: Namespace<'a>,
}

impl Shop<'_> {
    /// Waits until a condition of an object is `STATUS REASON`. `at` is the part of the status that has it.
    async fn wait_for(&self, object: &str, at: &str, condition: &str, wanted: &str) -> Result<()> {
        let told = || async {
            let arguments = ["get", object, "-n", self.space.name(), "-o", "json"];
            let found: Value = serde_json::from_str(&self.plane.kubectl(&arguments, "").await.ok()?).ok()?;
            let conditions = found["status"].pointer(at)?["conditions"].as_array()?.clone();
            let one = conditions.into_iter().find(|one| one["type"] == condition)?;
            let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
            Some(format!("{} {} {}", text("status"), text("reason"), text("message")))
        };
        let reached = || async { told().await.filter(|text| text.starts_with(wanted)).map(drop) };
        match wait_for(&format!("{object} with {condition}: {wanted}"), PATIENCE, reached).await {
            Ok(()) => Ok(()),
            Err(error) => Err(format!("{error}: {:?}", told().await).into()),
        }
    }

    /// The number of ConfigMaps with counts.
    async fn maps(&self) -> Option<usize> {
        let arguments = ["get", "configmaps", "-n", self.space.name(), "-l", COUNTS, "-o", "name"];
        Some(self.plane.kubectl(&arguments, "").await.ok()?.lines().count())
    }

    async fn wait_for_maps(&self, wanted: usize) -> Result<()> {
        let reached = || async { (self.maps().await? == wanted).then_some(()) };
        wait_for(&format!("{wanted} ConfigMaps with counts"), PATIENCE, reached).await
    }

    /// A proxy of the Gateway, connected to this replica.
    async fn proxy(&self, rutter: &Rutter, name: &str, ip: &str) -> Result<Envoy> {
        let labels = [("gateway.networking.k8s.io/gateway-name", "edge")];
        let node = Node::gateway(name, self.space.name(), ip, &labels);
        Envoy::start(envoy_binary(), &node, Protocol::Delta, rutter.control.grpc()).await
    }
}

fn route(matched: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{ name: shop }}\n\
         spec: {{ parentRefs: [{{ name: edge }}], rules: [{{ matches: [{{ path: {matched} }}], \
         filters: [{{ type: RequestRedirect, requestRedirect: {{ hostname: shop.example.com }} }}] }}] }}\n"
    )
}

async fn counted() -> Result<()> {
    let plane = shared_with_crds().await?;
    let shop = Shop { plane, space: Namespace::create(plane, "counts").await? };
    let links = [Link::start(plane, 1).await?, Link::start(plane, 2).await?];
    let port = free_port();
    let gateway = format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{ name: edge }}\n\
         spec: {{ gatewayClassName: istio, listeners: [{{ name: http, port: {port}, protocol: HTTP }}] }}\n"
    );
    shop.space.apply(&format!("{gateway}---\n{}", route("{ value: / }"))).await?;
    let one = replica(plane, shop.space.name(), &links[0], "one").await?;
    let (edge, http) = ("gtw/edge", "httproute/shop");
    // It has written a status, so it leads.
    one.explained(shop.wait_for(edge, "", "Programmed", "False NoResources").await)?;
    let mut two = replica(plane, shop.space.name(), &links[1], "two").await?;
    shop.wait_for_maps(1).await?;

    // The only proxy is connected to the replica that does not lead.
    let far = shop.proxy(&two, "far", "127.0.0.3").await?;
    far.wait_for_listener(([0, 0, 0, 0], port).into()).await?;
    one.explained(shop.wait_for(edge, "", "Programmed", "True Programmed").await)?;
    one.explained(shop.wait_for(http, "/parents/0", "Programmed", "True Programmed").await)?;
    shop.wait_for_maps(2).await?;

    // It rejects a route.
    shop.space.apply(&route(&format!("{{ type: RegularExpression, value: '{REGEX}' }}"))).await?;
    one.explained(shop.wait_for(http, "/parents/0", "Programmed", "False Invalid").await)?;
    shop.space.apply(&route("{ value: /shop }")).await?;
    one.explained(shop.wait_for(http, "/parents/0", "Programmed", "True Programmed").await)?;

    // The other replica does not see a change: its proxy is pending, whatever the leader's own proxy acknowledged.
    let near = shop.proxy(&one, "near", "127.0.0.4").await?;
    one.explained(shop.wait_for(edge, "", "Programmed", "True Programmed").await)?;
    links[1].set(FaultPlan { down: true, ..FaultPlan::default() });
    links[1].cut();
    shop.space.apply(&route("{ value: /other }")).await?;
    one.explained(shop.wait_for(http, "/parents/0", "Programmed", "Unknown Pending").await)?;
    links[1].set(FaultPlan::default());
    one.explained(shop.wait_for(http, "/parents/0", "Programmed", "True Programmed").await)?;

    // Without proxies of the leader, those of the other replica count until it stops.
    drop(near);
    one.explained(shop.wait_for(edge, "", "Programmed", "True Programmed").await)?;
    two.control.stop().await?;
    one.explained(shop.wait_for(edge, "", "Programmed", "False NoResources").await)?;
    shop.wait_for_maps(0).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statuses_count_the_proxies_of_all_replicas() {
    let _alone = ALONE.lock().await;
    counted().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn both_revisions_write() -> Result<()> {
    let plane = shared_with_crds().await?;
    let shop = Shop { plane, space: Namespace::create(plane, "revisions").await? };
    let space = shop.space.name();
    let links = [Link::start(plane, 1).await?, Link::start(plane, 2).await?];
    let gateway = |name: &str, labels: &str| {
        format!(
            "---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{ name: {name}, labels: {{ {labels} }} }}\n\
             spec: {{ gatewayClassName: istio, listeners: [{{ name: http, port: 80, protocol: HTTP }}] }}\n"
        )
    };
    let old = replica(plane, space, &links[0], "old").await?;
    shop.space.apply(&gateway("all", "")).await?;
    old.explained(shop.wait_for("gtw/all", "", "Programmed", "False NoResources").await)?;
    // The replica of the default revision leads for the objects of all revisions, and stays in its place.
    let new = replica_of("canary", plane, space, &links[1], "new").await?;
    let service = "---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: { name: own, labels: { istio.io/rev: canary } }\n\
                   spec: { hosts: [own.example.com], http: [{ directResponse: { status: 200 } }] }\n";
    let labelled = gateway("own", "istio.io/rev: canary") + &gateway("theirs", "istio.io/rev: default") + service;
    shop.space.apply(&labelled).await?;
    new.explained(shop.wait_for("gtw/own", "", "Programmed", "False NoResources").await)?;
    new.explained(shop.wait_for("vs/own", "", "Accepted", "True").await)?;
    old.explained(shop.wait_for("gtw/theirs", "", "Programmed", "False NoResources").await)?;
    let holder = |lease: &'static str| async move {
        let path = "jsonpath={.metadata.annotations.istio\\.io/rev} {.spec.holderIdentity}";
        plane.kubectl(&["get", "lease", lease, "-n", space, "-o", path], "").await.ok()
    };
    let is_held = |lease, by: &'static str| async move { holder(lease).await?.starts_with(by).then_some(()) };
    for (lease, by) in [
        ("istio-status-leader", "default old"),
        ("istio-gateway-status-leader-default", "default old"),
        ("istio-gateway-status-leader-canary", "canary new"),
    ] {
        wait_for(&format!("{lease} held by {by}"), PATIENCE, || is_held(lease, by)).await?;
    }

    // The tag `default` makes it the default revision, which takes the shared lease only.
    let tag = "apiVersion: v1\nkind: Service\nmetadata: { name: tag, labels: { istio.io/rev: canary, istio.io/tag: default } }\n\
               spec: { ports: [{ port: 15012 }] }\n";
    shop.space.apply(tag).await?;
    let taken = || is_held("istio-status-leader", "canary new");
    new.explained(wait_for("the lease to be taken", PATIENCE, taken).await)?;
    shop.space.apply(&gateway("later", "istio.io/rev: default")).await?;
    old.explained(shop.wait_for("gtw/later", "", "Programmed", "False NoResources").await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_revision_writes_the_statuses_of_its_objects() {
    let _alone = ALONE.lock().await;
    both_revisions_write().await.unwrap_or_else(|error| panic!("{error}"));
}
