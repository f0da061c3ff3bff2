//! Mutual TLS between workloads of two clusters in two networks, with certificates of the authority of the mesh.

use std::net::{IpAddr, SocketAddr};

use e2e::cluster::apply_crds;
use e2e::guarded::{Ask, has};
use e2e::home::{PATIENCE, Rutter};
use e2e::issued::Member;
use e2e::secure::Proof;
use serde_json::json;
use test_harness::kubernetes::ControlPlane;
use test_harness::run::{Backend, Envoy, Node, Protocol, Result, free_port, http, wait_for};

use super::mesh::{HOME, MESH, admin, apply, cluster, found, secret, stands};
use super::proxies::own_address;

const CART: &str = "cart.shop.svc.cluster.local";

/// The addresses and ports.
struct Places {
    ip: IpAddr,
    /// The service's port, at which the client's application calls.
    port: u16,
    /// The port of the server's sidecar.
    inbound: u16,
    /// The port of the gateway.
    entrance: u16,
    application: SocketAddr,
}

impl Places {
    /// The objects of the cluster `east`: the server's pod and the gateway's service.
    fn east(&self) -> String {
        let Places { ip, inbound, entrance, .. } = self;
        let accounts = ["shop/cart", "mesh/eastwest"].map(service_account).concat();
        format!(
            "{accounts}{}---\napiVersion: v1\nkind: Pod\nmetadata: {{ name: cart-1, namespace: shop, labels: {{ app: cart, \
             security.istio.io/tlsMode: istio }} }}\nspec: {{ serviceAccountName: cart, nodeName: n1, containers: [{{ name: a, image: a \
             }}], tolerations: [{{ operator: Exists }}] }}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{ \
             name: cart-1, namespace: shop, labels: {{ kubernetes.io/service-name: cart }} }}\naddressType: IPv4\nports: [{{ name: \
             http, port: {inbound} }}]\nendpoints: [{{ addresses: [{ip}], conditions: {{ ready: true }}, targetRef: {{ kind: Pod, name: \
             cart-1, namespace: shop }} }}]\n---\napiVersion: v1\nkind: Service\nmetadata: {{ name: eastwest, namespace: mesh, labels: {{ \
             topology.istio.io/network: far, networking.istio.io/gatewayPort: '{entrance}' }} }}\nspec: {{ externalIPs: [{ip}], ports: \
             [{{ name: tls, port: {entrance} }}] }}\n",
            self.service()
        )
    }

    /// The service, the same in both clusters.
    fn service(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{ name: cart, namespace: shop }}\nspec: {{ ports: [{{ name: http, port: {}, \
             targetPort: {} }}] }}\n",
            self.port, self.inbound
        )
    }

    /// The configuration of the mesh.
    fn configuration(&self) -> String {
        let Places { ip, inbound, entrance, application, .. } = self;
        format!(
            "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{ name: cart, namespace: shop }}\nspec: {{ workloadSelector: \
             {{ labels: {{ app: cart }} }}, egress: [{{ hosts: [nowhere/*] }}], ingress: [{{ port: {{ number: {inbound}, name: http, \
             protocol: HTTP }}, bind: {ip}, captureMode: NONE, defaultEndpoint: '{application}' }}] }}\n---\napiVersion: \
             networking.istio.io/v1\nkind: Gateway\nmetadata: {{ name: eastwest, namespace: mesh }}\nspec: {{ selector: {{ app: eastwest \
             }}, servers: [{{ port: {{ number: {entrance}, name: tls, protocol: TLS }}, tls: {{ mode: AUTO_PASSTHROUGH }}, hosts: \
             ['*.local'] }}] }}\n---\napiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {{ name: default, namespace: \
             mesh }}\nspec: {{ mtls: {{ mode: STRICT }} }}\n"
        )
    }
}

fn service_account(account: &str) -> String {
    let (namespace, name) = account.split_once('/').unwrap();
    format!("apiVersion: v1\nkind: ServiceAccount\nmetadata: {{ name: {name}, namespace: {namespace} }}\n---\n")
}

fn policy(name: &str, action: &str) -> String {
    format!(
        "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {{ name: {name}, namespace: shop }}\nspec: {{ selector: {{ \
         matchLabels: {{ app: cart }} }}, action: {action}, rules: [{{ from: [{{ source: {{ principals: \
         [cluster.local/ns/shop/sa/client] }} }}] }}] }}\n"
    )
}

/// The control plane of the mesh, and what workloads need of it.
struct Home<'a> {
    rutter: &'a Rutter,
    roots: String,
}

impl Home<'_> {
    /// A workload joins with a token of its own cluster.
    async fn join(&self, (plane, cluster): (&ControlPlane, &str), account: &str) -> Result<Member> {
        let (namespace, name) = account.split_once('/').unwrap();
        let arguments = ["create", "token", name, "-n", namespace, "--audience", "istio-ca"];
        let token = plane.kubectl(&arguments, "").await?;
        let proof = Proof { cluster: Some(cluster), ..Proof::token(token.trim()) };
        let joined = Member::prove(&self.rutter.control, ("istiod.mesh.svc", &self.roots), proof, name).await;
        self.rutter.explained(joined)
    }
}

fn node(mut node: Node, cluster: &str, network: &str) -> Node {
    node.metadata["CLUSTER_ID"] = cluster.into();
    node.metadata["NETWORK"] = network.into();
    node
}

/// The caller that the application sees.
async fn caller(address: SocketAddr) -> Option<String> {
    let answer = http::get(address, "/", &[("host", CART)]).await.ok()?;
    let body = answer.status.is_success().then(|| answer.json())?.ok()?;
    Some(body["headers"]["x-forwarded-client-cert"].as_str().unwrap_or_default().to_owned())
}

async fn across() -> Result<()> {
    let Some(ip) = own_address() else {
        eprintln!("skipped: this machine has no address that Kubernetes takes for an endpoint");
        return Ok(());
    };
    let (home, east) = tokio::try_join!(cluster(), cluster())?;
    let backend = Backend::start("v1", "cart").await?;
    let (port, inbound, entrance) = (free_port(), free_port(), free_port());
    let places = Places { ip, port, inbound, entrance, application: backend.address() };
    apply_crds(&home).await?;
    for (plane, network) in [(&home, "near"), (&east, "far")] {
        let label = format!("topology.istio.io/network={network}");
        plane.kubectl(&["label", "namespace", MESH, &label], "").await?;
    }
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: istio, namespace: mesh }\ndata: { mesh: \"rootNamespace: mesh\" }\n";
    let accounts = ["shop/client", "shop/other"].map(service_account).concat();
    apply(&home, &format!("{accounts}{map}---\n{}---\n{}", places.service(), places.configuration())).await?;
    apply(&east, &places.east()).await?;
    let status = json!({"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
        "conditions": [{"type": "Ready", "status": "True"}]}});
    let patch =
        ["patch", "pod", "cart-1", "-n", "shop", "--subresource=status", "--type=merge", "-p", &status.to_string()];
    east.kubectl(&patch, "").await?;
    secret(&home, "east", &[("east", &admin(&east)?)]).await?;
    let mut rutter = Rutter::idle(&home, MESH, None, &[HOME, &["--ca-server", "on"]].concat())?;
    rutter.control.begin().await?;
    stands(&rutter, "east", Some("synced")).await?;
    let read = || async {
        let map = found(&home, &["configmap", "istio-ca-root-cert", "-n", "shop"]).await;
        map["data"]["root-cert.pem"].as_str().map(str::to_owned)
    };
    let roots = rutter.explained(wait_for("the root certificate", PATIENCE, read).await)?;
    let mesh = Home { rutter: &rutter, roots };

    let cart = mesh.join((&east, "east"), "shop/cart").await?;
    let gateway = mesh.join((&east, "east"), "mesh/eastwest").await?;
    let client = mesh.join((&home, "home"), "shop/client").await?;
    let other = mesh.join((&home, "home"), "shop/other").await?;
    let control = &rutter.control;
    let sidecar = Node::sidecar("cart-1", "shop", &ip.to_string(), &[("app", "cart")]);
    let server = cart.envoy(control, node(sidecar, "east", "far"), Protocol::Delta).await?;
    server.wait_for_listener((ip, inbound).into()).await?;
    let router = Node::gateway("eastwest", MESH, "127.0.0.4", &[("app", "eastwest")]);
    let gateway = gateway.envoy(control, node(router, "east", "far"), Protocol::Delta).await?;
    gateway.wait_for_listener(([0, 0, 0, 0], entrance).into()).await?;
    let sidecar = Node::sidecar("client", "shop", "127.0.0.2", &[("app", "client")]);
    let envoy = client.envoy(control, node(sidecar, "home", "near"), Protocol::Delta).await?;
    let address = ([127, 0, 0, 1], port).into();
    envoy.wait_for_listener(address).await?;

    // The client knows the gateway only, and the server knows the client.
    let called = || async { caller(address).await.filter(|caller| caller.contains("ns/shop/sa/client")) };
    let logs = |envoys: [&Envoy; 3]| envoys.map(|envoy| envoy.log().unwrap_or_default()).join("\n");
    if let Err(error) = wait_for("a call between the clusters", PATIENCE, called).await {
        let clusters = envoy.admin("/clusters").await?.text();
        return Err(format!("{error}\n{clusters}\n{}", logs([&envoy, &gateway, &server])).into());
    }
    let cluster = format!("outbound|{port}||{CART}");
    assert_eq!(envoy.endpoints(&cluster).await?, Some(vec![format!("{ip}:{entrance}")]));
    assert!(gateway.stat(r"^cluster.outbound_..*upstream_cx_total$").await? > 0);
    // The gateway passes bytes on: it has no part in the handshake.
    assert_eq!(gateway.stat(r"^listener.0.0.0.0_.*ssl.handshake$").await?, 0);
    assert!(http::get((ip, inbound).into(), "/", &[("host", CART)]).await.is_err(), "plain text is refused");

    // Policies hold for identities of the other cluster, whichever way they come.
    let sni = format!("outbound_.{port}_._.{CART}");
    let (own, others) = (client.identity(), other.identity());
    let headers = [("host", CART)];
    let ask = |identity| Ask::new("GET /").with(&headers).to(&sni).by(identity);
    for (name, action, [client, other]) in [("allowed", "ALLOW", [200, 403]), ("denied", "DENY", [403, 200])] {
        apply(&home, &policy(name, action)).await?;
        has(&server, &format!("policy[{name}]"), true).await?;
        for gate in [(ip, entrance), (ip, inbound)] {
            ask(&own).gets(gate.into(), client).await?;
            ask(&others).gets(gate.into(), other).await?;
        }
        let through = || async {
            let answer = http::get(address, "/", &[("host", CART)]).await.ok()?;
            (answer.status.as_u16() == client).then_some(())
        };
        wait_for(&format!("{client} between the clusters"), PATIENCE, through).await?;
        home.kubectl(&["delete", "authorizationpolicy", name, "-n", "shop"], "").await?;
        has(&server, &format!("policy[{name}]"), false).await?;
    }
    // A token of one cluster is worth nothing as one of the other.
    let token = east.kubectl(&["create", "token", "cart", "-n", "shop", "--audience", "istio-ca"], "").await?;
    let proof = Proof { cluster: Some("home"), ..Proof::token(token.trim()) };
    let refused = Member::prove(control, ("istiod.mesh.svc", &mesh.roots), proof, "cart").await;
    assert!(refused.is_err_and(|error| error.to_string().contains("authenticate failure")));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workload_reaches_another_cluster_with_its_identity() {
    across().await.unwrap_or_else(|error| panic!("{error}"));
}
