//! Several real Kubernetes clusters as one mesh: clusters that Secrets name come, change and go while it runs, fail and
//! come back, and nothing of them is lost or told to anybody.

// The helpers of a test fail it where they cannot go on.
#![allow(clippy::unwrap_used)]

use std::net::UdpSocket;

use e2e::cluster::apply_crds;
use e2e::home::{PATIENCE, Rutter};
use e2e::{envoy_binary, rutter_binary};
use parts::kubernetes::{ControlPlane, Settings};
use parts::run::{Backend, Envoy, Node, Protocol, Result, free_port, http, wait_for};
use serde_json::Value;

/// The namespace of the control plane.
const MESH: &str = "mesh";
const HOME: &[&str] = &["--cluster-id", "home"];

/// A cluster with the namespaces of the mesh and of the shop.
async fn cluster() -> Result<ControlPlane> {
    let plane = ControlPlane::start(Settings::default()).await?;
    let text = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{ name: {MESH} }}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {{ name: shop \
         }}\n"
    );
    apply(&plane, &text).await?;
    Ok(plane)
}

async fn apply(plane: &ControlPlane, text: &str) -> Result<()> {
    let flags = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    plane.kubectl(&flags, text).await.map(drop)
}

/// The service `cart` with an endpoint at this address.
async fn cart(plane: &ControlPlane, ip: &str) -> Result<()> {
    endpoint(plane, "cart", ip, 80, 8080).await
}

async fn endpoint(plane: &ControlPlane, name: &str, ip: &str, port: u16, target: u16) -> Result<()> {
    let text = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{ name: {name}, namespace: shop }}\nspec: {{ ports: [{{ name: http, port: {port} \
         }}] }}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{ name: {name}-1, namespace: shop, labels: {{ \
         kubernetes.io/service-name: {name} }} }}\naddressType: IPv4\nports: [{{ name: http, port: {target} }}]\nendpoints: [{{ \
         addresses: [{ip}], conditions: {{ ready: true }} }}]\n"
    );
    apply(plane, &text).await
}

/// A Secret of the home cluster that has these texts below these ids.
async fn secret(home: &ControlPlane, name: &str, texts: &[(&str, &str)]) -> Result<()> {
    let data: serde_json::Map<String, Value> = texts
        .iter()
        .map(|(id, text)| ((*id).to_owned(), (*text).into()))
        .collect();
    let secret = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": MESH, "labels": {"istio/multiCluster": "true"}},
        "stringData": data,
    });
    apply(home, &secret.to_string()).await
}

fn admin(plane: &ControlPlane) -> Result<String> {
    plane.user("reader", Some("system:masters"))
}

/// Endpoints of a service, as `CLUSTER ADDRESS`.
async fn endpoints(rutter: &Rutter, service: &str) -> Result<Vec<String>> {
    let page: Value = serde_json::from_str(&rutter.control.debug("/debug/endpointz").await?.text())?;
    let services = page.as_array().ok_or("no list")?.iter();
    let of_service = services.filter(|one| one["service"] == format!("{service}.shop.svc.cluster.local"));
    let each = of_service.flat_map(|one| one["endpoints"].as_array().unwrap());
    let text = |one: &Value, field: &str| one[field].as_str().unwrap().to_owned();
    let mut all: Vec<String> = each
        .map(|one| format!("{} {}", text(one, "cluster"), text(one, "address")))
        .collect();
    all.sort();
    Ok(all)
}

/// Waits until the service `cart` has these endpoints.
async fn has(rutter: &Rutter, wanted: &[&str]) -> Result<()> {
    let reached = || async {
        let found = endpoints(rutter, "cart").await.ok()?;
        (found == wanted).then_some(())
    };
    let result = rutter.explained(wait_for(&format!("the endpoints {wanted:?}"), PATIENCE, reached).await);
    match result {
        Ok(()) => Ok(()),
        Err(error) => Err(format!("{error}\nthere are {:?}", endpoints(rutter, "cart").await?).into()),
    }
}

/// Waits until `/debug/clusterz` says so of a cluster; nothing: it is not in the list.
async fn stands(rutter: &Rutter, cluster: &str, status: Option<&str>) -> Result<()> {
    let reached = || async {
        let page: Value = serde_json::from_str(&rutter.control.debug("/debug/clusterz").await.ok()?.text()).ok()?;
        let found = page.as_array()?.iter().find(|one| one["id"] == cluster);
        (found.and_then(|one| one["syncStatus"].as_str()) == status).then_some(())
    };
    rutter.explained(wait_for(&format!("cluster {cluster} to be {status:?}"), PATIENCE, reached).await)
}

/// Waits until services and endpoints are those of a control plane that has just begun, and derived anew are the same.
async fn is_as_new(rutter: &Rutter, home: &ControlPlane) -> Result<()> {
    let mut fresh = Rutter::idle(home, MESH, None, HOME)?;
    fresh.control.begin().await?;
    for page in ["/debug/registryz", "/debug/endpointz", "/debug/clusterz"] {
        let same = || async {
            let ours = rutter.control.debug(page).await.ok()?.text();
            (ours == fresh.control.debug(page).await.ok()?.text()).then_some(())
        };
        rutter.explained(wait_for(&format!("the {page} of a fresh start"), PATIENCE, same).await)?;
    }
    let agrees = rutter.control.debug("/debug/recompute").await?;
    assert!(agrees.status.is_success(), "{}", agrees.text());
    Ok(())
}

/// Clusters are added, changed, fail, come back and are taken away while it runs.
async fn life() -> Result<()> {
    let (home, east, west) = tokio::try_join!(cluster(), cluster(), cluster())?;
    cart(&home, "10.1.0.1").await?;
    cart(&east, "10.2.0.1").await?;
    cart(&west, "10.3.0.1").await?;
    let mut rutter = Rutter::idle(&home, MESH, None, HOME)?;
    rutter.control.begin().await?;
    has(&rutter, &["home 10.1.0.1"]).await?;
    stands(&rutter, "home", Some("synced")).await?;

    secret(&home, "east", &[("east", &admin(&east)?)]).await?;
    has(&rutter, &["east 10.2.0.1", "home 10.1.0.1"]).await?;
    secret(&home, "west", &[("west", &admin(&west)?)]).await?;
    let all = ["east 10.2.0.1", "home 10.1.0.1", "west 10.3.0.1"];
    has(&rutter, &all).await?;
    stands(&rutter, "west", Some("synced")).await?;
    cart(&east, "10.2.0.2").await?;
    has(&rutter, &["east 10.2.0.2", "home 10.1.0.1", "west 10.3.0.1"]).await?;
    is_as_new(&rutter, &home).await?;

    refused(&rutter, &home, &east).await?;
    changed(&rutter, &home, &east, &west).await?;

    // Away, changed meanwhile, and back.
    cart(&east, "10.2.0.1").await?;
    has(&rutter, &all).await?;
    east.kill_api_server()?;
    rutter.says("cluster east: its API does not answer for", true).await?;
    has(&rutter, &all).await?;
    cart(&west, "10.3.0.2").await?;
    has(&rutter, &["east 10.2.0.1", "home 10.1.0.1", "west 10.3.0.2"]).await?;
    east.begin_api_server().await?;
    cart(&east, "10.2.0.3").await?;
    has(&rutter, &["east 10.2.0.3", "home 10.1.0.1", "west 10.3.0.2"]).await?;

    // What a selector of the mesh leaves out is left out in all clusters, by the labels that each has.
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: istio, namespace: mesh }\ndata: { mesh: \"discoverySelectors: [{ \
               matchLabels: { seen: 'yes' } }]\" }\n";
    west.kubectl(&["label", "namespace", "shop", "seen=yes"], "").await?;
    apply(&home, map).await?;
    has(&rutter, &["west 10.3.0.2"]).await?;
    east.kubectl(&["label", "namespace", "shop", "seen=yes"], "").await?;
    has(&rutter, &["east 10.2.0.3", "west 10.3.0.2"]).await?;
    is_as_new(&rutter, &home).await?;
    home.kubectl(&["delete", "configmap", "istio", "-n", MESH], "").await?;
    has(&rutter, &["east 10.2.0.3", "home 10.1.0.1", "west 10.3.0.2"]).await?;

    home.kubectl(&["delete", "secret", "east", "-n", MESH], "").await?;
    has(&rutter, &["home 10.1.0.1", "west 10.3.0.2"]).await?;
    stands(&rutter, "east", None).await?;
    assert_eq!(
        rutter
            .control
            .metric("istiod_managed_clusters", "cluster_type=\"remote\"")
            .await?,
        1.0
    );
    is_as_new(&rutter, &home).await
}

/// What is wrong with a Secret is said, without what is in it, and takes nothing away.
async fn refused(rutter: &Rutter, home: &ControlPlane, east: &ControlPlane) -> Result<()> {
    let good = admin(east)?;
    let with = |user: &str| {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{ name: c, context: {{ cluster: k, user: u }} }}]\nclusters: \
             [{{ name: k, cluster: {{ server: \"{}\" }} }}]\nusers: [{{ name: u, user: {{ {user} }} }}]\n",
            east.url()
        )
    };
    let exec = with("exec: { apiVersion: client.authentication.k8s.io/v1, command: hush-hush }");
    let file = with("tokenFile: /hush-hush");
    let bad = [
        ("east", exec.as_str()),
        ("other", file.as_str()),
        ("none", "hush-hush: ["),
        ("home", &good),
    ];
    secret(home, "east", &bad).await?;
    for text in [
        "Secret mesh/east: error: data[\"east\"].users[0].user.exec: a program is not allowed",
        "data[\"other\"].users[0].user.tokenFile: a file of this machine is not allowed",
        "data[\"none\"]: it is no kubeconfig",
        "data[\"home\"]: this is the cluster that the configuration is read from",
    ] {
        rutter.says(text, true).await?;
    }
    has(rutter, &["east 10.2.0.2", "home 10.1.0.1", "west 10.3.0.1"]).await?;
    stands(rutter, "other", None).await?;
    for page in ["/debug/clusterz", "/debug/configz", "/metrics"] {
        assert!(
            !rutter.control.debug(page).await?.text().contains("hush-hush"),
            "{page}"
        );
    }
    assert!(!rutter.control.readiness().await?.text().contains("hush-hush"));
    assert!(!rutter.control.log()?.contains("hush-hush"));
    assert_eq!(rutter.control.metric("rutter_cluster_secrets_wrong", "").await?, 1.0);

    home.kubectl(&["delete", "secret", "east", "-n", MESH], "").await?;
    has(rutter, &["home 10.1.0.1", "west 10.3.0.1"]).await?;
    secret(home, "east", &[("east", &good)]).await?;
    has(rutter, &["east 10.2.0.2", "home 10.1.0.1", "west 10.3.0.1"]).await
}

/// Another kubeconfig of the same cluster, one that leads nowhere, and one that leads to another cluster.
async fn changed(rutter: &Rutter, home: &ControlPlane, east: &ControlPlane, west: &ControlPlane) -> Result<()> {
    let all = ["east 10.2.0.2", "home 10.1.0.1", "west 10.3.0.1"];
    let good = admin(east)?;
    let nowhere = good.replace(&east.url(), &format!("https://127.0.0.1:{}", free_port()));
    secret(home, "east", &[("east", &nowhere)]).await?;
    rutter
        .says(
            "cluster east was not read by the new kubeconfig of Secret mesh/east yet: what it had stays",
            true,
        )
        .await?;
    has(rutter, &all).await?;
    // The follower before goes on as long as the new one has nothing.
    cart(east, "10.2.0.9").await?;
    has(rutter, &["east 10.2.0.9", "home 10.1.0.1", "west 10.3.0.1"]).await?;
    // Nor does one who may read nothing say that there is nothing.
    secret(home, "east", &[("east", &west.user("nobody", None)?)]).await?;
    rutter.says("what it had stays: we may not read", true).await?;
    has(rutter, &["east 10.2.0.9", "home 10.1.0.1", "west 10.3.0.1"]).await?;
    secret(home, "east", &[("east", &admin(west)?)]).await?;
    has(rutter, &["east 10.3.0.1", "home 10.1.0.1", "west 10.3.0.1"]).await?;
    secret(home, "east", &[("east", &good)]).await?;
    has(rutter, &["east 10.2.0.9", "home 10.1.0.1", "west 10.3.0.1"]).await?;

    // A second Secret of the same id waits for its turn.
    secret(home, "second", &[("east", &admin(west)?)]).await?;
    rutter
        .says(
            "Secret mesh/second: warning: data[\"east\"]: Secret mesh/east names this cluster, too",
            true,
        )
        .await?;
    home.kubectl(&["delete", "secret", "east", "-n", MESH], "").await?;
    has(rutter, &["east 10.3.0.1", "home 10.1.0.1", "west 10.3.0.1"]).await?;
    home.kubectl(&["delete", "secret", "second", "-n", MESH], "").await?;
    has(rutter, &["home 10.1.0.1", "west 10.3.0.1"]).await?;
    secret(home, "east", &[("east", &good)]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_come_change_fail_and_go() {
    life().await.unwrap_or_else(|error| panic!("{error}"));
}

/// A cluster that is away at the start holds nobody up; what was read of it before is served where there is a snapshot,
/// also while nobody can say which clusters there are.
async fn away() -> Result<()> {
    let (home, east) = tokio::try_join!(cluster(), cluster())?;
    cart(&home, "10.1.0.1").await?;
    cart(&east, "10.2.0.1").await?;
    secret(&home, "east", &[("east", &admin(&east)?)]).await?;
    east.kill_api_server()?;
    let mut rutter = Rutter::idle(&home, MESH, None, &[HOME, &["--remote-cluster-timeout", "2s"]].concat())?;
    rutter.control.begin().await?;
    has(&rutter, &["home 10.1.0.1"]).await?;
    rutter
        .says(
            "cluster east (Secret mesh/east) was not read yet: its API does not answer",
            true,
        )
        .await?;
    stands(&rutter, "east", Some("timeout")).await?;
    rutter.control.wait_for_log("the others are served without it").await?;
    east.begin_api_server().await?;
    let both = ["east 10.2.0.1", "home 10.1.0.1"];
    has(&rutter, &both).await?;
    stands(&rutter, "east", Some("synced")).await?;
    is_as_new(&rutter, &home).await?;

    let file = rutter.data().join("cluster-east.snapshot");
    let kept = || async { std::fs::metadata(&file).ok().map(drop) };
    wait_for("the snapshot of the other cluster", PATIENCE, kept).await?;
    rutter.control.stop().await?;
    let text = String::from_utf8_lossy(&std::fs::read(&file)?).into_owned();
    assert!(text.contains("10.2.0.1") && !text.contains("certificate") && !text.contains("token"));

    east.kill_api_server()?;
    rutter.control.begin().await?;
    has(&rutter, &both).await?;
    rutter
        .says(
            "cluster east (Secret mesh/east): serving the snapshot of an earlier run",
            true,
        )
        .await?;
    rutter.control.stop().await?;
    home.kill_api_server()?;
    rutter.control.begin().await?;
    has(&rutter, &both).await?;
    rutter
        .says("serving snapshots of an earlier run of the clusters east", true)
        .await?;
    home.begin_api_server().await?;
    east.begin_api_server().await?;
    cart(&east, "10.2.0.2").await?;
    has(&rutter, &["east 10.2.0.2", "home 10.1.0.1"]).await?;
    is_as_new(&rutter, &home).await?;
    home.kubectl(&["delete", "secret", "east", "-n", MESH], "").await?;
    has(&rutter, &["home 10.1.0.1"]).await?;
    let gone = || async { (!file.exists()).then_some(()) };
    wait_for("the snapshot to go with the cluster", PATIENCE, gone).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_away_holds_nobody_up() {
    away().await.unwrap_or_else(|error| panic!("{error}"));
}

/// The address of this machine by which others reach it; none where it has only its own.
fn own_address() -> Option<std::net::IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: it only asks which way it would go.
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

/// A real proxy is answered by endpoints of two clusters, and by the one that is left.
async fn answered() -> Result<()> {
    let Some(ip) = own_address() else {
        eprintln!("skipped: this machine has no address that Kubernetes takes for an endpoint");
        return Ok(());
    };
    let (home, east) = tokio::try_join!(cluster(), cluster())?;
    let port = free_port();
    let near = Backend::start_on(ip, "near", "near").await?;
    let far = Backend::start_on(ip, "far", "far").await?;
    endpoint(&home, "cart", &ip.to_string(), port, near.address().port()).await?;
    endpoint(&east, "cart", &ip.to_string(), port, far.address().port()).await?;
    let rule = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: { name: cart, namespace: shop }\nspec: { host: \
                cart.shop.svc.cluster.local, trafficPolicy: { tls: { mode: DISABLE } } }\n";
    apply_crds(&home).await?;
    apply(&home, rule).await?;
    secret(&home, "east", &[("east", &admin(&east)?)]).await?;
    let mut rutter = Rutter::idle(&home, MESH, None, HOME)?;
    rutter.control.begin().await?;
    let node = Node::sidecar("client", "shop", "127.0.0.2", &[("app", "client")]);
    let envoy = Envoy::start(envoy_binary(), &node, Protocol::Delta, rutter.control.grpc()).await?;
    let address = ([127, 0, 0, 1], port).into();
    envoy.wait_for_listener(address).await?;
    let cluster = format!("outbound|{port}||cart.shop.svc.cluster.local");
    let cluster = &cluster;
    let runs = |backends: Vec<String>| {
        let (envoy, mut wanted) = (&envoy, backends);
        wanted.sort();
        async move {
            let wanted = &wanted;
            let reached = move || async move {
                let found = envoy.endpoints(cluster).await.ok().flatten()?;
                (found == *wanted).then_some(())
            };
            wait_for(&format!("{wanted:?} in the proxy"), PATIENCE, reached).await
        }
    };
    runs(vec![near.address().to_string(), far.address().to_string()]).await?;
    let mut versions = std::collections::BTreeSet::new();
    for _ in 0..40 {
        let answer = http::get(address, "/", &[("host", "cart.shop.svc.cluster.local")]).await?;
        versions.insert(answer.header("x-version").to_owned());
    }
    assert_eq!(versions.len(), 2, "{versions:?}");
    home.kubectl(&["delete", "secret", "east", "-n", MESH], "").await?;
    runs(vec![near.address().to_string()]).await?;
    for _ in 0..10 {
        let answer = http::get(address, "/", &[("host", "cart.shop.svc.cluster.local")]).await?;
        assert_eq!(answer.header("x-version"), "near");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_of_two_clusters_answer_a_proxy() {
    answered().await.unwrap_or_else(|error| panic!("{error}"));
}

/// A cluster with the chart's objects, and these settings of it.
async fn installed(set: &[&str]) -> Result<ControlPlane> {
    let plane = cluster().await?;
    let mut command = std::process::Command::new(rutter_binary());
    command.args(["manifest", "--create-namespace"]);
    for set in set {
        command.args(["--set-string", set]);
    }
    let manifest = command.output()?;
    assert!(
        manifest.status.success(),
        "{}",
        String::from_utf8_lossy(&manifest.stderr)
    );
    apply(&plane, &String::from_utf8(manifest.stdout)?).await?;
    let established = ["wait", "--for=condition=established", "crd", "--all", "--timeout=60s"];
    plane.kubectl(&established, "").await?;
    Ok(plane)
}

/// Makes the Secret by which one cluster is read, as users do, and puts it into another.
async fn join(home: &ControlPlane, other: &ControlPlane, name: &str) -> Result<()> {
    let made = std::process::Command::new(rutter_binary())
        .args(["create-remote-secret", "--name", name, "--kubeconfig"])
        .arg(other.kubeconfig())
        .output()?;
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    apply(home, &String::from_utf8(made.stdout)?).await
}

/// What `kubectl get` says of an object; null where there is none.
async fn found(plane: &ControlPlane, object: &[&str]) -> Value {
    let text = plane.kubectl(&[&["get", "-o", "json"], object].concat(), "").await;
    text.ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default()
}

/// Waits until an object fits.
async fn fits(plane: &ControlPlane, object: &[&str], test: impl Fn(&Value) -> bool) -> Result<()> {
    let test = &test;
    let reached = || async move {
        let found = found(plane, object).await;
        test(&found).then_some(())
    };
    wait_for(&format!("{object:?} to be as it should"), PATIENCE, reached).await
}

/// With the rights that the chart gives, and joined by the command that users have: every service is exported in its own
/// cluster, and one that is imported has the endpoints of all.
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
            found(plane, &["serviceexport", "kubernetes", "-n", "default"])
                .await
                .is_null(),
            "it is local to its cluster"
        );
    }
    let mine = found(&east, &["serviceexport", "mine", "-n", "shop"]).await;
    assert!(
        mine.pointer("/metadata/ownerReferences").is_none(),
        "what is there is left alone: {mine}"
    );
    let lease = ["lease", "istio-serviceexport-controller-election", "-n", "istio-system"];
    fits(&east, &lease, |lease| {
        lease.pointer("/metadata/annotations/istio.io~1rev") == Some(&"^default".into())
    })
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
    east.kubectl(&["delete", "serviceexport", "cart", "-n", "shop"], "")
        .await?;
    rutter.explained(fits(&east, &export, |export| !export.is_null()).await)?;
    east.kubectl(&["delete", "service", "cart", "-n", "shop"], "").await?;
    rutter.explained(fits(&east, &export, Value::is_null).await)?;
    let log = rutter.control.log()?;
    for trouble in ["is refused", "forbidden", "panicked"] {
        assert!(!log.contains(trouble), "{trouble}: {log}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_are_exported_in_every_cluster() {
    exported().await.unwrap_or_else(|error| panic!("{error}"));
}

/// Clusters of kubeconfigs in a directory, which come and go as Secrets do.
async fn files() -> Result<()> {
    let (home, east) = tokio::try_join!(cluster(), cluster())?;
    cart(&home, "10.1.0.1").await?;
    cart(&east, "10.2.0.1").await?;
    let directory = tempfile::tempdir()?;
    let path = directory.path().display().to_string();
    let flags = [HOME, &["--multicluster-kubeconfig-path", &path]].concat();
    let mut rutter = Rutter::idle(&home, MESH, None, &flags)?;
    rutter.control.begin().await?;
    has(&rutter, &["home 10.1.0.1"]).await?;
    // The current context calls it so.
    std::fs::write(directory.path().join("east.yaml"), admin(&east)?)?;
    has(&rutter, &["cluster 10.2.0.1", "home 10.1.0.1"]).await?;
    std::fs::write(directory.path().join("other.yaml"), "hush-hush: [")?;
    rutter
        .says("other.yaml: error: data[\"other.yaml\"]: it is no kubeconfig", true)
        .await?;
    std::fs::write(directory.path().join("east.yaml"), "hush-hush: [")?;
    rutter
        .says("east.yaml: error: data[\"cluster\"]: it is no kubeconfig", true)
        .await?;
    cart(&east, "10.2.0.2").await?;
    has(&rutter, &["cluster 10.2.0.2", "home 10.1.0.1"]).await?;
    std::fs::remove_file(directory.path().join("east.yaml"))?;
    has(&rutter, &["home 10.1.0.1"]).await?;
    assert!(!rutter.control.log()?.contains("hush-hush"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubeconfigs_may_be_files() {
    files().await.unwrap_or_else(|error| panic!("{error}"));
}

/// A control plane that lives in one cluster, has its configuration in a second, and serves a third, too.
async fn external() -> Result<()> {
    const PEM: &str = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";
    let (own, home, east) = tokio::try_join!(cluster(), cluster(), cluster())?;
    cart(&own, "10.9.0.1").await?;
    cart(&home, "10.1.0.1").await?;
    cart(&east, "10.2.0.1").await?;
    let literal = format!("--from-literal=root-cert.pem={PEM}");
    own.kubectl(&["create", "secret", "generic", "cacerts", "-n", MESH, &literal], "")
        .await?;
    secret(&own, "east", &[("east", &admin(&east)?)]).await?;
    let directory = tempfile::tempdir()?;
    let secrets = directory.path().join("own");
    std::fs::copy(own.kubeconfig(), &secrets)?;
    let secrets = secrets.display().to_string();
    let flags = [HOME, &["--external-istiod", "true", "--secrets-kubeconfig", &secrets]].concat();
    let mut rutter = Rutter::idle(&home, MESH, None, &flags)?;
    rutter.control.begin().await?;
    has(&rutter, &["east 10.2.0.1", "home 10.1.0.1"]).await?;
    let map = ["configmap", "istio-ca-root-cert", "-n", "shop"];
    let written = |map: &Value| map.pointer("/data/root-cert.pem") == Some(&PEM.into());
    rutter.explained(fits(&home, &map, written).await)?;
    assert!(found(&east, &map).await.is_null(), "it did not ask for us");
    east.kubectl(
        &[
            "annotate",
            "namespace",
            MESH,
            "topology.istio.io/controlPlaneClusters=other,home",
        ],
        "",
    )
    .await?;
    rutter.explained(fits(&east, &map, written).await)?;
    assert!(found(&own, &map).await.is_null(), "it serves no workloads");
    assert!(rutter.control.stop().await?, "it ends in good order");
    let lease = ["lease", "istio-namespace-controller-election", "-n", MESH];
    let free = |lease: &Value| {
        lease
            .pointer("/spec/holderIdentity")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .is_empty()
    };
    fits(&east, &lease, |lease| !lease.is_null() && free(lease)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_plane_outside_of_its_clusters_writes_where_it_is_asked_to() {
    external().await.unwrap_or_else(|error| panic!("{error}"));
}

/// An endpoint of another cluster's network is that network's gateway to a client, and itself to a client of its network.
async fn networks() -> Result<()> {
    let (home, east) = tokio::try_join!(cluster(), cluster())?;
    let port = free_port();
    let label = |network: &str| format!("topology.istio.io/network={network}");
    home.kubectl(&["label", "namespace", MESH, &label("near")], "").await?;
    east.kubectl(&["label", "namespace", MESH, &label("far")], "").await?;
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: istio, namespace: mesh }\ndata: { mesh: \"rootNamespace: mesh\" }\n";
    apply(&home, map).await?;
    endpoint(&home, "cart", "10.1.0.1", port, 8080).await?;
    endpoint(&east, "cart", "10.2.0.1", port, 8080).await?;
    let gateway = "apiVersion: v1\nkind: Service\nmetadata: { name: eastwest, namespace: mesh, labels: { topology.istio.io/network: far \
                   } }\nspec: { externalIPs: [192.0.2.50], ports: [{ name: tls, port: 15443 }] }\n---\napiVersion: v1\nkind: \
                   Pod\nmetadata: { name: cart-1, namespace: shop, labels: { security.istio.io/tlsMode: istio } }\nspec: { nodeName: \
                   n1, containers: [{ name: a, image: a }], tolerations: [{ operator: Exists }] }\n";
    apply(&east, gateway).await?;
    let status = r#"{"status":{"phase":"Running","podIP":"10.2.0.1","podIPs":[{"ip":"10.2.0.1"}],"conditions":[{"type":"Ready","status":"True"}]}}"#;
    let patch = [
        "patch",
        "pod",
        "cart-1",
        "-n",
        "shop",
        "--subresource=status",
        "--type=merge",
        "-p",
        status,
    ];
    east.kubectl(&patch, "").await?;
    secret(&home, "east", &[("east", &admin(&east)?)]).await?;
    let mut rutter = Rutter::idle(&home, MESH, None, HOME)?;
    rutter.control.begin().await?;
    has(&rutter, &["east 10.2.0.1", "home 10.1.0.1"]).await?;
    let cluster = format!("outbound|{port}||cart.shop.svc.cluster.local");
    let sees = async |network: &str, id: &str, wanted: &[&str]| -> Result<()> {
        let mut node = Node::sidecar("client", "shop", "127.0.0.2", &[("app", "client")]);
        node.metadata["NETWORK"] = network.into();
        node.metadata["CLUSTER_ID"] = id.into();
        let envoy = Envoy::start(envoy_binary(), &node, Protocol::Delta, rutter.control.grpc()).await?;
        let (envoy, cluster) = (&envoy, &cluster);
        let reached = || async move {
            let found = envoy.endpoints(cluster).await.ok().flatten()?;
            (found == wanted).then_some(())
        };
        let reached = wait_for(&format!("{wanted:?} for a client in {network}"), PATIENCE, reached).await;
        match reached {
            Ok(()) => Ok(()),
            Err(error) => Err(format!("{error}; there are {:?}", envoy.endpoints(cluster).await?).into()),
        }
    };
    sees("near", "home", &["10.1.0.1:8080", "192.0.2.50:15443"]).await?;
    // The network of home has no gateway: it is reached directly.
    sees("far", "east", &["10.1.0.1:8080", "10.2.0.1:8080"]).await?;
    let away = r#"{"spec":{"externalIPs":["192.0.2.51"]}}"#;
    east.kubectl(
        &["patch", "service", "eastwest", "-n", MESH, "--type=merge", "-p", away],
        "",
    )
    .await?;
    sees("near", "home", &["10.1.0.1:8080", "192.0.2.51:15443"]).await?;
    is_as_new(&rutter, &home).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_network_is_reached_through_its_gateway() {
    networks().await.unwrap_or_else(|error| panic!("{error}"));
}

/// With the switch for it, clients of other clusters get the endpoints of clusters that export the service, and no others.
async fn shared() -> Result<()> {
    let (home, east) = tokio::try_join!(cluster(), cluster())?;
    apply_crds(&home).await?;
    apply_crds(&east).await?;
    let port = free_port();
    endpoint(&home, "cart", "10.1.0.1", port, 8080).await?;
    endpoint(&east, "cart", "10.2.0.1", port, 8080).await?;
    secret(&home, "east", &[("east", &admin(&east)?)]).await?;
    let mut rutter = Rutter::idle(&home, MESH, None, &[HOME, &["--mcs-service-discovery", "on"]].concat())?;
    rutter.control.begin().await?;
    has(&rutter, &["east 10.2.0.1", "home 10.1.0.1"]).await?;
    let mut node = Node::sidecar("client", "shop", "127.0.0.2", &[("app", "client")]);
    node.metadata["CLUSTER_ID"] = "home".into();
    let envoy = Envoy::start(envoy_binary(), &node, Protocol::Delta, rutter.control.grpc()).await?;
    let cluster = format!("outbound|{port}||cart.shop.svc.cluster.local");
    let (envoy, cluster) = (&envoy, &cluster);
    let sees = async |wanted: &[&str]| {
        let reached = || async move {
            let found = envoy.endpoints(cluster).await.ok().flatten()?;
            (found == wanted).then_some(())
        };
        wait_for(&format!("{wanted:?}"), PATIENCE, reached).await
    };
    sees(&["10.1.0.1:8080"]).await?;
    let export =
        "apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ServiceExport\nmetadata: { name: cart, namespace: shop }\n";
    apply(&east, export).await?;
    sees(&["10.1.0.1:8080", "10.2.0.1:8080"]).await?;
    east.kubectl(&["delete", "serviceexport", "cart", "-n", "shop"], "")
        .await?;
    sees(&["10.1.0.1:8080"]).await?;
    is_as_new(&rutter, &home).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_exported_stays_in_its_cluster() {
    shared().await.unwrap_or_else(|error| panic!("{error}"));
}
