//! The agent, with a real Envoy and a real control plane: two machines join with tokens, their traffic is captured, and they call
//! each other with mutual TLS.

use e2e::issued::start_on;
use e2e::machine::Machine;
use e2e::objects::networking;
use e2e::secured::peers;
use e2e::{Namespace, PATIENCE};
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

async fn machines() -> Result<()> {
    let skipped = "machines with agents were not tested";
    let machine = || match Namespace::uncaptured()? {
        Ok(namespace) => Ok::<_, test_harness::run::Error>(Some(namespace)),
        Err(missing) => {
            eprintln!("SKIPPED: {skipped}: {missing}");
            Ok(None)
        }
    };
    let (Some(web), Some(client)) = (machine()?, machine()?) else { return Ok(()) };
    web.link(&client)?;
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
