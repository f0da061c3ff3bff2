//! The mesh's own TLS between two Envoys, each with an agent beside it that has its certificate.
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use e2e::{Mesh, envoy_binary};
use futures::StreamExt as _;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parts::run::{Backend, Envoy, Node, Result, free_port, http, wait_for};
use protos::Message as _;
use protos::envoy::config::core::v3::{DataSource, data_source::Specifier};
use protos::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, Secret, TlsCertificate, secret::Type,
};
use protos::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use rcgen::string::Ia5String;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// How long a change may take on a busy machine before a test gives up.
const PATIENCE: Duration = Duration::from_secs(20);

/// What an agent has.
#[derive(Clone)]
struct Identity {
    certificate: String,
    key: String,
    roots: String,
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Result<Authority> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "mesh");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Authority {
            issuer: Issuer::new(params, key),
            pem,
        })
    }

    /// The identity of a service account of the namespace `test`.
    fn identity(&self, account: &str) -> Result<Identity> {
        let mut params = CertificateParams::default();
        let name = format!("spiffe://cluster.local/ns/test/sa/{account}");
        params.subject_alt_names = vec![SanType::URI(Ia5String::try_from(name)?)];
        let key = KeyPair::generate()?;
        Ok(Identity {
            certificate: params.signed_by(&key, &self.issuer)?.pem(),
            key: key.serialize_pem(),
            roots: self.pem.clone(),
        })
    }
}

impl Identity {
    fn secret(&self, name: &str) -> Secret {
        let inline = |text: &str| DataSource {
            specifier: Some(Specifier::InlineString(text.to_owned())),
            ..Default::default()
        };
        let content = match name {
            "ROOTCA" => Type::ValidationContext(CertificateValidationContext {
                trusted_ca: Some(inline(&self.roots)),
                ..Default::default()
            }),
            _ => Type::TlsCertificate(TlsCertificate {
                certificate_chain: Some(inline(&self.certificate)),
                private_key: Some(inline(&self.key)),
                ..Default::default()
            }),
        };
        Secret {
            name: name.to_owned(),
            r#type: Some(content),
        }
    }

    /// The answer to a request for secrets, framed as gRPC does it.
    fn answer(&self, request: &DiscoveryRequest) -> Bytes {
        let secrets = request
            .resource_names
            .iter()
            .map(|name| protos::any(&self.secret(name)));
        let response = DiscoveryResponse {
            version_info: "1".to_owned(),
            nonce: "1".to_owned(),
            type_url: request.type_url.clone(),
            resources: secrets.collect(),
            ..Default::default()
        };
        let message = protos::encode(&response);
        let mut framed = BytesMut::from(&[0][..]);
        framed.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
        framed.extend_from_slice(&message);
        framed.freeze()
    }
}

/// A server of secrets, as agents are: one answer for each stream, which then stays open.
async fn agent(identity: Identity) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let identity = identity.clone();
            let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
                let identity = identity.clone();
                async move { Ok::<_, Infallible>(stream(identity, request.into_body())) }
            });
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(socket), service);
            tokio::spawn(connection);
        }
    });
    Ok(address)
}

type Frames = futures::stream::BoxStream<'static, std::result::Result<Frame<Bytes>, Infallible>>;

fn stream(identity: Identity, mut body: Incoming) -> hyper::Response<StreamBody<Frames>> {
    let first = async move {
        let mut buffer = BytesMut::new();
        while let Some(Ok(frame)) = body.frame().await {
            buffer.extend_from_slice(&frame.into_data().unwrap_or_default());
            let length = buffer
                .get(1..5)
                .map(|length| u32::from_be_bytes(length.try_into().unwrap()) as usize);
            if let Some(length) = length.filter(|length| buffer.len() >= length + 5) {
                buffer.advance(5);
                let request = DiscoveryRequest::decode(buffer.split_to(length).freeze()).unwrap();
                return (Some(Frame::data(identity.answer(&request))), body);
            }
        }
        (None, body)
    };
    let answer = futures::stream::once(first).flat_map(|(answer, body)| {
        // What the client says of it is not read, but the stream lives as long as the client wants.
        let rest = futures::stream::pending().map(move |frame| {
            let _ = &body;
            frame
        });
        futures::stream::iter(answer.map(Ok)).chain(rest)
    });
    hyper::Response::builder()
        .header("content-type", "application/grpc")
        .body(StreamBody::new(answer.boxed()))
        .unwrap()
}

/// An Envoy with an agent.
async fn gateway(mesh: &Mesh, name: &str, identity: Identity) -> Result<Envoy> {
    let mut node = Node::gateway(name, "test", "127.0.0.3", &[("app", name)]);
    node.metadata["ISTIO_VERSION"] = "1.28.0".into();
    let cluster = |name: &str, at: SocketAddr| -> Value {
        json!({
            "name": name, "type": "STATIC", "connect_timeout": "1s",
            "load_assignment": { "cluster_name": name, "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": {
                "socket_address": { "address": at.ip().to_string(), "port_value": at.port() } } } }] }] },
            "typed_extension_protocol_options": { "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": { "http2_protocol_options": {} },
            } },
        })
    };
    let sds = agent(identity).await?;
    let bootstrap = json!({
        "node": { "id": node.id, "cluster": "mesh", "metadata": node.metadata },
        "admin": { "address": { "socket_address": { "address": "127.0.0.1", "port_value": 0 } } },
        "dynamic_resources": {
            "lds_config": { "ads": {}, "resource_api_version": "V3" },
            "cds_config": { "ads": {}, "resource_api_version": "V3" },
            "ads_config": {
                "api_type": "DELTA_GRPC", "transport_api_version": "V3",
                "grpc_services": [{ "envoy_grpc": { "cluster_name": "xds-grpc" } }],
            },
        },
        "static_resources": { "clusters": [cluster("xds-grpc", mesh.control.grpc()), cluster("sds-grpc", sds)] },
    });
    Envoy::start_with(envoy_binary(), &bootstrap).await
}

fn service(name: &str, account: &str, address: SocketAddr) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{ name: {name}, namespace: test }}\n\
         spec: {{ hosts: [{name}.test], resolution: STATIC, location: MESH_INTERNAL, \
         ports: [{{ number: 80, name: http, protocol: HTTP }}], \
         endpoints: [{{ address: {}, ports: {{ http: {} }}, serviceAccount: {account} }}] }}\n",
        address.ip(),
        address.port()
    )
}

fn route(name: &str, gateway: &str, to: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{ name: {name}-{to}, namespace: test }}\n\
         spec: {{ hosts: [{name}.test], gateways: [{gateway}], http: [{{ route: [{{ destination: {{ host: {to}.test }} }}] }}] }}\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_envoys_of_a_mesh_prove_who_they_are() {
    run().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn run() -> Result<()> {
    let authority = Authority::new()?;
    let backend = Backend::start("v1", "one").await?;
    let (inner, outer) = (free_port(), free_port());
    let gateway_object = |name: &str, port: u16, protocol: &str, tls: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {{ name: {name}, namespace: test }}\n\
             spec: {{ selector: {{ app: {name} }}, servers: [{{ port: {{ number: {port}, name: p, protocol: {protocol} }}, \
             hosts: ['*']{tls} }}] }}\n"
        )
    };
    let rule = |name: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{ name: {name}, namespace: test }}\n\
             spec: {{ host: {name}.test, trafficPolicy: {{ tls: {{ mode: ISTIO_MUTUAL }} }} }}\n"
        )
    };
    let at: SocketAddr = ([127, 0, 0, 1], inner).into();
    let mesh = Mesh::start(&[
        (
            "inner.yaml",
            &gateway_object("inner", inner, "HTTPS", ", tls: { mode: ISTIO_MUTUAL }"),
        ),
        ("outer.yaml", &gateway_object("outer", outer, "HTTP", "")),
        ("web.yaml", &service("web", "web", backend.address())),
        ("good.yaml", &service("good", "inner", at)),
        ("other.yaml", &service("other", "somebody", at)),
        ("good-rule.yaml", &rule("good")),
        ("other-rule.yaml", &rule("other")),
        ("a.yaml", &route("good", "inner", "web")),
        ("b.yaml", &route("other", "inner", "web")),
        ("c.yaml", &route("good", "outer", "good")),
        ("d.yaml", &route("other", "outer", "other")),
    ])
    .await?;
    let server = gateway(&mesh, "inner", authority.identity("inner")?).await?;
    let client = gateway(&mesh, "outer", authority.identity("outer")?).await?;
    server.wait_for_listener(([0, 0, 0, 0], inner).into()).await?;
    client.wait_for_listener(([0, 0, 0, 0], outer).into()).await?;
    let address: SocketAddr = ([127, 0, 0, 1], outer).into();
    let answered = || async {
        let answer = http::get(address, "/", &[("host", "good.test")]).await.ok()?;
        Some(()).filter(|()| answer.header("x-version") == "v1")
    };
    if let Err(error) = wait_for("an answer over the mesh's TLS", PATIENCE, answered).await {
        return Err(format!("{error}\nclient: {}\nserver: {}", client.log()?, server.log()?).into());
    }
    // The same server is not who the endpoints of the other service are said to be.
    let before = backend.requests();
    assert_eq!(
        http::get(address, "/", &[("host", "other.test")])
            .await?
            .status
            .as_u16(),
        503
    );
    assert_eq!(backend.requests(), before);
    // Without a certificate of the mesh nobody is let in, nor in plain text.
    let plain = http::get(([127, 0, 0, 1], inner).into(), "/", &[("host", "good.test")]).await;
    assert!(plain.is_err() || plain.is_ok_and(|answer| answer.header("x-version").is_empty()));
    Ok(())
}
