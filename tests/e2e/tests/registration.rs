//! Virtual machines that register, over the embedded store and over Kubernetes: their agents connect to the TLS port, and an
//! Envoy calls their service while they are connected and healthy.

// The helpers fail the test if they cannot continue.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use e2e::cluster::Namespace;
use e2e::home::Rutter;
use e2e::issued::{ISTIOD, connect};
use e2e::secure::{Client, Proof, Stream};
use e2e::{PATIENCE, done, envoy_binary};
use serde_json::Value;
use test_harness::kubernetes::ControlPlane;
use test_harness::run::{Backend, Control, Envoy, Node, Protocol, Result, free_port, http, wait_for};
use tonic::{Code, Status};

/// The flags of a control plane that forgets machines quickly.
const QUICK: [&str; 2] = ["--workload-grace-period", "1s"];

/// A mesh with a machine's service and a client that calls it.
struct Mesh {
    kubeconfig: PathBuf,
    namespace: String,
    /// The name of the control plane.
    name: String,
    root: String,
    /// The machine's application.
    backend: Backend,
    /// The address at which the client calls the service.
    port: u16,
}

impl Mesh {
    /// Applies objects.
    async fn apply(&self, objects: &str) -> Result<()> {
        done(&self.kubeconfig, &["apply", "-n", &self.namespace, "-f", "-"], objects).await.map(drop)
    }

    /// The machine's service.
    async fn serve(&self) -> Result<()> {
        let (port, target) = (self.port, self.backend.address().port());
        self.apply(&format!(
            "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{ name: cart }}\n\
             spec: {{ hosts: [cart.test], location: MESH_INTERNAL, resolution: STATIC, \
             ports: [{{ number: {port}, name: http, protocol: HTTP, targetPort: {target} }}], \
             workloadSelector: {{ labels: {{ app: cart }} }} }}\n"
        ))
        .await
    }

    /// The machine's group.
    async fn group(&self) -> Result<()> {
        self.apply(
            "apiVersion: networking.istio.io/v1\nkind: WorkloadGroup\nmetadata: { name: vm }\n\
             spec: { metadata: { labels: { app: cart, security.istio.io/tlsMode: disabled } }, \
             template: { serviceAccount: cart }, probe: { httpGet: { port: 80 } } }\n",
        )
        .await
    }

    /// Connects as the machine, with a token.
    async fn attend(&self, control: &Control, token: &str) -> Result<std::result::Result<Stream, Status>> {
        let client = connect(control, (&self.root, &self.name), None).await?;
        self.attend_by(&client, Proof::token(token)).await
    }

    async fn attend_by(&self, client: &Client, proof: Proof<'_>) -> Result<std::result::Result<Stream, Status>> {
        self.attend_at("127.0.0.1", client, proof).await
    }

    async fn attend_at(
        &self,
        address: &str,
        client: &Client,
        proof: Proof<'_>,
    ) -> Result<std::result::Result<Stream, Status>> {
        let metadata = [("AUTO_REGISTER_GROUP", "vm"), ("probe", "x")];
        let mut opened = client.subscribe_as(proof, (address, &self.namespace), &metadata).await?;
        if let Ok(stream) = &mut opened {
            // The first response, or the refusal.
            if let Err(status) = stream.next().await {
                return Ok(Err(status));
            }
        }
        Ok(opened)
    }

    /// The machine's entry.
    async fn entry(&self) -> Option<Value> {
        let arguments = ["get", "workloadentry", "vm-127.0.0.1", "-n", &self.namespace, "-o", "json"];
        serde_json::from_str(&done(&self.kubeconfig, &arguments, "").await.ok()?).ok()
    }

    async fn wait_for_entry(&self, what: &str, is: impl Fn(Option<&Value>) -> bool) -> Result<()> {
        let reached = || async { is(self.entry().await.as_ref()).then_some(()) };
        match wait_for(what, PATIENCE, reached).await {
            Ok(()) => Ok(()),
            Err(error) => Err(format!("{error}; the entry: {:?}", self.entry().await).into()),
        }
    }

    /// Waits until calls of the client succeed, or fail.
    async fn answers(&self, expected: bool) -> Result<()> {
        let ask = || http::get(([127, 0, 0, 1], self.port).into(), "/", &[("host", "cart.test")]);
        let fits = |answer: http::Response| (answer.status.is_success() == expected).then_some(());
        let reached = || async { fits(ask().await.ok()?) };
        wait_for(if expected { "answers of the machine" } else { "no answers" }, PATIENCE, reached).await
    }

    /// A machine joins, becomes healthy, unhealthy and healthy, and leaves.
    async fn lives(
        &self,
        control: &Control,
        proof: (&Client, Proof<'_>),
        refused: (&Client, Proof<'_>),
    ) -> Result<Stream> {
        let explained = |error: Box<dyn std::error::Error + Send + Sync>| {
            format!("{error}; {}", control.log_end().unwrap_or_default())
        };
        let status = self.attend_by(proof.0, proof.1).await?.err().ok_or("registered without a group")?;
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        assert!(status.message().contains(&format!("WorkloadGroup {}/vm", self.namespace)), "{status}");
        self.group().await?;
        self.serve().await?;
        let status = self.attend_by(refused.0, refused.1).await?.err().ok_or("registered as another account")?;
        assert_eq!(status.code(), Code::Unknown, "{status}");
        assert!(status.message().contains("not \"cart\""), "{status}");
        let node = Node::sidecar("client", &self.namespace, "127.0.0.2", &[("app", "client")]);
        let client = Envoy::start(envoy_binary(), &node, Protocol::Delta, control.grpc()).await?;
        client.wait_for_listener(([127, 0, 0, 1], self.port).into()).await?;

        let stream = self.attend_by(proof.0, proof.1).await??;
        let entry = self.entry().await.ok_or("no entry although the stream has a response")?;
        assert_eq!(entry["metadata"]["labels"]["app"], "cart");
        assert_eq!(entry["metadata"]["annotations"]["proxy.istio.io/health-checks-enabled"], "true");
        self.answers(false).await?;
        for error in [None, Some("connection refused"), None] {
            stream.report(error).await?;
            self.answers(error.is_none()).await.map_err(explained)?;
        }
        // A second stream, and the first one ends: the machine stays.
        let second = self.attend_by(proof.0, proof.1).await??;
        drop(stream);
        let uid = entry["metadata"]["uid"].clone();
        drop(second);
        self.wait_for_entry("a disconnected or no entry", |entry| {
            entry.is_none_or(|entry| entry["metadata"]["annotations"]["istio.io/disconnectedAt"].is_string())
        })
        .await?;
        // It comes back within the grace period, or gets another entry.
        let again = self.attend_by(proof.0, proof.1).await??;
        again.report(None).await?;
        self.answers(true).await.map_err(explained)?;
        drop(again);
        self.wait_for_entry("the entry to expire", |entry| entry.is_none()).await?;
        self.answers(false).await?;
        let last = self.attend_by(proof.0, proof.1).await??;
        let entry = self.entry().await.ok_or("no entry")?;
        assert_ne!(entry["metadata"]["uid"], uid, "it is a new entry");
        Ok(last)
    }
}

async fn token(kubeconfig: &std::path::Path, account: &str) -> Result<String> {
    let arguments = ["token", "create", "-n", "test", "--service-account", account];
    Ok(done(kubeconfig, &arguments, "").await?.trim().to_owned())
}

async fn standalone() -> Result<()> {
    let data = tempfile::tempdir()?;
    let flags = ["--store", "embedded", "--workload-grace-period", "1s"];
    let mut control = Control::start_with_api(e2e::rutter_binary(), data.path(), &flags).await?;
    let mesh = Mesh {
        kubeconfig: control.kubeconfig().ok_or("no kubeconfig")?,
        namespace: "test".to_owned(),
        name: ISTIOD.to_owned(),
        root: e2e::issued::root(&control).await?,
        backend: Backend::start("v1", "cart").await?,
        port: free_port(),
    };
    done(&mesh.kubeconfig, &["create", "namespace", "test"], "").await?;
    let (cart, other) = (Member::join(&control, &mesh, "cart").await?, Member::join(&control, &mesh, "other").await?);
    let (as_cart, as_other) = (cart.connect(&control, &mesh).await?, other.connect(&control, &mesh).await?);
    let proof = Proof::default();
    let stream = mesh.lives(&control, (&as_cart, proof), (&as_other, proof)).await?;
    assert!(control.metric("auto_registration_success_total", "").await? >= 2.0);
    // The control plane is restarted: the machine connects again, and has the same entry.
    let before = mesh.entry().await.ok_or("no entry")?;
    control.stop().await?;
    drop(stream);
    control.begin().await?;
    let as_cart = cart.connect(&control, &mesh).await?;
    let stream = mesh.attend_by(&as_cart, proof).await??;
    let after = mesh.entry().await.ok_or("no entry")?;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert!(after["metadata"]["annotations"]["istio.io/disconnectedAt"].is_null(), "{after}");
    // It is killed while the machine leaves: nobody marks the entry, and the next one cleans it up.
    control.kill().await?;
    drop(stream);
    control.begin().await?;
    mesh.wait_for_entry("the entry to be cleaned up", |entry| entry.is_none()).await
}

/// A thousand machines connect at once. Meanwhile, other proxies are served.
async fn thousand() -> Result<()> {
    let data = tempfile::tempdir()?;
    let flags = ["--store", "embedded"];
    let control = Control::start_with_api(e2e::rutter_binary(), data.path(), &flags).await?;
    let mesh = Mesh {
        kubeconfig: control.kubeconfig().ok_or("no kubeconfig")?,
        namespace: "test".to_owned(),
        name: ISTIOD.to_owned(),
        root: e2e::issued::root(&control).await?,
        backend: Backend::start("v1", "cart").await?,
        port: free_port(),
    };
    done(&mesh.kubeconfig, &["create", "namespace", "test"], "").await?;
    mesh.group().await?;
    let cart = Member::join(&control, &mesh, "cart").await?;
    let mut clients = Vec::new();
    for _ in 0..11 {
        clients.push(cart.connect(&control, &mesh).await?);
    }
    let other = clients.pop().ok_or("no client")?;
    let begun = Instant::now();
    let machines = (0..1000).map(|number| {
        let (mesh, client) = (&mesh, &clients[number % 10]);
        async move {
            let address = format!("10.0.{}.{}", number / 250, number % 250);
            mesh.attend_at(&address, client, Proof::default()).await
        }
    });
    let other = async {
        let mut longest = Duration::ZERO;
        for _ in 0..10 {
            let begun = Instant::now();
            let mut stream = other.subscribe(Proof::default(), ("test", "cart")).await??;
            stream.next().await?;
            longest = longest.max(begun.elapsed());
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(longest)
    };
    let (machines, longest) = tokio::join!(futures::future::join_all(machines), other);
    let streams = machines.into_iter().map(|stream| Ok(stream??)).collect::<Result<Vec<Stream>>>()?;
    let longest = longest?;
    eprintln!("{} machines in {:?}; another proxy waits {longest:?} at most", streams.len(), begun.elapsed());
    assert!(longest < PATIENCE, "{longest:?}");
    assert_eq!(control.metric("auto_registration_success_total", "").await?, 1000.0);
    assert_eq!(control.metric("auto_registration_errors_total", "").await?, 0.0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_machines_register_at_once() {
    thousand().await.unwrap_or_else(|error| panic!("{error}"));
}

/// A machine with a certificate.
struct Member {
    chain: String,
    key: String,
}

impl Member {
    async fn join(control: &Control, mesh: &Mesh, account: &str) -> Result<Member> {
        let (token, key) = (token(&mesh.kubeconfig, account).await?, e2e::secure::Key::new()?);
        let client = connect(control, (&mesh.root, &mesh.name), None).await?;
        let chain = client.create(Proof::token(&token), &key.request(&[])?, &[]).await??;
        Ok(Member { chain: chain.concat(), key: key.pem() })
    }

    async fn connect(&self, control: &Control, mesh: &Mesh) -> Result<Client> {
        connect(control, (&mesh.root, &mesh.name), Some((&self.chain, &self.key))).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_register_at_a_control_plane_with_a_store() {
    standalone().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn kubernetes() -> Result<()> {
    let home = e2e::cluster::shared_with_crds().await?;
    let (system, shop) = (Namespace::create(home, "system").await?, Namespace::create(home, "shop").await?);
    let map = format!("root-of-{}", system.name());
    let flags = [&["--ca-server", "on", "--ca-cert-configmap", &map][..], &QUICK].concat();
    let mut rutter = Rutter::idle(home, system.name(), None, &flags)?;
    rutter.control.begin().await?;
    let mesh = Mesh {
        kubeconfig: home.kubeconfig().to_owned(),
        namespace: shop.name().to_owned(),
        name: format!("istiod.{}.svc", system.name()),
        root: root(home, system.name(), &map).await?,
        backend: Backend::start("v1", "cart").await?,
        port: free_port(),
    };
    let mut tokens = Vec::new();
    for account in ["cart", "other"] {
        shop.apply(&format!("apiVersion: v1\nkind: ServiceAccount\nmetadata: {{ name: {account} }}\n")).await?;
        tokens.push(shop.kubectl(&["create", "token", account, "--audience", "istio-ca"], "").await?.trim().to_owned());
    }
    let client = connect(&rutter.control, (&mesh.root, &mesh.name), None).await?;
    let (cart, other) = ((&client, Proof::token(&tokens[0])), (&client, Proof::token(&tokens[1])));
    let stream = mesh.lives(&rutter.control, cart, other).await?;
    // Another replica takes the machine over, and the first one stops: the entry stays.
    let mut second = Rutter::idle(home, system.name(), None, &[&flags[..], &["--pod-name", "second"]].concat())?;
    second.control.begin().await?;
    let taken = mesh.attend(&second.control, &tokens[0]).await??;
    let is_second = |entry: Option<&Value>| {
        let annotations = |entry: &Value| entry["metadata"]["annotations"].clone();
        entry.map(annotations).is_some_and(|all| {
            all["istio.io/workloadController"] == "second" && all["istio.io/disconnectedAt"].is_null()
        })
    };
    mesh.wait_for_entry("the second replica to control the entry", is_second).await?;
    let uid = mesh.entry().await.ok_or("no entry")?["metadata"]["uid"].clone();
    drop(stream);
    rutter.control.stop().await?;
    taken.report(None).await?;
    let is_healthy = |entry: Option<&Value>| {
        is_second(entry) && entry.is_some_and(|entry| entry["status"]["conditions"].to_string().contains("\"Healthy\""))
    };
    mesh.wait_for_entry("the health", is_healthy).await?;
    assert_eq!(mesh.entry().await.ok_or("no entry")?["metadata"]["uid"], uid);
    drop(taken);
    mesh.wait_for_entry("the entry to expire", |entry| entry.is_none()).await
}

async fn root(home: &ControlPlane, namespace: &str, map: &str) -> Result<String> {
    let read = || async {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/{map}");
        let answer = home.request(test_harness::kubernetes::Method::GET, &path, &Value::Null).await.ok()?;
        let map: Value = serde_json::from_slice(&answer.body).ok()?;
        map["data"]["root-cert.pem"].as_str().map(str::to_owned)
    };
    wait_for("the root certificate", PATIENCE, read).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_register_over_kubernetes_and_move_between_replicas() {
    kubernetes().await.unwrap_or_else(|error| panic!("{error}"));
}
