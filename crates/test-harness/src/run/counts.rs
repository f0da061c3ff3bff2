//! Publishes the counts of traffic over HTTP, for traffic that another process sends.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::traffic::Counts;
use super::{Result, http};

/// Answers every request at this address with the current counts. Runs until it is cancelled.
///
/// # Errors
/// The address cannot be bound.
pub async fn publish(address: SocketAddr, counts: impl Fn() -> Counts) -> Result<()> {
    let listener = TcpListener::bind(address).await?;
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let answer = |_: Request<_>| {
            let body = to_json(&counts()).to_string();
            async move { Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from(body)))) }
        };
        // Serves one connection at a time, because there is one reader. Connection errors are ignored.
        let served = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service_fn(answer));
        let _ = tokio::time::timeout(Duration::from_secs(2), served).await;
    }
}

/// Reads the counts that are published at this address.
///
/// # Errors
/// There is no response, or it is invalid.
pub async fn read_counts(address: SocketAddr) -> Result<Counts> {
    let answer = http::get(address, "/", &[]).await?;
    from_json(&answer.json()?).ok_or_else(|| format!("{address} does not answer with counts").into())
}

fn to_json(counts: &Counts) -> Value {
    json!({
        "requests": counts.requests,
        "errors": counts.errors,
        "described": counts.described,
        "byVersion": counts.by_version,
        "byInstance": counts.by_instance,
        "slowestMicros": counts.slowest.as_micros() as u64,
    })
}

fn from_json(value: &Value) -> Option<Counts> {
    let map = |field: &str| -> Option<BTreeMap<String, u64>> {
        let entries = value[field].as_object()?.iter();
        entries.map(|(name, count)| Some((name.clone(), count.as_u64()?))).collect()
    };
    let described = value["described"].as_array()?.iter();
    Some(Counts {
        requests: value["requests"].as_u64()?,
        errors: value["errors"].as_u64()?,
        described: described.map(|text| text.as_str().map(str::to_owned)).collect::<Option<_>>()?,
        by_version: map("byVersion")?,
        by_instance: map("byInstance")?,
        slowest: Duration::from_micros(value["slowestMicros"].as_u64()?),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn published_counts_are_read_unchanged() {
        let counts = Counts {
            requests: 7,
            errors: 2,
            described: vec!["lost".to_owned()],
            by_version: [("v1".to_owned(), 5)].into(),
            by_instance: [("a".to_owned(), 4), ("b".to_owned(), 1)].into(),
            slowest: Duration::from_micros(1500),
        };
        let address = SocketAddr::from(([127, 0, 0, 1], super::super::free_port()));
        let published = counts.clone();
        let publisher = tokio::spawn(publish(address, move || published.clone()));
        let read = || async { read_counts(address).await.ok() };
        let read = super::super::wait_for("the counts", Duration::from_secs(20), read).await.unwrap();
        assert_eq!(format!("{read:?}"), format!("{counts:?}"));
        assert!(from_json(&json!({"requests": 1})).is_none());
        publisher.abort();
    }
}
