//! The identity of a workload against a certificate authority and a client of the SDS server that the test plays.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use crate::support::{Authority, Workload, settings, soon};
use identity::{CertificateFiles, IdentityError, Source};
use protos::envoy::extensions::transport_sockets::tls::v3::{Secret, secret::Type};
use protos::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

const STREAM: &str = "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets";
const FETCH: &str = "/envoy.service.secret.v3.SecretDiscoveryService/FetchSecrets";

async fn channel(socket: &Path) -> Channel {
    Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap().connect().await.unwrap()
}

fn request(names: &[&str]) -> DiscoveryRequest {
    DiscoveryRequest { resource_names: names.iter().map(|&name| name.to_owned()).collect(), ..Default::default() }
}

async fn fetch(socket: &Path, names: &[&str]) -> Result<DiscoveryResponse, Status> {
    let mut grpc = tonic::client::Grpc::new(channel(socket).await);
    grpc.ready().await.unwrap();
    let codec = ProstCodec::<DiscoveryRequest, DiscoveryResponse>::default();
    let answer = grpc.unary(Request::new(request(names)), PathAndQuery::from_static(FETCH), codec);
    soon(answer).await.map(tonic::Response::into_inner)
}

type Opened = (mpsc::Sender<DiscoveryRequest>, Streaming<DiscoveryResponse>);

async fn stream(socket: &Path, names: &[&str]) -> Opened {
    let mut grpc = tonic::client::Grpc::new(channel(socket).await);
    grpc.ready().await.unwrap();
    let (requests, outgoing) = mpsc::channel(4);
    requests.send(request(names)).await.unwrap();
    let codec = ProstCodec::<DiscoveryRequest, DiscoveryResponse>::default();
    let answers = grpc.streaming(Request::new(ReceiverStream::new(outgoing)), PathAndQuery::from_static(STREAM), codec);
    (requests, soon(answers).await.unwrap().into_inner())
}

/// The secrets of a response: names, and chains or roots.
fn secrets(response: &DiscoveryResponse) -> Vec<(String, String)> {
    let secret = |any: &protos::Any| {
        let secret = any.decode_as::<Secret>().unwrap().unwrap();
        let source = match secret.r#type.unwrap() {
            Type::TlsCertificate(certificate) => certificate.certificate_chain,
            Type::ValidationContext(context) => context.trusted_ca,
            other => panic!("{other:?}"),
        };
        match source.unwrap().specifier.unwrap() {
            protos::envoy::config::core::v3::data_source::Specifier::InlineBytes(bytes) => {
                (secret.name, String::from_utf8(bytes.to_vec()).unwrap())
            }
            other => panic!("{other:?}"),
        }
    };
    response.resources.iter().map(secret).collect()
}

#[tokio::test]
async fn a_certificate_is_requested_as_configured_and_served() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::start().await;
    let output = folder.path().join("out");
    fs::write(folder.path().join("token"), "a-token\n").unwrap();
    let variables = [
        ("OUTPUT_CERTS", output.to_str().unwrap()),
        ("SECRET_TTL", "2h"),
        ("SERVICE_ACCOUNT", "cart"),
        ("ISTIO_META_CERT_SIGNER", "signer"),
        ("ISTIO_META_CLUSTER_ID", "c1"),
    ];
    let workload = Workload::start(settings(folder.path(), authority.address, &variables)).await;
    let certificates = workload.certificates(|_| true).await;
    let seen = &authority.seen(1).await[0];
    assert_eq!(seen.token.as_deref(), Some("Bearer a-token"));
    assert_eq!((seen.cluster.as_deref(), &*seen.signer, seen.lifetime), (Some("c1"), "signer", 7200));
    assert_eq!(seen.id, "spiffe://cluster.local/ns/shop/sa/cart");

    let files = CertificateFiles::of_folder(&output);
    for (path, content) in
        [(&files.chain, &certificates.chain), (&files.key, &certificates.key), (&files.roots, &certificates.roots)]
    {
        assert_eq!(fs::read_to_string(path).unwrap(), **content);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert!(!format!("{certificates:?} {:?}", workload.identity).contains("PRIVATE"));

    let socket = workload.identity.socket().unwrap().to_owned();
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o666);
    let response = fetch(&socket, &["default", "ROOTCA", "other"]).await.unwrap();
    let expected = [("ROOTCA", &certificates.roots), ("default", &certificates.chain)];
    assert_eq!(secrets(&response), expected.map(|(name, text)| (name.to_owned(), text.to_string())));
    assert_eq!(response.resource_errors[0].resource_name.as_ref().unwrap().name, "other");
    assert_eq!(fetch(&socket, &["other"]).await.unwrap_err().code(), Code::NotFound);

    workload.stop.send_replace(true);
    soon(workload.identity.ended()).await;
    assert!(!socket.exists());
}

#[tokio::test]
async fn a_stream_waits_until_there_is_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::start().await;
    authority.refuse(Some(Code::PermissionDenied));
    let workload = Workload::start(settings(folder.path(), authority.address, &[])).await;
    let socket = workload.identity.socket().unwrap();
    let (_requests, mut answers) = stream(socket, &["default"]).await;
    let status = fetch(socket, &["default"]).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("the test refuses"), "{status}");
    authority.refuse(None);
    assert_eq!(soon(answers.message()).await.unwrap().unwrap().resources.len(), 1);
    assert!(workload.metric("num_outgoing_retries") >= 1.0);
}

#[tokio::test]
async fn a_join_token_is_sent_once_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::start().await;
    let output = folder.path().join("out");
    let token = folder.path().join("token");
    fs::write(&token, "rutter-join.0123.secret\n").unwrap();
    let renewing = [("OUTPUT_CERTS", output.to_str().unwrap()), ("SECRET_GRACE_PERIOD_RATIO", "1")];
    let workload = Workload::start(settings(folder.path(), authority.address, &renewing)).await;
    let sent = |seen: Vec<crate::support::Seen>| seen.into_iter().map(|seen| seen.token.is_some()).collect::<Vec<_>>();
    assert_eq!(sent(authority.seen(2).await)[..2], [true, false]);
    drop(workload);

    // A restarted agent uses the certificate. If that is lost, the token is still not sent again.
    let before = authority.seen(0).await.len();
    let workload = Workload::start(settings(folder.path(), authority.address, &renewing)).await;
    assert!(!sent(authority.seen(before + 1).await)[before]);
    drop(workload);
    fs::remove_file(output.join("key.pem")).unwrap();
    let workload = Workload::start(settings(folder.path(), authority.address, &renewing)).await;
    let socket = workload.identity.socket().unwrap();
    let status = fetch(socket, &["default"]).await.unwrap_err();
    assert!(status.message().contains("create a new one with `rutter token create`"), "{status}");
    // A new token is sent.
    let before = authority.seen(0).await.len();
    fs::write(&token, "rutter-join.4567.secret").unwrap();
    let seen = authority.seen(before + 1).await;
    assert_eq!(seen[before].token.as_deref(), Some("Bearer rutter-join.4567.secret"));
}

#[tokio::test]
async fn files_of_the_platform_are_used_without_an_authority() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::start().await;
    let files = CertificateFiles::of_folder(&folder.path().join("var/run/secrets/workload-spiffe-credentials"));
    fs::create_dir_all(files.chain.parent().unwrap()).unwrap();
    let put = || {
        let (chain, key) = authority.root.certify();
        fs::write(&files.key, key).unwrap();
        fs::write(&files.chain, &chain).unwrap();
        chain
    };
    let first = put();
    fs::write(&files.roots, &authority.root.pem).unwrap();
    let workload = Workload::start(settings(folder.path(), authority.address, &[])).await;
    assert_eq!(workload.identity.source(), &Source::Files(files.clone()));
    workload.certificates(|now| *now.chain == *first).await;

    let socket = workload.identity.socket().unwrap();
    let (requests, mut answers) = stream(socket, &["default"]).await;
    let response = soon(answers.message()).await.unwrap().unwrap();
    assert_eq!(secrets(&response)[0].1, first);
    let ack = DiscoveryRequest {
        response_nonce: response.nonce,
        version_info: response.version_info,
        ..request(&["default"])
    };
    requests.send(ack).await.unwrap();
    let second = put();
    let response = soon(answers.message()).await.unwrap().unwrap();
    assert_eq!(secrets(&response)[0].1, second);

    let other = crate::support::Root::new("two");
    workload.mesh.send_replace(Arc::new(vec![other.pem.clone()]));
    workload.certificates(|now| now.roots.matches("BEGIN").count() == 2).await;
    let name = format!("file-cert:{}~{}", files.chain.display(), files.key.display());
    let roots = format!("file-root:{}", files.roots.display());
    let response = fetch(socket, &[&name, &roots]).await.unwrap();
    assert_eq!(secrets(&response).iter().map(|(_, text)| text.matches("BEGIN").count()).collect::<Vec<_>>(), [1, 1]);
    assert!(authority.seen(0).await.is_empty());
}

#[tokio::test]
async fn another_server_keeps_its_socket() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::start().await;
    let settings = |variables: &[(&str, &str)]| settings(folder.path(), authority.address, variables);
    let socket = settings(&[]).socket();
    fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let other = UnixListener::bind(&socket).unwrap();
    let workload = Workload::start(settings(&[])).await;
    assert_eq!(workload.identity.source(), &Source::OtherServer(socket.clone()));
    let own = workload.identity.socket().unwrap();
    assert!(own.ends_with("var/run/secrets/credential-uds/files-socket"));
    let root = folder.path().join("root.pem");
    fs::write(&root, &authority.root.pem).unwrap();
    assert_eq!(fetch(own, &[&format!("file-root:{}", root.display())]).await.unwrap().resources.len(), 1);
    assert_eq!(fetch(own, &["default"]).await.unwrap_err().code(), Code::Unavailable);
    drop((workload, other));

    // Its socket is left behind: the agent takes its place.
    assert!(socket.exists());
    let workload = Workload::start(settings(&[])).await;
    assert_eq!((workload.identity.source(), workload.identity.socket()), (&Source::Authority, Some(&*socket)));
    workload.certificates(|_| true).await;

    let named = settings(&[("WORKLOAD_IDENTITY_SOCKET_FILE", "spire")]);
    let (_, mesh) = tokio::sync::watch::channel(Arc::default());
    let (_stop, stopped) = tokio::sync::watch::channel(false);
    let error = identity::start(named, mesh, &prometheus::Registry::new(), stopped).await.unwrap_err();
    assert!(matches!(error, IdentityError::NoServer(_)), "{error}");
}
