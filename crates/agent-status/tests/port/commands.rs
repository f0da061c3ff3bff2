//! The commands of the command line.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_status::commands::{CommandError, Wait, request, wait};

use crate::support::{Server, response};

#[tokio::test]
async fn wait_polls_until_the_proxy_is_ready() {
    let count = Arc::new(AtomicUsize::new(0));
    let requests = count.clone();
    let ready_at = move |n| response(if requests.fetch_add(1, Ordering::Relaxed) < n { 503 } else { 200 }, &[], "");
    let server = Server::plain(false, move |_| ready_at(2)).await;
    let url = format!("http://{}/healthz/ready", server.address);
    let (timeout, request_timeout) = (Duration::from_secs(60), Duration::from_secs(5));
    let quick = Wait { url, timeout, request_timeout, period: Duration::from_millis(1) };
    wait(&quick).await.unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 3);

    let failing = Server::plain(false, |_| response(503, &[], "")).await;
    let url = format!("http://{}/", failing.address);
    let error =
        wait(&Wait { url, timeout: Duration::from_millis(100), ..quick.clone() }).await.unwrap_err().to_string();
    assert_eq!(error, "timeout waiting for Envoy proxy to become ready. Last error: HTTP status code 503");
    let nonsense = Wait { url: "ready".to_owned(), timeout: Duration::from_millis(50), ..quick };
    assert!(wait(&nonsense).await.unwrap_err().to_string().contains("\"ready\" is not a URL"));
}

#[tokio::test]
async fn requests_go_to_known_ports_only() {
    assert!(matches!(request(8080, 15020, "GET", "/", "").await, Err(CommandError::Port(8080))));
    let server = Server::plain(false, |_| response(200, &[], "drained")).await;
    let status_port = server.address.port();
    assert_eq!(request(status_port, status_port, "POST", "drain", "").await.unwrap(), "drained");
    let error = request(15000, 15020, "G T", "/", "").await.unwrap_err();
    assert_eq!(error.to_string(), "\"G T\" is not an HTTP method: give GET or POST");
}
