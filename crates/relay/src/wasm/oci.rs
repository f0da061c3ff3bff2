//! Images in registries: manifests, layers, and tokens.

use std::fs::File;
use std::io::{self, Seek as _};
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT, AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::client::{Answer, Ask, Client, Sink, authority, failed};
use super::credentials::Credentials;
use super::error::FetchError;
use super::hex;
use super::reference::{Reference, is_digest};

const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// The manifests that are accepted: of images, and of lists of images.
const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json, \
    application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json";
const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";
const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// A layer that is the module itself.
const WASM_LAYER: &str = "application/vnd.module.wasm.content.layer.v1+wasm";

/// An image's manifest.
pub(super) struct Manifest {
    /// The checksum of the manifest.
    pub(super) sha256: String,
    /// The checksum of the list that names the image, if there is one.
    list: Option<String>,
    document: Value,
}

/// The layer with the module.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Layer {
    digest: String,
    /// The layer is a compressed archive with the module; otherwise it is the module.
    pub(super) is_archive: bool,
}

impl Manifest {
    fn parse(bytes: &[u8]) -> Result<Manifest, FetchError> {
        let document =
            serde_json::from_slice(bytes).map_err(|error| FetchError::Image(format!("its manifest: {error}")))?;
        Ok(Manifest { sha256: hex(&Sha256::digest(bytes)), list: None, document })
    }

    /// Whether this is a checksum of the image, or of the list that names it.
    pub(super) fn has_digest(&self, sha256: &str) -> bool {
        self.sha256 == sha256 || self.list.as_deref() == Some(sha256)
    }

    /// The digest of the image for the default platform, if this is a list of images.
    fn image(&self) -> Option<Result<&str, FetchError>> {
        let images = self.document["manifests"].as_array()?;
        let is_default =
            |image: &&Value| image["platform"]["os"] == "linux" && image["platform"]["architecture"] == "amd64";
        let digest = images.iter().find(is_default).or(images.first()).and_then(|image| image["digest"].as_str());
        Some(
            digest
                .filter(|digest| is_digest(digest))
                .ok_or_else(|| FetchError::Image("the list of images is empty".to_owned())),
        )
    }

    /// The layer with the module: the last one of an image, or the one of the module's type.
    pub(super) fn layer(&self) -> Result<Layer, String> {
        let layers = self.document["layers"].as_array().map_or(&[][..], Vec::as_slice);
        let media_type = |layer: &Value| layer["mediaType"].as_str().unwrap_or_default().to_owned();
        let is_docker = self.document["mediaType"] == DOCKER_MANIFEST;
        let last = layers.last().filter(|layer| media_type(layer) == if is_docker { DOCKER_LAYER } else { OCI_LAYER });
        let found = match last {
            Some(layer) => Some((layer, true)),
            None if is_docker => None,
            None => layers
                .iter()
                .find(|layer| media_type(layer) == WASM_LAYER)
                .filter(|_| layers.len() == 2)
                .map(|layer| (layer, false)),
        };
        let (layer, is_archive) = found.ok_or_else(|| {
            let types: Vec<_> = layers.iter().take(8).map(media_type).collect();
            format!("its layers have the types {types:?}")
        })?;
        let digest = layer["digest"].as_str().filter(|digest| is_digest(digest));
        Ok(Layer { digest: digest.ok_or("the digest of its layer is not valid")?.to_owned(), is_archive })
    }
}

/// A repository of a registry.
pub(super) struct Registry<'a> {
    client: &'a Client,
    image: &'a Reference,
    credentials: Credentials,
    session: Mutex<Session>,
}

/// The state that requests to a registry share.
#[derive(Clone, Default)]
struct Session {
    is_plain_text: bool,
    authorization: Option<HeaderValue>,
}

impl<'a> Registry<'a> {
    pub(super) fn new(client: &'a Client, image: &'a Reference, credentials: Credentials) -> Registry<'a> {
        let authorization = match &credentials {
            Credentials::Token(token) => authorization(&format!("Bearer {token}")),
            _ => None,
        };
        Registry { client, image, credentials, session: Mutex::new(Session { is_plain_text: false, authorization }) }
    }

    /// The manifest of the image. Its digest is verified, if the reference has one.
    pub(super) async fn manifest(&self) -> Result<Manifest, FetchError> {
        let first = self.manifest_of(self.image.identifier()).await?;
        match first.image() {
            None => Ok(first),
            Some(digest) => Ok(Manifest { list: Some(first.sha256.clone()), ..self.manifest_of(digest?).await? }),
        }
    }

    async fn manifest_of(&self, identifier: &str) -> Result<Manifest, FetchError> {
        let mut sink = Sink::Memory(Vec::new());
        self.get("manifests", identifier, &mut sink).await?;
        let Sink::Memory(bytes) = sink else { return Err(FetchError::NoUri) };
        let manifest = Manifest::parse(&bytes)?;
        self.verify(identifier, &manifest.sha256)?;
        Ok(manifest)
    }

    /// Writes a layer to a file and verifies its digest.
    pub(super) async fn layer(&self, layer: &Layer, file: &File) -> Result<(), FetchError> {
        self.get("blobs", &layer.digest, &mut Sink::File(file)).await?;
        let mut hash = Sha256::new();
        let mut reader = file;
        reader.rewind()?;
        io::copy(&mut reader, &mut hash)?;
        self.verify(&layer.digest, &hex(&hash.finalize()))
    }

    fn verify(&self, identifier: &str, found: &str) -> Result<(), FetchError> {
        match identifier.strip_prefix("sha256:") {
            Some(expected) if expected != found => Err(FetchError::Checksum {
                url: self.image.name(),
                found: found.to_owned(),
                expected: expected.to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Requests an object. If the registry does not speak TLS, plain HTTP is used from then on.
    async fn get(&self, kind: &str, identifier: &str, sink: &mut Sink<'_>) -> Result<(), FetchError> {
        let (mut answer, mut uri) = match self.send(kind, identifier, sink).await {
            Err(FetchError::PlainText(host)) if self.may_use_plain_text() => {
                tracing::info!(host, "the registry does not speak TLS: plain HTTP is used");
                self.session().is_plain_text = true;
                self.send(kind, identifier, sink).await?
            }
            sent => sent?,
        };
        if answer.status == StatusCode::UNAUTHORIZED {
            let authorization = self.authorize(&answer.headers).await?;
            self.session().authorization = authorization;
            (answer, uri) = self.send(kind, identifier, sink).await?;
        }
        if answer.status.is_success() { Ok(()) } else { Err(failed(&uri, answer.status)) }
    }

    /// Credentials are sent over plain HTTP only if the user accepts it, or in a local network.
    fn may_use_plain_text(&self) -> bool {
        self.credentials == Credentials::Anonymous
            || self.image.is_local()
            || self.client.settings().is_insecure(&self.image.registry)
    }

    async fn send(&self, kind: &str, identifier: &str, sink: &mut Sink<'_>) -> Result<(Answer, Uri), FetchError> {
        let Session { is_plain_text, authorization } = self.session().clone();
        let scheme = if is_plain_text { "http" } else { "https" };
        let Reference { registry, repository, .. } = self.image;
        let url = format!("{scheme}://{registry}/v2/{repository}/{kind}/{identifier}");
        let uri: Uri = url.parse().map_err(|_| FetchError::Url(url))?;
        let mut headers: Vec<(HeaderName, HeaderValue)> = vec![(ACCEPT, HeaderValue::from_static(MANIFESTS))];
        headers.extend(authorization.map(|value| (AUTHORIZATION, value)));
        Ok((self.client.send(&Ask { uri: &uri, headers: &headers, form: None }, sink).await?, uri))
    }

    fn session(&self) -> std::sync::MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The header that the registry asks for.
    async fn authorize(&self, headers: &HeaderMap) -> Result<Option<HeaderValue>, FetchError> {
        let challenges =
            headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| Challenge::parse(value.to_str().ok()?));
        let challenges: Vec<Challenge> = challenges.collect();
        let basic = match &self.credentials {
            Credentials::Basic(name, password) => {
                authorization(&format!("Basic {}", STANDARD.encode(format!("{name}:{password}"))))
            }
            _ => None,
        };
        match challenges.into_iter().find(|challenge| challenge.is_bearer) {
            Some(challenge) => self.token(&challenge, basic).await,
            None => Ok(basic),
        }
    }

    /// Requests a token.
    async fn token(
        &self,
        challenge: &Challenge,
        basic: Option<HeaderValue>,
    ) -> Result<Option<HeaderValue>, FetchError> {
        let realm = || FetchError::Realm(challenge.realm.chars().take(200).collect());
        let base: Uri = challenge.realm.parse().map_err(|_| realm())?;
        let is_own = authority(&base) == self.image.registry;
        let is_safe = base.scheme_str() == Some("https") || self.session().is_plain_text;
        if !is_safe || (!is_own && !may_ask(&base)) {
            return Err(realm());
        }
        let scope = match &*challenge.scope {
            "" => format!("repository:{}:pull", self.image.repository),
            scope => scope.to_owned(),
        };
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let query = format!("service={}&scope={}", encoded(&challenge.service), encoded(&scope));
        let form = match &self.credentials {
            Credentials::Identity(token) => Some(format!(
                "grant_type=refresh_token&client_id=rutter-agent&{query}&refresh_token={}",
                encoded(token)
            )),
            _ => None,
        };
        let uri: Uri = match &form {
            Some(_) => base.clone(),
            None => {
                let separator = if base.query().is_some() { '&' } else { '?' };
                format!("{base}{separator}{query}").parse().map_err(|_| realm())?
            }
        };
        let headers: Vec<_> = basic.map(|value| (AUTHORIZATION, value)).into_iter().collect();
        let mut sink = Sink::Memory(Vec::new());
        let answer = self.client.send(&Ask { uri: &uri, headers: &headers, form }, &mut sink).await?;
        if !answer.status.is_success() {
            return Err(failed(&base, answer.status));
        }
        let Sink::Memory(bytes) = sink else { return Err(realm()) };
        Ok(token_in(&bytes).and_then(|token| authorization(&format!("Bearer {token}"))))
    }
}

fn token_in(bytes: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(bytes).ok()?;
    let token = answer["token"].as_str().filter(|token| !token.is_empty()).or(answer["access_token"].as_str());
    token.map(str::to_owned)
}

fn authorization(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Whether tokens may be requested at a host that the registry names: not at addresses that only this machine or network reaches.
fn may_ask(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default();
    match host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().map(|ip| ip.to_canonical()) {
        Ok(std::net::IpAddr::V4(ip)) => !(ip.is_private() || ip.is_loopback() || ip.is_link_local()),
        Ok(std::net::IpAddr::V6(ip)) => !(ip.is_unique_local() || ip.is_loopback() || ip.is_unicast_link_local()),
        Err(_) => !host.is_empty() && host != "localhost" && host != "metadata.google.internal",
    }
}

/// A challenge of a registry: `Bearer realm="…",service="…",scope="…"`.
#[derive(PartialEq, Eq, Default, Debug)]
struct Challenge {
    is_bearer: bool,
    realm: String,
    service: String,
    scope: String,
}

impl Challenge {
    fn parse(text: &str) -> Option<Challenge> {
        let (scheme, mut rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        let mut challenge = Challenge { is_bearer: scheme.eq_ignore_ascii_case("bearer"), ..Challenge::default() };
        while let Some((name, after)) = rest.split_once('=') {
            let (value, after) = match after.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"')?,
                None => after.split_once(',').unwrap_or((after, "")),
            };
            match name.trim_matches([' ', ',']).to_ascii_lowercase().as_str() {
                "realm" => value.clone_into(&mut challenge.realm),
                "service" => value.clone_into(&mut challenge.service),
                "scope" => value.clone_into(&mut challenge.scope),
                _ => {}
            }
            rest = after;
        }
        Some(challenge)
    }
}

/// Reads a manifest and a challenge, for fuzzing.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    if let Ok(manifest) = Manifest::parse(bytes) {
        let _ = (manifest.layer(), manifest.image());
    }
    let _ = (Challenge::parse(&String::from_utf8_lossy(bytes)), token_in(bytes));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

    #[test]
    fn the_layer_of_each_format_is_found() {
        let digest = |digit: &str| format!("sha256:{}", digit.repeat(64));
        let layer = |media_type: &str, digit: &str| json!({"mediaType": media_type, "digest": digest(digit)});
        for (media_type, layers, expected) in [
            (DOCKER_MANIFEST, vec![layer("x", "0"), layer(DOCKER_LAYER, "1")], Some(("1", true))),
            (DOCKER_MANIFEST, vec![layer(OCI_LAYER, "1")], None),
            (OCI_MANIFEST, vec![layer(OCI_LAYER, "0"), layer(OCI_LAYER, "1")], Some(("1", true))),
            ("", vec![layer("config", "0"), layer(WASM_LAYER, "1")], Some(("1", false))),
            (OCI_MANIFEST, vec![layer(WASM_LAYER, "1")], None),
            (OCI_MANIFEST, vec![], None),
            (OCI_MANIFEST, vec![json!({"mediaType": OCI_LAYER, "digest": "sha256:../x"})], None),
        ] {
            let manifest = json!({"mediaType": media_type, "layers": layers}).to_string();
            let found = Manifest::parse(manifest.as_bytes()).unwrap().layer();
            let expected = expected.map(|(digit, is_archive)| Layer { digest: digest(digit), is_archive });
            assert_eq!(found.ok(), expected, "{manifest}");
        }
    }

    #[test]
    fn challenges_are_parsed() {
        let bearer = r#"Bearer realm="https://a/token?x=y",service="a",scope="repository:b:pull,push",error=x"#;
        let found = Challenge::parse(bearer).unwrap();
        assert_eq!(
            (&*found.realm, &*found.service, &*found.scope),
            ("https://a/token?x=y", "a", "repository:b:pull,push")
        );
        assert!(found.is_bearer && !Challenge::parse("Basic realm=x").unwrap().is_bearer);
        assert_eq!(Challenge::parse(r#"Bearer realm="x"#), None);
    }

    #[test]
    fn tokens_are_not_requested_in_the_private_network() {
        for (text, may) in [
            ("https://auth.docker.io/token", true),
            ("https://8.8.8.8/", true),
            ("https://localhost/", false),
            ("https://127.0.0.1/", false),
            ("https://169.254.169.254/", false),
            ("https://[::1]/", false),
            ("https://[::ffff:10.0.0.1]/", false),
            ("https://metadata.google.internal/", false),
        ] {
            assert_eq!(may_ask(&Uri::from_static(text)), may, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-zA-Z ,=\"\\\\]{0,60}", bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            fuzz(text.as_bytes());
            fuzz(&bytes);
        }
    }
}
