//! External authorization: services that allow, deny or do not answer, over HTTP and gRPC.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;

use e2e::guarded::{Ask, Guarded, Judge, judge_service, mesh_config, policy};
use test_harness::run::{Backend, Result, free_port};

/// The policy: the provider decides about everything below `/a`.
fn delegates(provider: &str) -> String {
    format!(
        "action: CUSTOM, provider: {{ name: {provider} }}, rules: [{{ to: [{{ operation: {{ paths: ['/a*'] }} }}] }}]"
    )
}

/// Providers of both protocols at these addresses.
fn providers(fail_open: bool) -> String {
    let common = format!("port: 9000, failOpen: {fail_open}, timeout: 2s, statusOnError: '503'");
    let http = format!(
        "service: http.ext.test, {common}, pathPrefix: /check, includeRequestHeadersInCheck: [x-user], \
         includeAdditionalHeadersInCheck: {{ x-added: here }}, headersToUpstreamOnAllow: [x-version, 'x-inst*'], \
         headersToDownstreamOnDeny: [x-instance], headersToDownstreamOnAllow: [x-version]"
    );
    let grpc = format!("service: grpc.ext.test, {common}");
    mesh_config(&format!(
        "extensionProviders: [{{ name: over-http, envoyExtAuthzHttp: {{ {http} }} }}, \
         {{ name: over-grpc, envoyExtAuthzGrpc: {{ {grpc} }} }}]"
    ))
}

struct Court {
    guarded: Guarded,
    http: Backend,
    grpc: Judge,
}

impl Court {
    async fn start() -> Result<Court> {
        let (http, grpc) = (Backend::start("judge", "court").await?, Judge::start().await?);
        let entries = [
            judge_service("http.ext.test", "HTTP", http.address()),
            judge_service("grpc.ext.test", "GRPC", grpc.address()),
        ];
        let files = [("mesh.yaml", &*providers(false)), ("http.yaml", &*entries[0]), ("grpc.yaml", &*entries[1])];
        let guarded = Guarded::start(&files).await?;
        Ok(Court { guarded, http, grpc })
    }

    fn to(&self) -> SocketAddr {
        self.guarded.address()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_over_http_decides() -> Result<()> {
    let court = Court::start().await?;
    court.guarded.protect("custom", &delegates("over-http")).await?;
    let asked = Ask::new("GET /a").with(&[("x-user", "ann"), ("x-other", "secret")]);
    let answer = asked.gets(court.to(), 200).await?;
    // The application sees headers of the service's answer, and the client those for it.
    assert!(answer.text.contains("court"), "{}", answer.text);
    assert_eq!(answer.text.matches("x-version: ").count(), 2, "{}", answer.text);
    let before = court.http.requests();
    Ask::new("GET /b").gets(court.to(), 200).await?;
    assert_eq!(court.http.requests(), before, "nothing else is asked");
    court.http.answer_with(401);
    let refused = asked.gets(court.to(), 401).await?;
    assert!(refused.text.contains("x-instance: court") && !refused.text.contains("x-version:"), "{}", refused.text);
    // The service sees the method, the path with its prefix, and the headers that are named.
    let question = refused.text.split_once("\r\n\r\n").unwrap().1;
    assert!(question.contains("/check/a") && question.contains("x-added"), "{question}");
    assert!(question.contains("ann") && !question.contains("secret"), "{question}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_over_grpc_decides_about_requests_and_connections() -> Result<()> {
    let court = Court::start().await?;
    court.guarded.protect("custom", &delegates("over-grpc")).await?;
    Ask::new("GET /a").gets(court.to(), 403).await?;
    Ask::new("GET /b").gets(court.to(), 200).await?;
    court.grpc.allow(true);
    Ask::new("GET /a").gets(court.to(), 200).await?;
    // The condition on the path does not count for connections.
    let tcp = (std::net::Ipv4Addr::LOCALHOST, court.guarded.tcp).into();
    Ask::new("GET /b").gets(tcp, 200).await?;
    court.grpc.allow(false);
    Ask::new("GET /b").gets(tcp, 0).await?;
    assert!(court.grpc.asked() >= 4);
    // What the service allows, a DENY policy still denies.
    court.grpc.allow(true);
    let denies = policy("deny", "action: DENY, rules: [{ to: [{ operation: { paths: [/a/b] } }] }]");
    let both = format!("{}---\n{denies}", policy("custom", &delegates("over-grpc")));
    court.guarded.put(&both, "policy[deny]").await?;
    Ask::new("GET /a").gets(court.to(), 200).await?;
    Ask::new("GET /a/b").gets(court.to(), 403).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_answer_requests_are_denied_unless_it_fails_open() -> Result<()> {
    let court = Court::start().await?;
    let nobody = SocketAddr::from(([127, 0, 0, 1], free_port()));
    court.guarded.mesh.config.put("http.yaml", &judge_service("http.ext.test", "HTTP", nobody))?;
    court.guarded.mesh.config.put("grpc.yaml", &judge_service("grpc.ext.test", "GRPC", nobody))?;
    for provider in ["over-http", "over-grpc"] {
        court.guarded.mesh.config.put("mesh.yaml", &providers(false))?;
        court.guarded.protect(provider, &delegates(provider)).await?;
        Ask::new("GET /a").gets(court.to(), 503).await?;
        Ask::new("GET /b").gets(court.to(), 200).await?;
        court.guarded.mesh.config.put("mesh.yaml", &providers(true))?;
        Ask::new("GET /a").gets(court.to(), 200).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_cannot_be_used_denies() -> Result<()> {
    let court = Court::start().await?;
    court.guarded.protect("custom", &delegates("nobody")).await?;
    Ask::new("GET /a").gets(court.to(), 403).await?;
    Ask::new("GET /b").gets(court.to(), 200).await?;
    // Neither does a service that does not exist.
    court.guarded.mesh.config.remove("http.yaml")?;
    court.guarded.protect("custom-2", &delegates("over-http")).await?;
    Ask::new("GET /a").gets(court.to(), 403).await?;
    // As soon as it exists, it is asked.
    let entry = judge_service("http.ext.test", "HTTP", court.http.address());
    court.guarded.mesh.config.put("http.yaml", &entry)?;
    Ask::new("GET /a").gets(court.to(), 200).await?;
    Ok(())
}
