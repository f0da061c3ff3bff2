//! A real HTTP server that answers as issuers do, and as attackers do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use jwks::{Guard, Pattern};
use model::jwt::WantedSource;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

const KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"a","x":"axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY","y":"T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"}]}"#;

/// Answers each path with a fixed response, and counts the requests.
#[derive(Clone)]
struct Site {
    port: u16,
    answers: Arc<Mutex<BTreeMap<String, String>>>,
    requests: Arc<AtomicU64>,
}

impl Site {
    async fn start() -> Site {
        Site::start_with(None).await
    }

    /// Serves over TLS, with a certificate for 127.0.0.1 that only the returned authority (PEM) vouches for.
    async fn start_over_tls() -> (Site, String) {
        let (authority_key, key) = (KeyPair::generate().expect("a key"), KeyPair::generate().expect("a key"));
        let mut authority = CertificateParams::new(Vec::new()).expect("valid names");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = authority.self_signed(&authority_key).expect("a certificate");
        let issuer = Issuer::new(authority, authority_key);
        let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("valid names");
        let leaf = leaf.signed_by(&key, &issuer).expect("a certificate");
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("protocol versions")
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into());
        (Site::start_with(Some(TlsAcceptor::from(Arc::new(config.expect("a configuration"))))).await, root.pem())
    }

    async fn start_with(tls: Option<TlsAcceptor>) -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let site = Site { port, answers: Arc::default(), requests: Arc::default() };
        let served = site.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (site, tls) = (served.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => site.answer(stream).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                site.answer(stream).await;
                            }
                        }
                    }
                });
            }
        });
        site
    }

    async fn answer(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        let mut request = vec![0; 4096];
        let length = stream.read(&mut request).await.unwrap_or(0);
        let request = String::from_utf8_lossy(&request[..length]).into_owned();
        self.requests.fetch_add(1, Ordering::Relaxed);
        let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
        let answer = self.answers.lock().expect("no panic").get(&path).cloned();
        // A path without an answer never gets one.
        match answer {
            Some(answer) => drop(stream.write_all(answer.as_bytes()).await),
            None => std::future::pending().await,
        }
    }

    fn url(&self, path: &str) -> Arc<str> {
        format!("http://127.0.0.1:{}{path}", self.port).into()
    }

    fn set(&self, path: &str, answer: String) {
        self.answers.lock().expect("no panic").insert(path.to_owned(), answer);
    }
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn client(allowed: &[&str]) -> Client {
    let allowed = allowed.iter().map(|text| text.parse::<Pattern>().expect("a pattern")).collect();
    Client::new(Guard { blocked: Vec::new(), allowed }, None)
}

async fn fetched(client: &Client, source: KeySource) -> Result<String, String> {
    let fetch = Fetch { source, timeout: Duration::from_millis(500) };
    client.fetch(&fetch).await.map(|keys| keys.json().to_owned()).map_err(|error| error.to_string())
}

#[tokio::test]
async fn answers_are_used_within_limits() {
    let site = Site::start().await;
    let client = client(&["127.0.0.1"]);
    let get = async |path: &str| fetched(&client, KeySource::Uri(site.url(path))).await;
    site.set("/keys", ok(KEYS));
    let keys = get("/keys").await.expect("keys");
    assert_eq!(keys, KeySet::fetched(KEYS.as_bytes()).expect("keys").json());

    site.set("/moved?x=1", "HTTP/1.1 302 Found\r\nlocation: /keys\r\ncontent-length: 0\r\n\r\n".to_owned());
    assert_eq!(get("/moved?x=1").await, Ok(keys.clone()));
    site.set("/loop", "HTTP/1.1 301 Moved\r\nlocation: /loop\r\ncontent-length: 0\r\n\r\n".to_owned());
    assert_eq!(get("/loop").await, Err("the server redirects more than 5 times".to_owned()));

    site.set("/large", ok(&format!("{{{}", " ".repeat(2 << 20))));
    assert_eq!(get("/large").await, Err("the answer is larger than 1 MiB".to_owned()));
    // No failure repeats a response.
    site.set("/secret", ok("password=hunter2"));
    assert_eq!(get("/secret").await, Err("the document is not a JSON Web Key Set".to_owned()));
    site.set("/error", "HTTP/1.1 503 No\r\ncontent-length: 7\r\n\r\nhunter2".to_owned());
    assert_eq!(get("/error").await, Err("the server 127.0.0.1 answered with status 503".to_owned()));
    site.set("/garbage", "hunter2\r\n\r\n".to_owned());
    assert_eq!(get("/garbage").await, Err("the server 127.0.0.1 sent no valid HTTP response".to_owned()));
    assert_eq!(get("/never").await, Err("no answer within 500ms".to_owned()));

    let discovery = format!(r#"{{"issuer":"x","jwks_uri":"{}"}}"#, site.url("/keys"));
    site.set("/.well-known/openid-configuration", ok(&discovery));
    assert_eq!(fetched(&client, KeySource::Issuer(site.url("/"))).await, Ok(keys));
}

#[tokio::test]
async fn only_known_authorities_vouch_for_issuers() {
    let (site, root) = Site::start_over_tls().await;
    site.set("/keys", ok(KEYS));
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("extra.pem");
    let get = async |host: &str| {
        // A client keeps the authorities for a minute.
        let guard = Guard { blocked: Vec::new(), allowed: vec!["127.0.0.1".parse().expect("a pattern")] };
        let source = KeySource::Uri(format!("https://{host}:{}/keys", site.port).into());
        let fetch = Fetch { source, timeout: Duration::from_secs(20) };
        Client::new(guard, Some(path.clone())).fetch(&fetch).await
    };
    assert!(matches!(get("127.0.0.1").await, Err(FetchError::Tls(..))), "without the file");
    let (_, other) = Site::start_over_tls().await;
    std::fs::write(&path, &other).expect("a file");
    assert!(matches!(get("127.0.0.1").await, Err(FetchError::Tls(..))), "another authority");
    std::fs::write(&path, other + &root).expect("a file");
    assert!(get("127.0.0.1").await.is_ok());
    assert!(matches!(get("localhost").await, Err(FetchError::Tls(..))), "the name is not in the certificate");
    assert_eq!(site.requests.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn ghsa_fgw5_hp8f_xfhc_no_way_leads_to_internal_addresses() {
    let site = Site::start().await;
    site.set("/keys", ok(KEYS));
    // Directly, by a name that resolves to it, and in forms that hide the address.
    let forms = ["127.0.0.1", "localhost", "0x7f.1", "2130706433", "[::ffff:127.0.0.1]", "0.0.0.0"];
    for host in forms {
        let url = format!("http://{host}:{}/keys", site.port);
        let error = fetched(&client(&[]), KeySource::Uri(url.as_str().into())).await.expect_err("a refusal");
        assert!(error.contains("(allow it with jwks-allowed)"), "{host}: {error}");
    }
    assert_eq!(site.requests.load(Ordering::Relaxed), 0);
    // By a redirect, and by a discovery document, of a server that may be asked.
    let moved = "HTTP/1.1 307 Moved\r\nlocation: http://169.254.169.254/latest\r\ncontent-length: 0\r\n\r\n".to_owned();
    site.set("/moved", moved);
    site.set("/.well-known/openid-configuration", ok(r#"{"jwks_uri":"http://169.254.169.254/latest"}"#));
    let allowed = client(&["127.0.0.1"]);
    for source in [KeySource::Uri(site.url("/moved")), KeySource::Issuer(site.url(""))] {
        let error = fetched(&allowed, source).await.expect_err("a refusal");
        assert!(error.starts_with("the address 169.254.169.254 is "), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn keys_are_followed() {
    let source = KeySource::Uri("https://a.example/keys".into());
    let users = WantedSource { timeout: Duration::from_secs(5), namespaces: BTreeSet::from([Arc::from("x")]) };
    let (wanted, seen) = watch::channel(Keys::default());
    let (sender, mut updates) = mpsc::channel(1);
    let answers =
        Mutex::new(vec![KeySet::fetched(KEYS.as_bytes()).map_err(FetchError::from), Err(FetchError::TooLarge)]);
    let fetch = async |_: Fetch| answers.lock().expect("no panic").pop().unwrap_or(Err(FetchError::Redirects));
    let outcomes = Arc::new(Outcomes::default());
    let following = follow(seen, Settings::default(), fetch, outcomes.clone(), sender);
    let checks = async {
        let mut next = async || updates.recv().await.expect("an update");
        assert_eq!(next().await, Update { changes: Vec::new(), all_tried: true });
        wanted.send_replace(Arc::new(BTreeMap::from([(source.clone(), users)])));
        assert!(!next().await.all_tried);
        let failed = next().await;
        assert!(failed.all_tried);
        assert_eq!(
            failed.changes[0].failure.as_ref().map(|failure| &*failure.reason),
            Some("the answer is larger than 1 MiB")
        );
        let before = Instant::now();
        let fetched = next().await;
        assert_eq!((fetched.changes[0].keys.is_some(), &fetched.changes[0].failure), (true, &None));
        assert!(before.elapsed() <= Duration::from_secs(1));
        // The next fetch fails, but the keys stay.
        let stale = next().await;
        assert!(before.elapsed() > Duration::from_secs(900));
        assert!(stale.changes[0].keys.is_some() && stale.changes[0].failure.is_some());
        wanted.send_replace(Keys::default());
        assert_eq!(next().await.changes, [Change { source: source.clone(), keys: None, failure: None }]);
        drop(wanted);
    };
    tokio::join!(following, checks);
    assert_eq!(outcomes.counts(), (1, 2));
}
