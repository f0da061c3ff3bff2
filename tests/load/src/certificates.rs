//! Certificate requests and TLS streams: workloads that renew their certificates over the TLS port, and hold streams there.
//!
//! The control plane has a plugged-in authority whose key the tool has, too. So each workload begins with a certificate that the
//! tool signs, and no API server is needed.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use h2::client::SendRequest;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use test_harness::run::Control;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::probe::{Usage, memory};
use crate::process::{idle, launched, pid_of, with_log};
use crate::wire::{self, Workload};

const CREATE: &str = "/istio.v1.auth.IstioCertificateService/CreateCertificate";
const DELTA: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const CDS: &[u8] = b"type.googleapis.com/envoy.config.cluster.v3.Cluster";
/// The name of the control plane.
const NAME: &str = "istiod.istio-system.svc";

/// The numbers of what is done.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Certificate requests.
    pub requests: usize,
    /// Workloads that request them at the same time, each over its own connection.
    pub workloads: usize,
    /// Streams that are held open.
    pub streams: usize,
    /// Whether the authority has an RSA key with 2,048 bits, as istiod's own, instead of a P-256 key.
    pub rsa: bool,
}

/// An authority whose key the tool has.
pub(crate) type Issuer = CertifiedIssuer<'static, KeyPair>;

/// Measures. Returns the figures as a table.
///
/// # Errors
/// The control plane does not start, or a request fails.
pub async fn certificates(binary: &Path, flags: &[&str], plan: Plan) -> Result<String> {
    let directory = tempfile::tempdir()?;
    let issuer = authority(plan.rsa, directory.path())?;
    let empty = tempfile::tempdir()?;
    let config = empty.path().display().to_string();
    let all = [&["--store", "none", "--config-dir", &config][..], flags].concat();
    let environment = [("ROOT_CA_DIR", directory.path())];
    let mut control = Control::idle(binary, &all, &environment).map_err(anyhow::Error::from_boxed)?;
    launched(&mut control).await?;
    let measured = measure(&control, &issuer, plan).await;
    with_log(&control, measured)
}

async fn measure(control: &Control, issuer: &Issuer, plan: Plan) -> Result<String> {
    let (pid, address) = (pid_of(control)?, control.secure());
    let begin = Instant::now();
    // The port is served once there is a certificate.
    while connect(address, issuer, "first").await.is_err() {
        ensure!(begin.elapsed() < Duration::from_secs(60), "the TLS port is not served");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut table = String::from("| work | figures |\n|---|---|\n");
    signatures(&mut table, pid, address, issuer, plan).await?;
    streams(&mut table, (pid, control), issuer, plan).await?;
    Ok(table)
}

/// Sends certificate requests.
async fn signatures(table: &mut String, pid: u32, address: SocketAddr, issuer: &Issuer, plan: Plan) -> Result<()> {
    let mut clients = Vec::new();
    for number in 0..plan.workloads {
        let key = KeyPair::generate()?;
        let csr = CertificateParams::default().serialize_request(&key)?.pem()?;
        clients.push((connect(address, issuer, &format!("w{number}")).await?, request(&csr)));
    }
    idle(pid).await?;
    let (before, held, begin) = (Usage::of(pid)?, memory(pid)?.0, Instant::now());
    let mut tasks = JoinSet::new();
    for (number, (client, request)) in clients.into_iter().enumerate() {
        let share = plan.requests / plan.workloads + usize::from(number < plan.requests % plan.workloads);
        tasks.spawn(async move {
            let mut took = Vec::with_capacity(share);
            for _ in 0..share {
                let begin = Instant::now();
                create(client.clone(), request.clone()).await?;
                took.push(begin.elapsed());
            }
            Ok::<_, anyhow::Error>(took)
        });
    }
    let mut took = Vec::new();
    while let Some(done) = tasks.join_next().await {
        took.extend(done??);
    }
    let (after, elapsed) = (Usage::of(pid)?, begin.elapsed());
    took.sort_unstable();
    let at = |percent: usize| took.get((took.len() * percent / 100).min(took.len().saturating_sub(1)));
    let cpu = after.since(&before);
    writeln!(
        table,
        "| {} requests of {} workloads, {} | {:.0} a second · {:.0} a CPU second · p50 {:.1} ms · p99 {:.1} ms · {} MiB before, {} MiB after |",
        took.len(),
        plan.workloads,
        if plan.rsa { "RSA 2048" } else { "P-256" },
        took.len() as f64 / elapsed.as_secs_f64(),
        took.len() as f64 / cpu.as_secs_f64(),
        at(50).map_or(0.0, |time| time.as_secs_f64() * 1e3),
        at(99).map_or(0.0, |time| time.as_secs_f64() * 1e3),
        held >> 20,
        memory(pid)?.0 >> 20,
    )?;
    Ok(())
}

/// Holds streams, over TLS and as plaintext.
async fn streams(table: &mut String, (pid, control): (u32, &Control), issuer: &Issuer, plan: Plan) -> Result<()> {
    let mut kept = Vec::new();
    for (what, tls) in [("plaintext", false), ("TLS", true)] {
        idle(pid).await?;
        let (before, held) = (Usage::of(pid)?, memory(pid)?.0);
        for number in 0..plan.streams {
            let name = format!("s{number}");
            let client = match tls {
                true => connect(control.secure(), issuer, &name).await?,
                false => plain(control.grpc()).await?,
            };
            kept.push(subscribe(client, &name).await?);
        }
        idle(pid).await?;
        let after = Usage::of(pid)?;
        let each = memory(pid)?.0.saturating_sub(held) / (plan.streams.max(1) as u64) / 1024;
        let cpu = after.since(&before);
        writeln!(table, "| {} {what} streams | {each} KiB a stream · {:.2} CPU-s |", plan.streams, cpu.as_secs_f64())?;
    }
    Ok(())
}

/// An authority, whose files it writes into a directory.
pub(crate) fn authority(rsa: bool, directory: &Path) -> Result<Issuer> {
    let key = match rsa {
        true => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048)?,
        false => KeyPair::generate()?,
    };
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "load");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let issuer = CertifiedIssuer::self_signed(params, key)?;
    // A root signs: no certificates are between it and the root.
    let files = [
        ("ca-cert.pem", issuer.pem()),
        ("ca-key.pem", issuer.key().serialize_pem()),
        ("cert-chain.pem", String::new()),
        ("root-cert.pem", issuer.pem()),
    ];
    for (name, text) in files {
        std::fs::write(directory.join(name), text)?;
    }
    Ok(issuer)
}

/// The TLS of a workload, with a certificate of this service account.
pub(crate) fn client_config(issuer: &Issuer, namespace: &str, account: &str) -> Result<Arc<ClientConfig>> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.subject_alt_names =
        vec![SanType::URI(format!("spiffe://cluster.local/ns/{namespace}/sa/{account}").as_str().try_into()?)];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let leaf = params.signed_by(&key, issuer)?;
    let mut roots = RootCertStore::empty();
    roots.add(issuer.der().clone())?;
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![leaf.der().clone()], key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

/// Encrypts a connection to the control plane.
pub(crate) async fn encrypted(socket: TcpStream, config: Arc<ClientConfig>) -> Result<TlsStream<TcpStream>> {
    Ok(TlsConnector::from(config).connect(ServerName::try_from(NAME)?, socket).await?)
}

/// Opens a TLS connection as a workload.
async fn connect(address: SocketAddr, issuer: &Issuer, account: &str) -> Result<SendRequest<Bytes>> {
    let config = client_config(issuer, "load", account)?;
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let (client, connection) = h2::client::handshake(encrypted(socket, config).await?).await?;
    tokio::spawn(connection);
    Ok(client.ready().await?)
}

async fn plain(address: SocketAddr) -> Result<SendRequest<Bytes>> {
    let socket = TcpStream::connect(address).await?;
    let (client, connection) = h2::client::handshake(socket).await?;
    tokio::spawn(connection);
    Ok(client.ready().await?)
}

fn request(csr: &str) -> Bytes {
    let mut message = BytesMut::new();
    wire::put(&mut message, 1, csr.as_bytes());
    wire::frame(&message)
}

fn head(path: &str) -> Result<http::Request<()>> {
    let request = http::Request::post(format!("https://{NAME}{path}")).header("content-type", "application/grpc");
    Ok(request.header("te", "trailers").body(())?)
}

/// Requests one certificate.
async fn create(client: SendRequest<Bytes>, request: Bytes) -> Result<()> {
    let mut client = client.ready().await?;
    let (response, mut send) = client.send_request(head(CREATE)?, false)?;
    send.send_data(request, true)?;
    let mut body = response.await?.into_body();
    let mut received = 0;
    while let Some(data) = body.data().await {
        let data = data?;
        received += data.len();
        body.flow_control().release_capacity(data.len())?;
    }
    let status = body.trailers().await?.and_then(|trailers| trailers.get("grpc-status").cloned());
    let status = status.context("the response has no status")?;
    ensure!(status == "0" && received > 500, "a certificate request ended with {status:?}");
    Ok(())
}

/// Subscribes to clusters, and waits for them. The stream is open as long as the returned value.
async fn subscribe(mut client: SendRequest<Bytes>, name: &str) -> Result<impl Sized + use<>> {
    let workload = Workload {
        name: name.to_owned(),
        namespace: "load".to_owned(),
        app: "load".to_owned(),
        ip: "10.0.0.1".to_owned(),
        node: "node-0".to_owned(),
    };
    let mut message = BytesMut::new();
    wire::put(&mut message, 1, &wire::node(&workload));
    wire::put(&mut message, 2, CDS);
    let (response, mut send) = client.send_request(head(DELTA)?, false)?;
    send.send_data(wire::frame(&message), false)?;
    let mut body = response.await?.into_body();
    match body.data().await {
        Some(Ok(_)) => Ok((client, send, body)),
        ended => bail!("the stream of {name} ended: {ended:?}"),
    }
}
