//! Settings of proxies: the effective ProxyConfig, and reported settings that change resources.

use e2e::{Agent, Mesh};
use serde_json::{Value, json};
use test_harness::run::{Node, Protocol, Result};

const OBJECTS: &str = "\
apiVersion: networking.istio.io/v1beta1
kind: ProxyConfig
metadata: { name: mesh, namespace: istio-system }
spec: { concurrency: 3, environmentVariables: { FROM: mesh } }
---
apiVersion: networking.istio.io/v1beta1
kind: ProxyConfig
metadata: { name: a, namespace: test }
spec: { environmentVariables: { FROM: namespace } }
---
apiVersion: networking.istio.io/v1beta1
kind: ProxyConfig
metadata: { name: b, namespace: test }
spec: { concurrency: 9 }
---
apiVersion: networking.istio.io/v1beta1
kind: ProxyConfig
metadata: { name: web, namespace: test }
spec: { selector: { matchLabels: { app: web } }, image: { imageType: debug } }
---
apiVersion: v1
kind: Pod
metadata: { name: web, namespace: test, labels: { app: web }, annotations: { proxy.istio.io/config: 'statusPort: 1234' } }
spec: { containers: [{ name: c }] }
status: { podIP: 127.0.0.1, phase: Running }
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: { name: web, namespace: test }
spec: { selector: { matchLabels: { app: web } }, mtls: { mode: STRICT }, portLevelMtls: { 9100: { mode: DISABLE } } }
";

async fn settings(mesh: &Mesh, id: &str) -> Result<Value> {
    mesh.control.debug(&format!("/debug/proxyconfigz?proxyID={id}")).await?.json()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_of_proxies_come_from_all_that_has_a_say() -> Result<()> {
    let mesh = Mesh::start(&[("all.yaml", OBJECTS)]).await?;
    let mut agents = Vec::new();
    for (name, labels) in [("web", &[][..]), ("other", &[("app", "other")][..])] {
        let node = Node::sidecar(name, "test", "127.0.0.1", labels);
        let mut agent = Agent::start(mesh.control.grpc(), &node, Protocol::Delta).await?;
        agent.next().await?;
        agents.push(agent);
    }
    // The pod has the labels and the annotation.
    let page = settings(&mesh, "web.test").await?;
    let found = &page["settings"];
    assert_eq!(
        (&found["concurrency"], &found["statusPort"], &found["image"]["imageType"]),
        (&json!(3), &json!(1234), &json!("debug")),
        "{page}"
    );
    assert_eq!(found["proxyMetadata"], json!({ "FROM": "namespace" }));
    assert_eq!(page["proxyConfigs"], json!(["istio-system/mesh", "test/a", "test/web"]));
    assert_eq!(page["shadowed"], json!(["test/b"]));
    let taken = json!({ "mode": "STRICT", "ports": { "9100": "DISABLE" } });
    assert_eq!(page["mutualTls"], taken);
    // The pod of this proxy is unknown, so the labels in its metadata are used.
    let page = settings(&mesh, "other.test").await?;
    assert_eq!((&page["settings"]["image"], &page["settings"]["statusPort"]), (&Value::Null, &json!(15020)), "{page}");
    mesh.config.put("all.yaml", &OBJECTS.replace("statusPort: 1234", "statusPort: soon"))?;
    let refused = || async {
        let page = settings(&mesh, "web.test").await.ok()?;
        page["annotationRefused"].as_str().map(str::to_owned)
    };
    let why = test_harness::run::wait_for("the annotation to be refused", std::time::Duration::from_secs(20), refused)
        .await?;
    assert!(why.contains("statusPort"), "{why}");
    Ok(())
}
