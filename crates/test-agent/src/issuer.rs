//! An issuer of JSON Web Tokens: it signs tokens, and serves its public keys over HTTP.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use test_harness::run::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A key that signs tokens.
pub struct SigningKey {
    id: String,
    pair: EcdsaKeyPair,
}

impl SigningKey {
    /// A new key with this id.
    pub fn new(id: &str) -> Result<SigningKey> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)?;
        Ok(SigningKey { id: id.to_owned(), pair })
    }

    /// A token with these claims, and with an expiration in an hour unless they have one.
    pub fn sign(&self, claims: &Value) -> Result<String> {
        let header = json!({"alg": "ES256", "typ": "JWT", "kid": self.id});
        let mut claims = claims.clone();
        if claims.get("exp").is_none() {
            claims["exp"] = (now()? + 3600).into();
        }
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", encode(&header), encode(&claims));
        let signature = self.pair.sign(&SystemRandom::new(), text.as_bytes())?;
        Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// The public key as JSON.
    pub fn public(&self) -> Value {
        // An uncompressed point: a byte, and two coordinates of 32 bytes.
        let point = self.pair.public_key().as_ref();
        let part = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(point.get(range).unwrap_or_default());
        json!({"kty": "EC", "crv": "P-256", "alg": "ES256", "kid": self.id, "x": part(1..33), "y": part(33..65)})
    }
}

/// The set of these keys.
pub fn key_set(keys: &[&SigningKey]) -> String {
    json!({"keys": keys.iter().map(|key| key.public()).collect::<Vec<_>>()}).to_string()
}

/// Seconds since 1970.
pub fn now() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())
}

/// Serves a key set at `/keys`, and a discovery document.
pub struct KeyServer {
    address: SocketAddr,
    state: Arc<State>,
    server: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    keys: Mutex<String>,
    failing: AtomicBool,
    requests: AtomicU64,
}

impl KeyServer {
    /// Starts at this port of loopback; 0 for a free one.
    pub async fn start(port: u16, keys: &[&SigningKey]) -> Result<KeyServer> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(State::default());
        let shared = state.clone();
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = shared.clone();
                // A client that disconnects concerns nobody else.
                tokio::spawn(async move { drop(answer(stream, address, &state).await) });
            }
        });
        let server = KeyServer { address, state, server };
        server.set(keys);
        Ok(server)
    }

    /// The URL of the key set.
    pub fn uri(&self) -> String {
        format!("http://{}/keys", self.address)
    }

    /// The issuer whose discovery document names the key set.
    pub fn issuer(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Replaces the keys.
    pub fn set(&self, keys: &[&SigningKey]) {
        *self.state.keys.lock().unwrap_or_else(PoisonError::into_inner) = key_set(keys);
    }

    /// Answers every request with 503, or no longer.
    pub fn fail(&self, failing: bool) {
        self.state.failing.store(failing, Ordering::SeqCst);
    }

    /// The number of requests.
    pub fn requests(&self) -> u64 {
        self.state.requests.load(Ordering::SeqCst)
    }
}

impl Drop for KeyServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer(mut stream: TcpStream, address: SocketAddr, state: &State) -> Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut part = [0; 1024];
        match stream.read(&mut part).await? {
            0 => return Ok(()),
            length => request.extend_from_slice(part.get(..length).unwrap_or_default()),
        }
    }
    state.requests.fetch_add(1, Ordering::SeqCst);
    let request = String::from_utf8(request)?;
    let keys = state.keys.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (status, body) = match request.split(' ').nth(1) {
        _ if state.failing.load(Ordering::SeqCst) => ("503 Service Unavailable", String::new()),
        Some("/keys") => ("200 OK", keys),
        Some("/.well-known/openid-configuration") => (
            "200 OK",
            json!({"issuer": format!("http://{address}"), "jwks_uri": format!("http://{address}/keys")}).to_string(),
        ),
        _ => ("404 Not Found", String::new()),
    };
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).await?;
    Ok(())
}
