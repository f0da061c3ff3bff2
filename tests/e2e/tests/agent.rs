//! The agent, with a real Envoy and a real control plane: two machines join with tokens, their traffic is captured, and they call
//! each other with mutual TLS.

use e2e::issued::start_on;
use e2e::machine::Machine;
use e2e::objects::networking;
use e2e::secured::peers;
use e2e::{Namespace, PATIENCE, done};
use serde_json::json;
use test_harness::run::{Result, http, wait_for};

/// The address of the service, which exists only in the configuration.
const ADDRESS: &str = "198.19.0.20";
const CLIENT: &str = "URI=spiffe://cluster.local/ns/test/sa/client";

/// A service of one machine.
fn service(machine: &Namespace) -> String {
    let endpoint = format!(
        "{{ address: {}, ports: {{ http: 8080 }}, serviceAccount: web, labels: {{ security.istio.io/tlsMode: istio }} }}",
        machine.ip
    );
    let ports = "{ number: 80, name: http, protocol: HTTP, targetPort: 8080 }";
    let spec = format!(
        "hosts: [web.mesh], addresses: [{ADDRESS}], location: MESH_INTERNAL, resolution: STATIC, ports: [{ports}], \
         endpoints: [{endpoint}]"
    );
    networking("ServiceEntry", "web", &spec)
}

/// The networks of two machines that reach each other; none if this machine cannot have them.
fn networks() -> Result<Option<(Namespace, Namespace)>> {
    match (Namespace::uncaptured()?, Namespace::uncaptured()?) {
        (Ok(web), Ok(client)) => {
            web.link(&client)?;
            Ok(Some((web, client)))
        }
        (Err(missing), _) | (_, Err(missing)) => {
            eprintln!("SKIPPED: machines with agents were not tested: {missing}");
            Ok(None)
        }
    }
}

async fn machines() -> Result<()> {
    let Some((web, client)) = networks()? else { return Ok(()) };
    let (host, data) = (web.host, tempfile::tempdir()?);
    let files = [("web.yaml", service(&web)), ("peers.yaml", peers("default", "mtls: { mode: STRICT }"))];
    let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let mut mesh = start_on(host.into(), &files, &data, &[]).await?;
    let mut web = Machine::new(&mesh.control, web, "web").await?;
    let mut client = Machine::new(&mesh.control, client, "client").await?;
    web.start().await?;
    client.start().await?;
    let _application = web.application()?;

    // By the address of the service, and by its name, which only the agent's DNS proxy knows.
    client.reaches(&format!("http://{ADDRESS}/"), CLIENT).await?;
    client.reaches("http://web.mesh/", CLIENT).await?;
    // Plaintext from outside of the mesh is refused.
    let outside = http::get(web.address(), "/", &[]).await;
    assert!(outside.is_err(), "{outside:?}");

    // The key is only in the folder of certificates; the token was sent once.
    let (log, token) =
        (client.log()?, std::fs::read_to_string(client.folder.path().join("var/run/secrets/tokens/istio-token"))?);
    assert!(!log.contains("PRIVATE KEY") && !log.contains(token.trim()), "{log}");

    // A restarted control plane, a crashed Envoy and a restarted agent are invisible after a moment.
    mesh.control.kill().await?;
    mesh.control.begin().await?;
    client.reaches("http://web.mesh/", CLIENT).await?;
    let pid = client.done(&["request", "GET", "server_info"]).await?;
    assert!(pid.contains("LIVE"), "{pid}");
    crash(&client).await?;
    client.reaches("http://web.mesh/", CLIENT).await?;
    assert_eq!(client.stop().await?, Some(0), "{}", client.log()?);
    client.start().await?;
    client.reaches("http://web.mesh/", CLIENT).await?;
    assert_eq!(web.stop().await?, Some(0), "{}", web.log()?);
    Ok(())
}

/// A group of machines that serve `web.mesh`.
const GROUP: &str = "\
apiVersion: v1
kind: Namespace
metadata: { name: test }
---
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: { name: web, namespace: test }
spec:
  metadata: { labels: { app: web } }
  template: { serviceAccount: web }
  probe: { periodSeconds: 1, failureThreshold: 1, httpGet: { port: 8080 } }
";

async fn registered() -> Result<()> {
    let Some((web, client)) = networks()? else { return Ok(()) };
    let (host, data) = (web.host, tempfile::tempdir()?);
    let ports = "{ number: 80, name: http, protocol: HTTP, targetPort: 8080 }";
    let service = networking(
        "ServiceEntry",
        "web",
        &format!(
            "hosts: [web.mesh], addresses: [{ADDRESS}], location: MESH_INTERNAL, resolution: STATIC, ports: [{ports}], \
             workloadSelector: {{ labels: {{ app: web }} }}"
        ),
    );
    let strict = peers("default", "mtls: { mode: STRICT }");
    let files = [("web.yaml", service.as_str()), ("peers.yaml", &strict)];
    let mesh = start_on(host.into(), &files, &data, &["--workload-grace-period", "1s"]).await?;
    let kubeconfig = mesh.control.kubeconfig().ok_or("no kubeconfig")?;
    done(&kubeconfig, &["apply", "-f", "-"], GROUP).await?;
    let mut web = Machine::new(&mesh.control, web, "web").await?;
    web.variables.insert("ISTIO_META_AUTO_REGISTER_GROUP", "web".to_owned());
    web.settings["readinessProbe"] =
        json!({ "periodSeconds": 1, "failureThreshold": 1, "httpGet": { "path": "/", "port": 8080 } });
    let mut client = Machine::new(&mesh.control, client, "client").await?;
    let application = web.application()?;
    web.start().await?;
    client.start().await?;

    // It registers itself, and is called when its application is healthy.
    client.reaches("http://web.mesh/", CLIENT).await?;
    let entries = || done(&kubeconfig, &["get", "workloadentries", "-n", "test", "-o", "name"], "");
    let name = format!("web-{}", web.namespace.ip);
    let listed = entries().await?;
    assert!(listed.contains(&name), "{listed}");
    // Its health is lost, and comes back.
    drop(application);
    let lost = || async { client.fetch("http://web.mesh/").ok().filter(|answer| answer.starts_with("503 ")).map(drop) };
    wait_for("an unhealthy machine to be left out", PATIENCE, lost).await?;
    let _application = web.application()?;
    client.reaches("http://web.mesh/", CLIENT).await?;
    // It leaves.
    assert_eq!(web.stop().await?, Some(0), "{}", web.log()?);
    let left = || async { entries().await.ok().filter(|listed| !listed.contains(&name)).map(drop) };
    wait_for("the entry of a machine that left to be deleted", PATIENCE, left).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_registers_loses_its_health_and_leaves() {
    registered().await.unwrap_or_else(|error| panic!("{error}"));
}

/// Kills the Envoy of a machine, and waits until the agent says that it crashed.
async fn crash(machine: &Machine) -> Result<()> {
    let started = "started Envoy pid=";
    let log = machine.log()?;
    let pid = log.rsplit_once(started).and_then(|(_, rest)| rest.split_whitespace().next()).ok_or("no process")?;
    let count = log.matches(started).count();
    tokio::process::Command::new("kill").args(["-9", pid]).status().await?;
    let again = || async { machine.log().ok().filter(|log| log.matches(started).count() > count).map(drop) };
    wait_for("another Envoy", PATIENCE, again).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_join_with_tokens_and_call_each_other() {
    machines().await.unwrap_or_else(|error| panic!("{error}"));
}
