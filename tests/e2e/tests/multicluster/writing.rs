//! Writes in several clusters.

use e2e::home::{PATIENCE, Rutter};
use serde_json::Value;
use test_harness::run::{Result, wait_for};

use super::mesh::{HOME, MESH, admin, apply, cart, cluster, endpoint, fits, found, has, installed, join, secret};

/// With the permissions of the chart and clusters joined by the command line: every service is exported in its own
/// cluster, and an imported service has the endpoints of all clusters.
async fn exported() -> Result<()> {
    const AUTO: &[&str] = &["env.ENABLE_MCS_AUTO_EXPORT=true"];
    let (home, east) = tokio::try_join!(installed(AUTO), installed(AUTO))?;
    cart(&home, "10.1.0.1").await?;
    cart(&east, "10.2.0.1").await?;
    let own =
        "apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ServiceExport\nmetadata: { name: mine, namespace: shop }\n";
    apply(&east, own).await?;
    endpoint(&east, "mine", "10.2.0.7", 80, 8080).await?;
    let user = home.service_account("istio-system", "istiod").await?;
    let flags = [HOME, &["--mcs-auto-export", "on"]].concat();
    let mut rutter = Rutter::idle(&home, "istio-system", Some(&user), &flags)?;
    rutter.control.begin().await?;
    join(&home, &east, "east").await?;
    has(&rutter, &["east 10.2.0.1", "home 10.1.0.1"]).await?;
    let export = ["serviceexport", "cart", "-n", "shop"];
    for plane in [&home, &east] {
        let uid = found(plane, &["service", "cart", "-n", "shop"]).await["metadata"]["uid"].clone();
        let owned = |export: &Value| export.pointer("/metadata/ownerReferences/0/uid") == Some(&uid);
        rutter.explained(fits(plane, &export, owned).await)?;
        assert!(
            found(plane, &["serviceexport", "kubernetes", "-n", "default"]).await.is_null(),
            "it is local to its cluster"
        );
    }
    let mine = found(&east, &["serviceexport", "mine", "-n", "shop"]).await;
    assert!(mine.pointer("/metadata/ownerReferences").is_none(), "existing objects are not changed: {mine}");
    let lease = ["lease", "istio-serviceexport-controller-election", "-n", "istio-system"];
    fits(&east, &lease, |lease| lease.pointer("/metadata/annotations/istio.io~1rev") == Some(&"^default".into()))
        .await?;

    let import = "apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ServiceImport\nmetadata: { name: cart, namespace: shop }\nspec: { \
                  type: ClusterSetIP, ips: [10.96.9.9], ports: [{ name: http, port: 80 }] }\n";
    apply(&home, import).await?;
    let both = || async {
        let page: Value = serde_json::from_str(&rutter.control.debug("/debug/endpointz").await.ok()?.text()).ok()?;
        let mut services = page.as_array()?.iter();
        let of_set = services.find(|one| one["service"] == "cart.shop.svc.clusterset.local")?;
        (of_set["endpoints"].as_array()?.len() == 2).then_some(())
    };
    rutter.explained(wait_for("the endpoints of all clusters for the import", PATIENCE, both).await)?;
    east.kubectl(&["delete", "serviceexport", "cart", "-n", "shop"], "").await?;
    rutter.explained(fits(&east, &export, |export| !export.is_null()).await)?;
    east.kubectl(&["delete", "service", "cart", "-n", "shop"], "").await?;
    rutter.explained(fits(&east, &export, Value::is_null).await)?;
    let log = rutter.control.log()?;
    for trouble in ["was rejected", "forbidden", "panicked"] {
        assert!(!log.contains(trouble), "{trouble}: {log}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_exports_are_created_in_every_cluster() {
    exported().await.unwrap_or_else(|error| panic!("{error}"));
}

/// A control plane that runs in one cluster, reads its configuration from a second, and also serves a third.
async fn external() -> Result<()> {
    let (own, home, east) = tokio::try_join!(cluster(), cluster(), cluster())?;
    cart(&own, "10.9.0.1").await?;
    cart(&home, "10.1.0.1").await?;
    cart(&east, "10.2.0.1").await?;
    let (pem, key) = authority()?;
    let cacerts = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "cacerts", "namespace": MESH},
        "stringData": {"ca-cert.pem": pem, "ca-key.pem": key, "cert-chain.pem": "", "root-cert.pem": pem},
    });
    apply(&own, &cacerts.to_string()).await?;
    secret(&own, "east", &[("east", &admin(&east)?)]).await?;
    let directory = tempfile::tempdir()?;
    let secrets = directory.path().join("own");
    std::fs::copy(own.kubeconfig(), &secrets)?;
    let secrets = secrets.display().to_string();
    let flags = ["--external-istiod", "true", "--secrets-kubeconfig", &secrets, "--ca-server", "on"];
    let flags = [HOME, &flags].concat();
    let mut rutter = Rutter::idle(&home, MESH, None, &flags)?;
    rutter.control.begin().await?;
    has(&rutter, &["east 10.2.0.1", "home 10.1.0.1"]).await?;
    let map = ["configmap", "istio-ca-root-cert", "-n", "shop"];
    let written = |map: &Value| map.pointer("/data/root-cert.pem") == Some(&pem.as_str().into());
    rutter.explained(fits(&home, &map, written).await)?;
    assert!(found(&east, &map).await.is_null(), "the cluster has no annotation");
    east.kubectl(&["annotate", "namespace", MESH, "topology.istio.io/controlPlaneClusters=other,home"], "").await?;
    rutter.explained(fits(&east, &map, written).await)?;
    assert!(found(&own, &map).await.is_null(), "it serves no workloads");
    assert!(rutter.control.stop().await?, "it stops gracefully");
    let lease = ["lease", "istio-namespace-controller-election", "-n", MESH];
    let free =
        |lease: &Value| lease.pointer("/spec/holderIdentity").and_then(Value::as_str).unwrap_or_default().is_empty();
    fits(&east, &lease, |lease| !lease.is_null() && free(lease)).await
}

/// A root and its key in PEM.
fn authority() -> Result<(String, String)> {
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    let key = rcgen::KeyPair::generate()?;
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_external_control_plane_writes_in_annotated_clusters() {
    external().await.unwrap_or_else(|error| panic!("{error}"));
}
