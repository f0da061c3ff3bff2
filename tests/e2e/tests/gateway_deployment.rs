//! A gateway that Rutter deploys, on a real node: from the Gateway to an answered request.

use std::net::SocketAddr;
use std::time::Duration;

use e2e::cluster::{Namespace, WithNode, shared_with_node};
use e2e::{agent_binary, envoy_binary, rutter, rutter_binary};
use test_harness::kubernetes::Image;
use test_harness::run::{Result, http, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);
const HUB: &str = "localhost/rutter-mesh";
const TAG: &str = "deployed";

/// A Gateway whose route is answered by the gateway itself. The node has no DNS, so the pods get the address of the control plane.
const MANIFEST: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: { name: front }
data:
  deployment: |
    spec: { template: { spec: { hostAliases: [{ ip: ADDRESS, hostnames: [istiod.istio-system.svc] }] } } }
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: { name: front, annotations: { networking.istio.io/service-type: ClusterIP } }
spec:
  gatewayClassName: istio
  infrastructure: { parametersRef: { group: '', kind: ConfigMap, name: front } }
  listeners: [{ name: http, port: 80, protocol: HTTP }]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: { name: moved }
spec:
  parentRefs: [{ name: front }]
  rules: [{ filters: [{ type: RequestRedirect, requestRedirect: { hostname: next.example, statusCode: 301 } }] }]
";

/// Installs Rutter with images that are built from programs of this machine.
async fn install(cluster: &WithNode) -> Result<()> {
    let (program, agent) = ("/usr/local/bin/rutter", "/usr/local/bin/pilot-agent");
    let image = format!("{HUB}/rutter:{TAG}");
    let control = Image::new(&image).program(rutter_binary(), program)?.entrypoint(&[program]).user(1337);
    let proxy = Image::new(&format!("{HUB}/proxyv2:{TAG}"))
        .program(agent_binary(), agent)?
        .program(envoy_binary(), "/usr/local/bin/envoy")?
        .file("/etc/nsswitch.conf", b"hosts: files dns\n", 0o644)
        .entrypoint(&[agent]);
    cluster.node.import(&control).await?;
    cluster.node.import(&proxy).await?;
    let set =
        format!("image={image},global.hub={HUB},global.tag={TAG},global.imagePullPolicy=Never,autoscaleEnabled=false");
    let output = rutter(&cluster.plane.kubeconfig(), &["install", "--set", &set], "").await?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("rutter install: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// The pods of a namespace and the ends of their logs, for the message of a failure.
async fn explained(space: &Namespace<'_>) -> Result<String> {
    let pods = space.kubectl(&["describe", "pods"], "").await?;
    let logs = space.kubectl(&["logs", "deployment/front-istio", "--tail=50"], "").await;
    Ok(format!("{pods}\n{}", logs.unwrap_or_else(|error| error.to_string())))
}

async fn serves() -> Result<()> {
    let Some(cluster) = shared_with_node().await? else {
        return Ok(());
    };
    install(cluster).await?;
    let space = Namespace::create(&cluster.plane, "edge").await?;
    let address = ["get", "service", "istiod", "-n", "istio-system", "-o", "jsonpath={.spec.clusterIP}"];
    let address = cluster.plane.kubectl(&address, "").await?;
    space.apply(&MANIFEST.replace("ADDRESS", &address)).await?;
    let exists = || async { space.kubectl(&["get", "deployment", "front-istio"], "").await.ok().map(drop) };
    wait_for("the Deployment of the Gateway", PATIENCE, exists).await?;
    if let Err(error) = space.kubectl(&["rollout", "status", "deployment/front-istio", "--timeout=120s"], "").await {
        return Err(format!("{error}\n{}", explained(&space).await?).into());
    }
    let ip = space.kubectl(&["get", "service", "front-istio", "-o", "jsonpath={.spec.clusterIP}"], "").await?;
    let address = SocketAddr::new(ip.parse()?, 80);
    let answers = || async {
        let answer = http::get(address, "/a", &[("host", "shop.example")]).await.ok()?;
        (answer.status.as_u16() == 301 && answer.header("location") == "http://next.example/a").then_some(())
    };
    if let Err(error) = wait_for("the gateway to answer", PATIENCE, answers).await {
        return Err(format!("{error}\n{}", explained(&space).await?).into());
    }
    space.kubectl(&["delete", "gateway", "front"], "").await?;
    let gone = || async {
        let left = space.kubectl(&["get", "deployments,services,serviceaccounts", "-o", "name"], "").await.ok()?;
        (!left.contains("front-istio")).then_some(())
    };
    wait_for("the objects of the Gateway to be deleted", PATIENCE, gone).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_is_deployed_and_answers() {
    serves().await.unwrap_or_else(|error| panic!("{error}"));
}
