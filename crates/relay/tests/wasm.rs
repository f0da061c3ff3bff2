//! Wasm modules from a web server and from a registry, in a real Envoy behind the relay.
#![allow(clippy::unwrap_used)]

mod fake;

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fake::ads::Ads;
use fake::web::{Answer, Web, ok, status};
use fake::{EXTENSIONS, LISTENERS, Running, envoy_binary, until};
use http::HeaderMap;
use protos::Any;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use test_harness::run::{Envoy, Node, Protocol, free_port, http as client};

const WASM: &str = "envoy.extensions.filters.http.wasm.v3.Wasm";

/// The least module that a proxy accepts: the version of its interface, memory, and an allocator.
fn module() -> Vec<u8> {
    let section = |id: u8, content: &[u8]| [&[id, u8::try_from(content.len()).unwrap()], content].concat();
    let export = |name: &str, kind: &[u8]| [&[u8::try_from(name.len()).unwrap()], name.as_bytes(), kind].concat();
    let exports =
        [export("memory", &[2, 0]), export("proxy_abi_version_0_2_1", &[0, 0]), export("malloc", &[0, 1])].concat();
    [
        b"\0asm\x01\0\0\0".to_vec(),
        section(1, &[2, 0x60, 0, 0, 0x60, 1, 0x7f, 1, 0x7f]),
        section(3, &[2, 0, 1]),
        section(5, &[1, 0, 1]),
        section(7, &[&[3][..], &exports].concat()),
        section(10, &[2, 2, 0, 0x0b, 5, 0, 0x41, 0x80, 8, 0x0b]),
    ]
    .concat()
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn listener(port: u16) -> Any {
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "s",
        "route_config": {"virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [
            {"match": {"prefix": "/"}, "direct_response": {"status": 200}},
        ]}]},
        "http_filters": [
            {"name": "plugin", "config_discovery": {
                "config_source": {"ads": {}, "resource_api_version": "V3"},
                "type_urls": [
                    format!("type.googleapis.com/{WASM}"),
                    "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC",
                ],
            }},
            {"name": "router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}},
        ],
    });
    let listener = json!({
        "name": "l",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [{"filters": [{"name": "hcm", "typed_config": manager}]}],
    });
    protos::pack_json("envoy.config.listener.v3.Listener", &listener).unwrap()
}

/// A filter with a remote module.
fn plugin(url: &str, sha256: &str, variables: Value, policy: &str) -> Any {
    let typed = json!({"@type": format!("type.googleapis.com/{WASM}"), "config": {
        "name": "plugin", "failure_policy": policy, "vm_config": {
            "runtime": "envoy.wasm.runtime.v8",
            "code": {"remote": {"http_uri": {"uri": url, "cluster": "none", "timeout": "30s"}, "sha256": sha256}},
            "environment_variables": {"key_values": variables},
        },
    }});
    let config = json!({"name": "plugin", "typed_config": typed});
    protos::pack_json("envoy.config.core.v3.TypedExtensionConfig", &config).unwrap()
}

/// A proxy whose listener needs the filter.
struct Proxy {
    ads: Ads,
    relay: Running,
    envoy: Envoy,
    port: u16,
}

impl Proxy {
    async fn start(protocol: Protocol, first: Any, insecure: &[String]) -> Proxy {
        let (ads, port) = (Ads::start().await, free_port());
        ads.set(LISTENERS, vec![("l", listener(port))]);
        ads.set(EXTENSIONS, vec![("plugin", first)]);
        let relay = Running::start(ads.address, |settings| settings.wasm.insecure = insecure.to_vec());
        let node = Node::sidecar("a", "b", "10.0.0.9", &[]);
        let envoy = Envoy::start(&envoy_binary(), &node, protocol, relay.socket().as_path()).await.unwrap();
        Proxy { ads, relay, envoy, port }
    }

    async fn answers(&self, expected: u16) {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        until(&format!("status {expected}"), Some(&self.envoy), async || {
            let response = client::get(address, "/", &[]).await.ok()?;
            (response.status.as_u16() == expected).then_some(())
        })
        .await;
    }

    /// The filter that the proxy has.
    async fn filter(&self) -> Value {
        let configs = self.envoy.dump("ecds_filters").await.unwrap();
        configs[0]["ecds_filter"]["typed_config"].clone()
    }

    /// The file of the proxy's module.
    async fn file(&self) -> String {
        let filter = self.filter().await;
        filter["config"]["vm_config"]["code"]["local"]["filename"].as_str().unwrap_or_default().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_is_fetched_from_a_web_server() {
    for protocol in [Protocol::Sotw, Protocol::Delta] {
        let web = Web::start(|_, path, _| match path {
            "/moved" => {
                let mut moved = status(302);
                moved.headers_mut().insert("location", "/module".parse().unwrap());
                moved
            }
            "/module" => ok(module()),
            "/text" => ok("not a module"),
            _ => status(404),
        })
        .await;
        let url = |path: &str| format!("http://{}{path}", web.address);
        let (sum, none) = (hex(&module()), json!({}));
        let variables = json!({"ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION": "1", "A": "b"});
        let proxy = Proxy::start(protocol, plugin(&url("/moved"), &sum, variables, "FAIL_CLOSED"), &[]).await;
        proxy.answers(200).await;
        let file = proxy.file().await;
        assert!(file.ends_with(&format!("/{sum}.wasm")), "{file}");
        assert_eq!(std::fs::read(&file).unwrap(), module());
        let key_values = proxy.filter().await["config"]["vm_config"]["environment_variables"]["key_values"].clone();
        assert_eq!(key_values, json!({"A": "b"}));

        // Requests are denied, or allowed, without the module.
        for (path, sum, policy, expected, result) in [
            ("/module", "0".repeat(64), "FAIL_CLOSED", 403, "checksum_mismatched"),
            ("/module", "1".repeat(64), "FAIL_OPEN", 200, "checksum_mismatched"),
            ("/text", String::new(), "FAIL_RELOAD", 403, "fetch_failure"),
            ("/none", String::new(), "FAIL_OPEN", 200, "download_failure"),
        ] {
            let before = proxy.relay.metric("wasm_remote_fetch_count", result);
            proxy.ads.set(EXTENSIONS, vec![("plugin", plugin(&url(path), &sum, none.clone(), policy))]);
            until("the fetch", None, async || {
                (proxy.relay.metric("wasm_remote_fetch_count", result) > before).then_some(())
            })
            .await;
            proxy.answers(expected).await;
            let filter = until("the replacement", Some(&proxy.envoy), async || {
                let filter = proxy.filter().await;
                filter["rules_stat_prefix"].is_string().then_some(filter)
            })
            .await;
            let prefix = if expected == 403 { "wasm-default-deny" } else { "wasm-default-allow" };
            assert_eq!(filter["rules_stat_prefix"], prefix);
        }

        // The module is still there.
        let fetched = web.paths().len();
        let requests = || proxy.ads.requests(EXTENSIONS);
        let before = requests().len();
        proxy.ads.set(EXTENSIONS, vec![("plugin", plugin(&url("/moved"), &sum, none.clone(), "FAIL_CLOSED"))]);
        let ack = async || requests().pop().filter(|_| requests().len() > before);
        let acknowledged = until("an ACK", Some(&proxy.envoy), ack).await.version;
        assert_eq!(proxy.file().await, file);
        assert_eq!(web.paths().len(), fetched);
        assert_eq!(proxy.relay.metric("wasm_cache_entries", ""), 1.0);

        // A filter that cannot be read is rejected, with the version that the proxy has.
        let typed = Any { type_url: format!("type.googleapis.com/{WASM}"), value: Bytes::from_static(b"\xff") };
        let config = protos::envoy::config::core::v3::TypedExtensionConfig {
            name: "plugin".to_owned(),
            typed_config: Some(typed),
        };
        proxy.ads.set(EXTENSIONS, vec![("plugin", protos::any(&config))]);
        let nack =
            until("a NACK", None, async || proxy.ads.requests(EXTENSIONS).pop().filter(|seen| seen.error.is_some()))
                .await;
        assert_eq!(nack.version, acknowledged);
        assert!(nack.error.unwrap().starts_with("the extension configuration plugin: "));
        proxy.answers(200).await;
    }
}

/// A registry with one image, for which a token is needed.
struct Image {
    manifest: Vec<u8>,
    layer: Vec<u8>,
}

impl Image {
    fn new() -> Image {
        let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(vec![], flate2::Compression::fast()));
        let mut header = tar::Header::new_ustar();
        let module = module();
        header.set_size(module.len() as u64);
        header.set_cksum();
        archive.append_data(&mut header, "plugin.wasm", &*module).unwrap();
        let mut packed = archive.into_inner().unwrap();
        packed.flush().unwrap();
        let layer = packed.finish().unwrap();
        let manifest = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "layers": [{
            "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": format!("sha256:{}", hex(&layer)), "size": layer.len(),
        }]});
        Image { manifest: manifest.to_string().into_bytes(), layer }
    }

    fn answer(&self, address: SocketAddr, path: &str, headers: &HeaderMap) -> Answer {
        let authorization = headers.get("authorization").and_then(|value| value.to_str().ok());
        if path == "/token?service=stub&scope=repository%3Aa%2Fplugin%3Apull" {
            let basic = format!("Basic {}", STANDARD.encode("user:password"));
            return if authorization == Some(&basic) { ok(r#"{"token": "good"}"#) } else { status(403) };
        }
        if authorization != Some("Bearer good") {
            let mut refused = status(401);
            let challenge =
                format!(r#"Bearer realm="http://{address}/token",service="stub",scope="repository:a/plugin:pull""#);
            refused.headers_mut().insert("www-authenticate", challenge.parse().unwrap());
            return refused;
        }
        let digest = format!("sha256:{}", hex(&self.manifest));
        match path.strip_prefix("/v2/a/plugin/") {
            Some("manifests/v1" | "manifests/latest") => ok(self.manifest.clone()),
            Some(other) if other == format!("manifests/{digest}") => ok(self.manifest.clone()),
            Some(other) if other == format!("blobs/sha256:{}", hex(&self.layer)) => ok(self.layer.clone()),
            _ => status(404),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_is_fetched_from_a_registry_with_a_pull_secret() {
    let image = Image::new();
    let digest = hex(&image.manifest);
    let registry = Web::start(move |address, path, headers| image.answer(address, path, headers)).await;
    let secret = |password: &str| {
        let auth = STANDARD.encode(format!("user:{password}"));
        json!({"auths": {registry.address.to_string(): {"auth": auth}}}).to_string()
    };
    let variables = |password: &str, version: &str| json!({"ISTIO_META_WASM_IMAGE_PULL_SECRET": secret(password), "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION": version});
    let image = |rest: &str| format!("oci://{}/a/plugin{rest}", registry.address);
    let first = plugin(&image(":v1"), "nil", variables("password", "1"), "FAIL_CLOSED");
    let proxy = Proxy::start(Protocol::Delta, first, &[]).await;
    proxy.answers(200).await;
    let file = proxy.file().await;
    assert!(file.ends_with(&format!("/{digest}.wasm")), "{file}");
    assert_eq!(std::fs::read(&file).unwrap(), module());
    assert_eq!(proxy.filter().await["config"]["vm_config"].get("environment_variables"), None);

    // The module of a tag is fetched once, by its digest and by another version of the plugin, too; only `latest` is asked for again.
    for (rest, sum, version, requests) in [
        (":v1", "nil", "2", 0),
        (&*format!("@sha256:{digest}"), "nil", "3", 0),
        (":v1", &*digest, "4", 0),
        // A request without a token, one for the token, and one for the manifest.
        (":latest", "nil", "5", 3),
        (":latest", "nil", "5", 0),
        (":latest", "nil", "6", 3),
    ] {
        let (before, answered) = (registry.paths().len(), proxy.ads.requests(EXTENSIONS).len());
        proxy.ads.set(
            EXTENSIONS,
            vec![("plugin", plugin(&image(rest), sum, variables("password", version), "FAIL_CLOSED"))],
        );
        until("the ACK", Some(&proxy.envoy), async || (proxy.ads.requests(EXTENSIONS).len() > answered).then_some(()))
            .await;
        assert_eq!(registry.paths().len() - before, requests, "{rest} {version}: {:?}", registry.paths());
        assert_eq!(proxy.file().await, file);
    }

    // The wrong password, no password, and another checksum.
    for (rest, sum, variables) in [
        (":v2", "nil", variables("wrong", "7")),
        (":v2", "nil", json!({"ISTIO_META_WASM_IMAGE_PULL_SECRET": ""})),
        (":latest", &*"0".repeat(64), variables("password", "8")),
    ] {
        proxy.ads.set(EXTENSIONS, vec![("plugin", plugin(&image(rest), sum, variables, "FAIL_CLOSED"))]);
        proxy.answers(403).await;
        proxy.ads.set(EXTENSIONS, vec![("plugin", plugin(&image(":v1"), "nil", json!({}), "FAIL_CLOSED"))]);
        proxy.answers(200).await;
    }
}
