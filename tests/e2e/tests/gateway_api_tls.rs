//! TLS at a Gateway of the Gateway API: verified clients, misdirected requests, and its certificate towards backends, with a real
//! Envoy.

use std::net::SocketAddr;

use e2e::objects::static_entry;
use e2e::tls::{Authority, Identity, get, get_over};
use e2e::{Mesh, PATIENCE, both_protocols};
use test_harness::run::{Backend, Result, free_port, http, wait_for};

const API: &str = "apiVersion: gateway.networking.k8s.io/v1";

/// A Secret or ConfigMap with these values.
fn object(kind: &str, name: &str, values: &[(&str, &str)]) -> String {
    let data = if kind == "Secret" { "stringData" } else { "data" };
    let mut text = format!("apiVersion: v1\nkind: {kind}\nmetadata: {{ name: {name}, namespace: test }}\n{data}:\n");
    for (key, value) in values {
        text.push_str(&format!("  {key}: |\n"));
        value.lines().for_each(|line| text.push_str(&format!("    {line}\n")));
    }
    text
}

fn certificate(name: &str, (certificate, key): &Identity) -> String {
    object("Secret", name, &[("tls.crt", certificate), ("tls.key", key)])
}

/// A Gateway with these listeners and settings of TLS.
fn gateway(listeners: &[String], tls: &str) -> String {
    let listeners = listeners.join(", ");
    format!(
        "{API}\nkind: Gateway\nmetadata: {{ name: edge, namespace: test }}\n\
         spec: {{ gatewayClassName: istio, listeners: [{listeners}], tls: {{ {tls} }} }}\n"
    )
}

/// A listener for HTTPS with the certificate `cert`.
fn https(name: &str, port: u16, host: &str) -> String {
    format!(
        "{{ name: {name}, port: {port}, protocol: HTTPS, hostname: \"{host}\", tls: {{ certificateRefs: [{{ name: cert }}] }} }}"
    )
}

/// An HTTPRoute from some listeners to a host.
fn route(name: &str, listeners: &[&str], backend: &str) -> String {
    let parents: Vec<String> = listeners.iter().map(|one| format!("{{ name: edge, sectionName: {one} }}")).collect();
    format!(
        "{API}\nkind: HTTPRoute\nmetadata: {{ name: {name}, namespace: test }}\nspec: {{ parentRefs: [{}], \
         rules: [{{ backendRefs: [{{ group: networking.istio.io, kind: Hostname, name: {backend}, port: 80 }}] }}] }}\n",
        parents.join(", ")
    )
}

/// Verification of clients by the ConfigMap `roots`.
fn verified(mode: &str) -> String {
    format!("validation: {{ mode: {mode}, caCertificateRefs: [{{ group: \"\", kind: ConfigMap, name: roots }}] }}")
}

/// Sends requests until the response contains a text.
async fn wait_for_answer(port: u16, host: &str, roots: &str, own: Option<&Identity>, text: &str) -> Result<()> {
    let what = format!("{text:?} from https://{host}:{port}");
    let asked = || async { get(port, host, roots, own).await.ok().filter(|answer| answer.contains(text)) };
    wait_for(&what, PATIENCE, asked).await.map(drop)
}

/// The status of a response over a connection with this SNI, for another host.
async fn status(port: u16, names: (&str, &str), roots: &str) -> Result<String> {
    let answer = get_over(port, names, roots, None).await?;
    Ok(answer.split(' ').nth(1).unwrap_or_default().to_owned())
}

both_protocols! {
    async fn clients_are_verified_by_the_settings_of_their_port(protocol) {
        let (authority, stranger) = (Authority::new("ours")?, Authority::new("stranger")?);
        let backend = Backend::start("v1", "one").await?;
        let (strict, lenient, open) = (free_port(), free_port(), free_port());
        let host = "a.example.com";
        let listeners = [https("strict", strict, host), https("lenient", lenient, host), https("open", open, host)];
        let tls = format!(
            "frontend: {{ default: {{ {} }}, perPort: [{{ port: {lenient}, tls: {{ {} }} }}, {{ port: {open}, tls: {{}} }}] }}",
            verified("AllowValidOnly"), verified("AllowInsecureFallback"),
        );
        let mesh = Mesh::start(&[
            ("gateway.yaml", &gateway(&listeners, &tls)),
            ("service.yaml", &static_entry("web", "web.test", (80, "HTTP"), backend.address())),
            ("route.yaml", &route("web", &["strict", "lenient", "open"], "web.test")),
            ("cert.yaml", &certificate("cert", &authority.sign(host)?)),
            ("roots.yaml", &object("ConfigMap", "roots", &[("ca.crt", &authority.pem)])),
        ]).await?;
        let envoy = mesh.edge(protocol, &[strict, lenient, open]).await?;
        let (own, other) = (authority.sign("client")?, stranger.sign("client")?);
        let pem = &authority.pem;
        wait_for_answer(strict, host, pem, Some(&own), "x-version: v1").await?;
        assert!(get(strict, host, pem, None).await.is_err());
        assert!(get(strict, host, pem, Some(&other)).await.is_err());
        for client in [None, Some(&own), Some(&other)] {
            wait_for_answer(lenient, host, pem, client, "x-version: v1").await?;
        }
        wait_for_answer(open, host, pem, None, "x-version: v1").await?;
        // Other CA certificates verify other clients, without a new listener.
        let listeners = envoy.stat("listener_manager.listener_modified").await?;
        mesh.config.put("roots.yaml", &object("ConfigMap", "roots", &[("ca.crt", &stranger.pem)]))?;
        wait_for_answer(strict, host, pem, Some(&other), "x-version: v1").await?;
        assert!(get(strict, host, pem, Some(&own)).await.is_err());
        assert_eq!(envoy.stat("listener_manager.listener_modified").await?, listeners);
        // Without any, nobody can be verified, and nobody is served.
        mesh.config.remove("roots.yaml")?;
        let refused = || async { get(lenient, host, pem, Some(&other)).await.err().map(drop) };
        wait_for("closed listeners", PATIENCE, refused).await?;
        assert!(get(strict, host, pem, Some(&other)).await.is_err());
        wait_for_answer(open, host, pem, None, "x-version: v1").await?;
    }

    async fn requests_for_hosts_of_other_listeners_are_misdirected(protocol) {
        let authority = Authority::new("ours")?;
        let (one, two) = (Backend::start("v1", "one").await?, Backend::start("v2", "two").await?);
        let port = free_port();
        let listeners = [https("narrow", port, "a.example.com"), https("wide", port, "*.example.com")];
        let mesh = Mesh::start(&[
            ("gateway.yaml", &gateway(&listeners, "")),
            ("one.yaml", &static_entry("one", "one.test", (80, "HTTP"), one.address())),
            ("two.yaml", &static_entry("two", "two.test", (80, "HTTP"), two.address())),
            ("narrow.yaml", &route("narrow", &["narrow"], "one.test")),
            ("wide.yaml", &route("wide", &["wide"], "two.test")),
            ("cert.yaml", &certificate("cert", &authority.sign("*.example.com")?)),
        ]).await?;
        let _envoy = mesh.edge(protocol, &[port]).await?;
        let pem = &authority.pem;
        wait_for_answer(port, "a.example.com", pem, None, "x-version: v1").await?;
        wait_for_answer(port, "b.example.com", pem, None, "x-version: v2").await?;
        let status = |sni, host| status(port, (sni, host), pem);
        let with_port = format!("b.example.com:{port}");
        assert_eq!(status("a.example.com", "b.example.com").await?, "421");
        assert_eq!(status("a.example.com", &with_port).await?, "421");
        assert_eq!(status("b.example.com", "a.example.com").await?, "421");
        assert_eq!(status("b.example.com", "c.example.com").await?, "200");
        assert_eq!(status("a.example.com", "a.example.org").await?, "404");
    }

    async fn plain_http_shares_a_port_with_tls(protocol) {
        let authority = Authority::new("ours")?;
        let (one, two) = (Backend::start("v1", "one").await?, Backend::start("v2", "two").await?);
        let port = free_port();
        let plain = |host: &str| format!("{{ name: plain, port: {port}, protocol: HTTP, hostname: \"{host}\" }}");
        let secure = https("secure", port, "a.example.com");
        let mesh = Mesh::start(&[
            ("gateway.yaml", &gateway(&[plain("*.example.com"), secure.clone()], "")),
            ("one.yaml", &static_entry("one", "one.test", (80, "HTTP"), one.address())),
            ("two.yaml", &static_entry("two", "two.test", (80, "HTTP"), two.address())),
            ("plain.yaml", &route("plain", &["plain"], "one.test")),
            ("secure.yaml", &route("secure", &["secure"], "two.test")),
            ("cert.yaml", &certificate("cert", &authority.sign("*.example.com")?)),
        ]).await?;
        let envoy = mesh.edge(protocol, &[port]).await?;
        let pem = &authority.pem;
        let at = SocketAddr::from(([127, 0, 0, 1], port));
        wait_for_answer(port, "a.example.com", pem, None, "x-version: v2").await?;
        for host in ["a.example.com", "b.example.com"] {
            let headers = [("host", host)];
            let served = || async { http::get(at, "/", &headers).await.ok().filter(|answer| answer.header("x-version") == "v1").map(drop) };
            wait_for("an answer without TLS", PATIENCE, served).await?;
        }
        // Connections with TLS for a host that only the listener without TLS has are not served as HTTP.
        assert!(get(port, "b.example.com", pem, None).await.is_err());
        assert_eq!(envoy.stat("listener_manager.lds.update_rejected").await?, 0);
        // Two listeners with one host conflict, and neither is served.
        mesh.config.put("gateway.yaml", &gateway(&[plain("a.example.com"), secure], ""))?;
        let closed = || async { get(port, "a.example.com", pem, None).await.err().map(drop) };
        wait_for("a closed port", PATIENCE, closed).await?;
    }

    async fn backends_get_the_certificate_of_the_gateway(protocol) {
        let authority = Authority::new("ours")?;
        let backend = Backend::start("v1", "one").await?;
        let (plain, strict) = (free_port(), free_port());
        let host = "a.example.com";
        // The listener that verifies clients is the backend of the other one.
        let listeners = [
            format!("{{ name: plain, port: {plain}, protocol: HTTP, hostname: {host} }}"),
            https("strict", strict, host),
        ];
        let frontend = format!("frontend: {{ default: {{ {} }} }}", verified("AllowValidOnly"));
        let with = format!("{frontend}, backend: {{ clientCertificateRef: {{ name: client }} }}");
        let at: SocketAddr = ([127, 0, 0, 1], strict).into();
        let policy = format!(
            "{API}\nkind: BackendTLSPolicy\nmetadata: {{ name: secure, namespace: test }}\n\
             spec: {{ targetRefs: [{{ group: networking.istio.io, kind: ServiceEntry, name: secure }}], \
             validation: {{ hostname: {host}, caCertificateRefs: [{{ group: \"\", kind: ConfigMap, name: roots }}] }} }}\n"
        );
        let mesh = Mesh::start(&[
            ("gateway.yaml", &gateway(&listeners, &frontend)),
            ("web.yaml", &static_entry("web", "web.test", (80, "HTTP"), backend.address())),
            ("secure.yaml", &static_entry("secure", "secure.test", (80, "HTTP"), at)),
            ("policy.yaml", &policy),
            ("plain.yaml", &route("plain", &["plain"], "secure.test")),
            ("strict.yaml", &route("strict", &["strict"], "web.test")),
            ("cert.yaml", &certificate("cert", &authority.sign(host)?)),
            ("client.yaml", &certificate("client", &authority.sign("client")?)),
            ("roots.yaml", &object("ConfigMap", "roots", &[("ca.crt", &authority.pem)])),
        ]).await?;
        let _envoy = mesh.edge(protocol, &[plain, strict]).await?;
        let own = authority.sign("other")?;
        wait_for_answer(strict, host, &authority.pem, Some(&own), "x-version: v1").await?;
        let (at, headers) = (SocketAddr::from(([127, 0, 0, 1], plain)), [("host", host)]);
        let get = || http::get(at, "/", &headers);
        assert_eq!(get().await?.status.as_u16(), 503, "no certificate is presented");
        mesh.config.put("gateway.yaml", &gateway(&listeners, &with))?;
        let served = || async { get().await.ok().filter(|answer| answer.header("x-version") == "v1").map(drop) };
        wait_for("an answer of the backend", PATIENCE, served).await?;
    }
}
