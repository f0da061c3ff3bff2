//! Real gRPC libraries that connect to the TLS port and to each other with certificates of Rutter's authority.

use std::path::PathBuf;

use e2e::grpc::{self, Application, Outcome};
use e2e::issued::{self, Member};
use e2e::{Mesh, rutter_binary};
use test_harness::grpc::Probe;
use test_harness::run::Result;

/// The service with this instance, which is called over mutual TLS.
fn service(port: u16, account: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{ name: echo, namespace: shop }}\nspec:\n  \
         hosts: [echo.shop.svc.cluster.local]\n  location: MESH_INTERNAL\n  resolution: STATIC\n  \
         ports: [{{ number: 7070, name: grpc, protocol: GRPC }}]\n  \
         endpoints: [{{ address: 127.0.0.1, ports: {{ grpc: {port} }}, serviceAccount: {account} }}]\n---\n\
         apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{ name: echo, namespace: shop }}\nspec:\n  \
         host: echo.shop.svc.cluster.local\n  trafficPolicy: {{ tls: {{ mode: ISTIO_MUTUAL }} }}\n---\n\
         apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {{ name: default, namespace: shop }}\nspec:\n  \
         mtls: {{ mode: STRICT }}\n"
    )
}

/// A workload: its certificate in files, and its bootstrap.
struct Workload {
    directory: tempfile::TempDir,
}

impl Workload {
    /// Joins as a service account of the namespace `shop`. The bootstrap claims a namespace.
    async fn join(mesh: &Mesh, account: &str, claims: &str) -> Result<Workload> {
        let member = Member::join(&mesh.control, "shop", account).await?;
        let directory = tempfile::tempdir()?;
        let (chain, key) = member.identity();
        for (name, text) in [("cert-chain.pem", chain), ("key.pem", key), ("root-cert.pem", member.roots())] {
            std::fs::write(directory.path().join(name), text)?;
        }
        let workload = Workload { directory };
        let written = std::process::Command::new(rutter_binary())
            .args(["grpc-bootstrap", "--namespace", claims, "--service-account", account, "--tls", "--server"])
            .arg(mesh.control.secure().to_string())
            .arg("--cert-dir")
            .arg(workload.directory.path())
            .arg("--file")
            .arg(workload.bootstrap())
            .status()?;
        assert!(written.success());
        Ok(workload)
    }

    fn bootstrap(&self) -> PathBuf {
        self.directory.path().join("bootstrap.json")
    }

    fn client(&self, probe: &Probe) -> Result<Application> {
        Application::start(probe, "call", "xds:///echo.shop.svc.cluster.local:7070", Some(&self.bootstrap()))
    }
}

fn answered(outcome: &Outcome) -> bool {
    outcome.errors.is_empty() && outcome.answers.keys().eq(["mine"])
}

fn fails(outcome: &Outcome, code: &str) -> bool {
    outcome.answers.is_empty() && outcome.errors.keys().eq([code])
}

fn policy(account: &str) -> String {
    format!(
        "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {{ name: a, namespace: shop }}\nspec: {{ rules: [{{ from: \
         [{{ source: {{ principals: [cluster.local/ns/shop/sa/{account}] }} }}] }}] }}\n"
    )
}

async fn mutual_tls(probe: Probe) -> Result<()> {
    let go = test_harness::grpc::go(&mut |line| eprintln!("{line}"))?;
    let data = tempfile::tempdir()?;
    let mesh = issued::start(&[("service.yaml", &service(9, "server"))], &data, &[]).await?;
    let (server, client) =
        (Workload::join(&mesh, "server", "shop").await?, Workload::join(&mesh, "client", "shop").await?);
    let mut serving = Application::start(&go, "serve-xds", "mine", Some(&server.bootstrap()))?;
    let port = serving.port().await?;
    mesh.config.put("service.yaml", &service(port, "server"))?;
    while serving.says().await?["serving"] != true {}
    let mut calling = client.client(&probe)?;
    calling.until(5, &[], answered).await?;

    // The server enforces policies on the identity of the client.
    mesh.config.put("policy.yaml", &policy("somebody"))?;
    calling.until(5, &[], |outcome| fails(outcome, "PERMISSION_DENIED")).await?;
    mesh.config.put("policy.yaml", &policy("client"))?;
    calling.until(5, &[], answered).await?;
    // The client enforces the identity of the server. A connection that exists stays.
    mesh.config.put("service.yaml", &service(port, "serve"))?;
    fresh(&client, &probe, |outcome| fails(outcome, "UNAVAILABLE")).await?;
    mesh.config.put("service.yaml", &service(port, "server"))?;
    fresh(&client, &probe, answered).await?;
    // A client without a certificate gets nowhere, and neither does one that claims another namespace.
    let mut plain = Application::start(&probe, "call", &format!("127.0.0.1:{port}"), None)?;
    assert!(fails(&plain.calls(3, &[]).await?, "UNAVAILABLE"));
    let liar = Workload::join(&mesh, "liar", "bank").await?;
    let refused = liar.client(&probe)?.calls(1, &[]).await?;
    assert!(fails(&refused, "UNAVAILABLE") && refused.detail.contains("the node claims namespace"), "{refused:?}");
    Ok(())
}

/// Starts clients until the outcome is as wanted.
async fn fresh(workload: &Workload, probe: &Probe, wanted: impl Fn(&Outcome) -> bool) -> Result<Outcome> {
    grpc::retried(async || workload.client(probe)?.calls(3, &[]).await, wanted).await
}

#[tokio::test]
async fn the_c_core_library_uses_certificates_of_the_authority() -> Result<()> {
    mutual_tls(test_harness::grpc::python(&mut |line| eprintln!("{line}"))?).await
}

#[tokio::test]
async fn the_go_library_uses_certificates_of_the_authority() -> Result<()> {
    mutual_tls(test_harness::grpc::go(&mut |line| eprintln!("{line}"))?).await
}
