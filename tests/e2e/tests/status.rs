//! Statuses: an applied object travels to a real Envoy, and the acknowledgement back into its status.

use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::{HOST, both_protocols, done, envoy_binary, rutter, rutter_binary, shop_service, virtual_service};
use tempfile::TempDir;
use test_harness::run::{Backend, Control, Envoy, Node, Result, free_port, wait_for};

/// Exceeds Envoy's limit on the size of a compiled regular expression. The expression is valid, so only Envoy rejects
/// it.
const REGEX: &str = "/[a-z]{1,50}/[0-9]{1,50}/(one|two|three|four|five|six|seven|eight|nine|ten)+";
/// A part of Envoy's error message.
const WORDS: &str = "max program size";

fn to(version: &str, rest: &str) -> String {
    let route = format!("[{{ route: [{{ destination: {{ host: {HOST}, subset: {version} }} }}]{rest} }}]");
    virtual_service("[mesh]", &route)
}

/// A control plane with its own store, and the namespace `test` in it.
struct Home {
    control: Control,
    kubeconfig: PathBuf,
    _data: TempDir,
}

async fn home() -> Result<Home> {
    let data = tempfile::tempdir()?;
    let control = Control::start_with_api(rutter_binary(), data.path(), &[]).await?;
    let kubeconfig = control.kubeconfig().ok_or("it has no kubeconfig")?;
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: { name: test }\n";
    done(&kubeconfig, &["create", "-f", "-"], namespace).await?;
    Ok(Home { control, kubeconfig, _data: data })
}

/// A field of the VirtualService's status.
async fn status(kubeconfig: &Path, path: &str) -> Result<String> {
    let path = format!("jsonpath={{.status.{path}}}");
    done(kubeconfig, &["get", "virtualservice", "shop", "-n", "test", "-o", &path], "").await
}

const WAIT: [&str; 7] = ["wait", "virtualservice/shop", "-n", "test", "--for=proxies=100%", "--timeout", "30s"];

both_protocols! {
    async fn an_apply_travels_to_envoy_and_back(protocol) {
        let home = home().await?;
        let kubeconfig = &home.kubeconfig;
        let backends = [Backend::start("v1", "shop-0").await?, Backend::start("v2", "shop-1").await?];
        let port = free_port();
        let backends: Vec<&Backend> = backends.iter().collect();
        let objects = format!("{}---\n{}", shop_service(port, "{ tls: { mode: DISABLE } }", &backends), to("v1", ""));
        done(kubeconfig, &["apply", "-f", "-"], &objects).await?;

        let node = Node::sidecar("client", "test", "127.0.0.2", &[("app", "client")]);
        let envoy = Envoy::start(envoy_binary(), &node, protocol, home.control.grpc()).await?;
        envoy.wait_for_listener(([127, 0, 0, 1], port).into()).await?;
        let counted = || async { (status(kubeconfig, "proxies.running").await.ok()? == "1").then_some(()) };
        wait_for("one proxy that runs it", Duration::from_secs(20), counted).await?;

        done(kubeconfig, &["apply", "-f", "-"], &to("v2", "")).await?;
        done(kubeconfig, &WAIT, "").await?;
        assert_eq!(status(kubeconfig, "proxies.generation").await?, "2");
        assert_eq!(status(kubeconfig, "conditions[?(@.type==\"Programmed\")].status").await?, "True");

        // Envoy rejects it; `rutter wait` fails with the proxy's name and Envoy's message.
        done(kubeconfig, &["apply", "-f", "-"], &to("v1", &format!(", match: [{{ uri: {{ regex: '{REGEX}' }} }}]"))).await?;
        let refused = rutter(kubeconfig, &WAIT, "").await?;
        let said = String::from_utf8_lossy(&refused.stderr).into_owned() + &String::from_utf8_lossy(&refused.stdout);
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(said.contains(WORDS) && said.contains("client"), "{said}");
        assert_eq!(status(kubeconfig, "proxies.rejected").await?, "1");
        assert_eq!(status(kubeconfig, "conditions[?(@.type==\"Programmed\")].reason").await?, "Rejected");

        done(kubeconfig, &["apply", "-f", "-"], &to("v1", "")).await?;
        done(kubeconfig, &WAIT, "").await?;
        assert_eq!(status(kubeconfig, "proxies.rejected").await?, "0");
        assert_eq!(status(kubeconfig, "proxies.rejection").await?, "");

        // Rolls back to the previous version in the store's history.
        let history = done(kubeconfig, &["history", "virtualservice/shop", "-n", "test"], "").await?;
        assert!(history.lines().count() >= 5, "{history}");
        done(kubeconfig, &["rollback", "virtualservice/shop", "-n", "test"], "").await?;
        let regex = "jsonpath={.spec.http[0].match[0].uri.regex}";
        let now = done(kubeconfig, &["get", "virtualservice", "shop", "-n", "test", "-o", regex], "").await?;
        assert_eq!(now.trim(), REGEX);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_comes_later_in_the_same_apply_is_not_missing() {
    applied_backwards().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn applied_backwards() -> Result<()> {
    let home = home().await?;
    let backend = Backend::start("v1", "shop-0").await?;
    let service = shop_service(free_port(), "{ tls: { mode: DISABLE } }", &[&backend]);
    let applied = rutter(&home.kubeconfig, &["apply", "-f", "-"], &format!("{}---\n{service}", to("v1", ""))).await?;
    let said = String::from_utf8_lossy(&applied.stderr).into_owned();
    assert!(applied.status.success() && said.is_empty(), "{said}");
    let alone = rutter(&home.kubeconfig, &["apply", "-f", "-"], &to("v3", "")).await?;
    let said = String::from_utf8_lossy(&alone.stderr).into_owned();
    assert!(said.contains("no DestinationRule for shop.test.svc.cluster.local has the subset v3"), "{said}");
    Ok(())
}

/// The message of a condition of a VirtualService; empty if it has none.
async fn condition(kubeconfig: &Path, name: &str, condition: &str) -> Result<String> {
    let path = format!("jsonpath={{.status.conditions[?(@.type==\"{condition}\")].message}}");
    let get = ["get", "virtualservice", name, "-n", "test", "-o", &path];
    Ok(done(kubeconfig, &get, "").await?.trim().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_conflicted_condition_appears_and_disappears() {
    overruled().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn overruled() -> Result<()> {
    let home = home().await?;
    let kubeconfig = &home.kubeconfig;
    // Objects that were created in the same second are ordered by name.
    let second = to("v2", "").replacen("name: shop", "name: shop-two", 1);
    done(kubeconfig, &["apply", "-f", "-"], &format!("{}---\n{second}", to("v1", ""))).await?;
    let said = async |name, wanted: &str, text: &str| {
        let there = || async {
            let found = condition(kubeconfig, name, wanted).await.ok()?;
            (if text.is_empty() { found.is_empty() } else { found.contains(text) }).then_some(())
        };
        wait_for(&format!("{name}: {wanted} {text:?}"), Duration::from_secs(20), there).await
    };
    said("shop-two", "Conflicted", "spec.hosts[0]: VirtualService test/shop has the host").await?;
    said("shop", "Accepted", "the object is valid").await?;
    assert_eq!(condition(kubeconfig, "shop", "Conflicted").await?, "");
    done(kubeconfig, &["delete", "virtualservice", "shop", "-n", "test"], "").await?;
    said("shop-two", "Conflicted", "").await
}

both_protocols! {
    async fn a_filter_learns_which_of_its_patches_are_left_out(protocol) {
        let home = home().await?;
        let kubeconfig = &home.kubeconfig;
        let backend = Backend::start("v1", "shop-0").await?;
        let port = free_port();
        let filter = |patch: &str| format!(
            "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {{ name: shop, namespace: test }}\n\
             spec: {{ configPatches: [{{ applyTo: CLUSTER, match: {{ cluster: {{ service: {HOST} }} }}, \
             patch: {{ operation: MERGE, value: {{ {patch} }} }} }}] }}\n"
        );
        let bad = "loadAssignment: { policy: { weightedPriorityHealth: true } }";
        let service = shop_service(port, "{ tls: { mode: DISABLE } }", &[&backend]);
        done(kubeconfig, &["apply", "-f", "-"], &format!("{service}---\n{}", filter(bad))).await?;
        let said = async |wanted: &str| {
            let path = "jsonpath={.status.conditions[?(@.type==\"PatchesApplied\")].message}";
            let there = || async {
                let found = done(kubeconfig, &["get", "envoyfilter", "shop", "-n", "test", "-o", path], "").await.ok()?;
                let found = found.trim();
                (if wanted.is_empty() { found.is_empty() } else { found.contains(wanted) }).then_some(())
            };
            wait_for(&format!("PatchesApplied: {wanted:?}"), Duration::from_secs(30), there).await
        };

        let node = Node::sidecar("client", "test", "127.0.0.2", &[("app", "client")]);
        let envoy = Envoy::start(envoy_binary(), &node, protocol, home.control.grpc()).await?;
        envoy.wait_for_listener(([127, 0, 0, 1], port).into()).await?;
        // The service has subsets, and therefore several clusters.
        said(&format!("{HOST} for one: the result would not be valid: loadAssignment")).await?;
        done(kubeconfig, &["apply", "-f", "-"], &filter("connectTimeout: 3s")).await?;
        said("").await?;
        assert_eq!(envoy.stat("update_rejected").await.unwrap_or(0), 0);
    }
}
