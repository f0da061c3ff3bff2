//! TLS at a gateway and to upstreams, with certificates from Secrets.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;

use e2e::objects::{networking, static_entry, to};
use e2e::tls::{Authority, Identity, get};
use e2e::{Mesh, PATIENCE, both_protocols};
use test_harness::run::{Backend, Envoy, Node, Protocol, Result, free_port, http, wait_for};

/// A Secret with a certificate for a host, and these CA certificates.
fn signed(authority: &Authority, name: &str, host: &str, roots: &str) -> Result<String> {
    let (certificate, key) = authority.sign(host)?;
    let values = [("tls.crt", &*certificate), ("tls.key", &*key), ("ca.crt", roots)];
    Ok(secret(name, &values))
}

/// A Secret in the gateway's namespace.
fn secret(name: &str, values: &[(&str, &str)]) -> String {
    let mut text = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{ name: {name}, namespace: test }}\ntype: Opaque\nstringData:\n"
    );
    for (key, value) in values.iter().filter(|(_, value)| !value.is_empty()) {
        text.push_str(&format!("  {key}: |\n"));
        value.lines().for_each(|line| text.push_str(&format!("    {line}\n")));
    }
    text
}

/// Sends requests until the response contains a text.
async fn wait_for_answer(port: u16, host: &str, roots: &str, own: Option<&Identity>, text: &str) -> Result<()> {
    let what = format!("{text:?} from https://{host}:{port}");
    let asked = || async { get(port, host, roots, own).await.ok().filter(|answer| answer.contains(text)) };
    wait_for(&what, PATIENCE, asked).await.map(drop)
}

/// Routes of the gateway's hosts to a service.
fn route(name: &str, hosts: &str, rest: &str) -> String {
    networking("VirtualService", name, &format!("hosts: {hosts}, gateways: [front], {rest}"))
}

fn gateway(servers: &[String]) -> String {
    let spec = format!("selector: {{ app: front }}, servers: [{}]", servers.join(", "));
    networking("Gateway", "front", &spec)
}

fn server(port: u16, name: &str, protocol: &str, host: &str, tls: &str) -> String {
    format!("{{ port: {{ number: {port}, name: {name}, protocol: {protocol} }}, hosts: [{host}], tls: {{ {tls} }} }}")
}

async fn front(mesh: &Mesh, protocol: Protocol, ports: &[u16]) -> Result<Envoy> {
    let node = Node::gateway("front", "test", "127.0.0.3", &[("app", "front")]);
    let envoy = mesh.local_envoy(&node, protocol).await?;
    for port in ports {
        envoy.wait_for_listener(([0, 0, 0, 0], *port).into()).await?;
    }
    Ok(envoy)
}

both_protocols! {
    async fn https_by_server_name_and_new_certificates_without_a_new_connection(protocol) {
        let (authority, next) = (Authority::new("first")?, Authority::new("next")?);
        let backend = Backend::start("v1", "one").await?;
        let (https, plain) = (free_port(), free_port());
        let servers = [
            server(https, "a", "HTTPS", "a.example.com", "mode: SIMPLE, credentialName: a"),
            server(https, "b", "HTTPS", "b.example.com", "mode: SIMPLE, credentialName: b"),
            server(plain, "plain", "HTTP", "a.example.com", "httpsRedirect: true"),
        ];
        let hosts = "[a.example.com, b.example.com]";
        let mesh = Mesh::start(&[
            ("gateway.yaml", &gateway(&servers)),
            ("service.yaml", &static_entry("web", "web.test", (80, "HTTP"), backend.address())),
            ("route.yaml", &route("web", hosts, &format!("http: [{{ {} }}]", to("web.test", 80)))),
            ("a.yaml", &signed(&authority, "a", "a.example.com", "")?),
            ("b.yaml", &signed(&authority, "b", "b.example.com", "")?),
        ]).await?;
        let envoy = front(&mesh, protocol, &[https, plain]).await?;
        // Each hostname has its own certificate; another one would be rejected by the client.
        wait_for_answer(https, "a.example.com", &authority.pem, None, "x-version: v1").await?;
        wait_for_answer(https, "b.example.com", &authority.pem, None, "x-version: v1").await?;
        assert!(get(https, "c.example.com", &authority.pem, None).await.is_err());
        let redirected = http::get(([127, 0, 0, 1], plain).into(), "/x", &[("host", "a.example.com")]).await?;
        assert_eq!((redirected.status.as_u16(), redirected.header("location")), (301, "https://a.example.com/x"));

        let connected = envoy.stat("control_plane.connected_state").await?;
        let listeners = envoy.stat("listener_manager.listener_modified").await?;
        mesh.config.put("a.yaml", &signed(&next, "a", "a.example.com", "")?)?;
        wait_for_answer(https, "a.example.com", &next.pem, None, "x-version: v1").await?;
        assert!(get(https, "a.example.com", &authority.pem, None).await.is_err());
        assert!(get(https, "b.example.com", &authority.pem, None).await.is_ok());
        // Only the secret was sent.
        assert_eq!(envoy.stat("control_plane.connected_state").await?, connected);
        assert_eq!(envoy.stat("listener_manager.listener_modified").await?, listeners);

        // An invalid certificate is not sent: the last one stays in use. No page contains a key.
        let (certificate, _) = next.sign("a.example.com")?;
        let (_, key) = next.sign("a.example.com")?;
        mesh.config.put("a.yaml", &secret("a", &[("tls.crt", &certificate), ("tls.key", &key)]))?;
        mesh.control.wait_for_log("tls.key: the private key is not that of the certificate").await?;
        assert!(get(https, "b.example.com", &authority.pem, None).await.is_ok());
        assert_eq!(envoy.stat("sds.*update_rejected").await.unwrap_or(0), 0);
        for page in ["/debug/syncz", "/debug/configz", "/debug/config_dump?proxyID=front.test"] {
            let text = mesh.control.debug(page).await?.text();
            assert!(!text.contains("PRIVATE KEY"), "{page}");
        }
        assert!(!mesh.control.log()?.contains("PRIVATE KEY"));
    }

    async fn a_process_that_only_claims_a_namespace_gets_no_key(protocol) {
        let authority = Authority::new("ours")?;
        let port = free_port();
        let servers = [server(port, "a", "HTTPS", "a.example.com", "mode: SIMPLE, credentialName: a")];
        let mesh = Mesh::start(&[
            ("gateway.yaml", &gateway(&servers)),
            ("a.yaml", &signed(&authority, "a", "a.example.com", "")?),
        ]).await?;
        let node = Node::gateway("front", "test", "127.0.0.3", &[("app", "front")]);
        let envoy = mesh.envoy(&node, protocol).await?;
        mesh.control.wait_for_log("the plaintext port does not prove which proxy connects").await?;
        assert!(!envoy.admin("/config_dump").await?.text().contains("certificate_chain"));
        mesh.wait_for_syncz("refused (--secrets-for)", true).await?;
    }

    async fn a_client_without_a_certificate_is_refused(protocol) {
        let (authority, stranger) = (Authority::new("ours")?, Authority::new("stranger")?);
        let backend = Backend::start("v1", "one").await?;
        let port = free_port();
        let servers = [server(port, "a", "HTTPS", "a.example.com", "mode: MUTUAL, credentialName: a")];
        let mesh = Mesh::start(&[
            ("gateway.yaml", &gateway(&servers)),
            ("service.yaml", &static_entry("web", "web.test", (80, "HTTP"), backend.address())),
            ("route.yaml", &route("web", "[a.example.com]", &format!("http: [{{ {} }}]", to("web.test", 80)))),
            ("a.yaml", &signed(&authority, "a", "a.example.com", &authority.pem)?),
        ]).await?;
        let _envoy = front(&mesh, protocol, &[port]).await?;
        let own = authority.sign("client")?;
        wait_for_answer(port, "a.example.com", &authority.pem, Some(&own), "x-version: v1").await?;
        assert!(get(port, "a.example.com", &authority.pem, None).await.is_err());
        let other = stranger.sign("client")?;
        assert!(get(port, "a.example.com", &authority.pem, Some(&other)).await.is_err());
        assert_eq!(backend.requests(), 1);
    }

    async fn unopened_by_server_name_and_tls_towards_a_server(protocol) {
        let authority = Authority::new("ours")?;
        let backend = Backend::start("v1", "one").await?;
        let (opened, unopened, plain) = (free_port(), free_port(), free_port());
        let at: SocketAddr = ([127, 0, 0, 1], opened).into();
        let servers = [
            server(opened, "a", "HTTPS", "a.example.com", "mode: SIMPLE, credentialName: a"),
            server(unopened, "b", "TLS", "a.example.com", "mode: PASSTHROUGH"),
            format!("{{ port: {{ number: {plain}, name: plain, protocol: HTTP }}, hosts: [secure.test, file.test] }}"),
        ];
        let roots = tempfile::NamedTempFile::new()?;
        std::fs::write(roots.path(), &authority.pem)?;
        let rule = |name: &str, tls: &str| format!(
            "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{ name: {name}, namespace: test }}\n\
             spec: {{ host: {name}.test, trafficPolicy: {{ connectionPool: {{ http: {{ maxRequestsPerConnection: 1 }} }}, \
             tls: {{ mode: SIMPLE, sni: a.example.com, \
             subjectAltNames: [a.example.com], {tls} }} }} }}\n"
        );
        let routed = |name: &str| route(name, &format!("[{name}.test]"), &format!(
            "http: [{{ rewrite: {{ authority: a.example.com }}, {} }}]", to(&format!("{name}.test"), 80)
        ));
        let sni = format!("tls: [{{ match: [{{ sniHosts: [a.example.com] }}], {} }}]", to("behind.test", 443));
        let mesh = Mesh::start(&[
            ("gateway.yaml", &gateway(&servers)),
            ("service.yaml", &static_entry("web", "web.test", (80, "HTTP"), backend.address())),
            ("behind.yaml", &static_entry("behind", "behind.test", (443, "TLS"), at)),
            ("secure.yaml", &static_entry("secure", "secure.test", (80, "HTTP"), at)),
            ("file.yaml", &static_entry("file", "file.test", (80, "HTTP"), at)),
            ("secure-rule.yaml", &rule("secure", "credentialName: roots")),
            ("file-rule.yaml", &rule("file", &format!("caCertificates: {}", roots.path().display()))),
            ("route.yaml", &route("web", "[a.example.com]", &format!("http: [{{ {} }}]", to("web.test", 80)))),
            ("unopened-route.yaml", &route("unopened", "[a.example.com]", &sni)),
            ("secure-route.yaml", &routed("secure")),
            ("file-route.yaml", &routed("file")),
            ("a.yaml", &signed(&authority, "a", "a.example.com", "")?),
            ("roots.yaml", &secret("roots", &[("ca.crt", &authority.pem)])),
        ]).await?;
        let _envoy = front(&mesh, protocol, &[opened, unopened, plain]).await?;
        wait_for_answer(unopened, "a.example.com", &authority.pem, None, "x-version: v1").await?;
        assert!(get(unopened, "b.example.com", &authority.pem, None).await.is_err());
        let address: SocketAddr = ([127, 0, 0, 1], plain).into();
        for host in ["secure.test", "file.test"] {
            let asked = || async {
                let answer = http::get(address, "/", &[("host", host)]).await.ok()?;
                Some(()).filter(|()| answer.header("x-version") == "v1")
            };
            wait_for(&format!("an answer over TLS for {host}"), PATIENCE, asked).await?;
        }
        // A server of another CA is rejected. Open connections continue, so each request here opens one.
        let stranger = Authority::new("stranger")?;
        mesh.config.put("roots.yaml", &secret("roots", &[("ca.crt", &stranger.pem)]))?;
        let refused = || async {
            let answer = http::get(address, "/", &[("host", "secure.test")]).await.ok()?;
            Some(()).filter(|()| answer.status.as_u16() == 503)
        };
        wait_for("a server that is not believed", PATIENCE, refused).await?;
    }
}
