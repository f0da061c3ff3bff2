//! JSON Web Tokens of the issuer in `--jwt-rule`, for workloads without a token of Kubernetes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use ca::caller::{Caller, CallerError, Method};
use config::{KeySet, MeshConfig};
use jwks::token::IssuerKeys;
use jwks::{Guard, Pattern};
use model::jwt::{FETCH_TIMEOUT, KeySource, WantedSource};
use serde::Deserialize;
use server::{Authenticator, Credentials};
use settings::Settings;
use sources::jwks::{Client, Outcomes, follow};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::claims::Claims;
use super::trust_domain;

/// The number of queued updates of the keys.
const QUEUE: usize = 1;

/// The setting: the fields of istiod's `JWT_RULE` that matter.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    issuer: String,
    audiences: Vec<String>,
    #[serde(default, alias = "jwks_uri")]
    jwks_uri: String,
    #[serde(default)]
    jwks: String,
}

impl Rule {
    fn parse(text: &str) -> Result<Rule> {
        let rule: Rule = serde_json::from_str(text).context(
            "--jwt-rule: expected JSON such as {\"issuer\": \"https://issuer.example\", \"audiences\": [\"istio-ca\"], \
             \"jwksUri\": \"https://issuer.example/keys\"}",
        )?;
        ensure!(!rule.issuer.is_empty(), "--jwt-rule: issuer is required");
        ensure!(
            rule.audiences.iter().any(|audience| !audience.is_empty()),
            "--jwt-rule: audiences is required, because a token for another service must not be accepted"
        );
        Ok(rule)
    }

    /// The source of the keys, unless they are inline.
    fn source(&self) -> KeySource {
        match &*self.jwks_uri {
            "" => KeySource::Issuer(self.issuer.as_str().into()),
            uri => KeySource::Uri(uri.into()),
        }
    }
}

/// The keys of the issuer, or the reason why there are none.
type Keys = Result<Arc<IssuerKeys>, String>;

/// Tokens of one issuer.
pub(super) struct Oidc {
    rule: Rule,
    keys: watch::Receiver<Keys>,
    mesh: watch::Receiver<Arc<MeshConfig>>,
}

/// Reads the setting, and starts to fetch the keys of the issuer in `tasks`.
///
/// # Errors
/// The setting cannot be used.
pub(super) fn begin(
    settings: &Settings,
    mesh: watch::Receiver<Arc<MeshConfig>>,
    tasks: &mut JoinSet<()>,
) -> Result<Option<Oidc>> {
    let text = settings.jwt_rule.as_str();
    let roots = settings.jwks_extra_roots.clone();
    (!text.is_empty()).then(|| of_rule(Rule::parse(text)?, roots, mesh, tasks)).transpose()
}

fn of_rule(
    rule: Rule,
    roots: Option<PathBuf>,
    mesh: watch::Receiver<Arc<MeshConfig>>,
    tasks: &mut JoinSet<()>,
) -> Result<Oidc> {
    let inline = (!rule.jwks.is_empty()).then(|| KeySet::fetched(rule.jwks.as_bytes()));
    let inline = inline.transpose().context("--jwt-rule: jwks")?;
    let fetches = inline.is_none();
    let (sender, keys) = watch::channel(inline.as_ref().map(usable).ok_or_else(|| "they are being fetched".to_owned()));
    if fetches {
        tasks.spawn(fetch(rule.source(), client(roots)?, sender));
    }
    Ok(Oidc { rule, keys, mesh })
}

fn usable(set: &KeySet) -> Arc<IssuerKeys> {
    Arc::new(IssuerKeys::from(set))
}

/// The operator chooses the address, so that it may be any.
fn client(roots: Option<PathBuf>) -> Result<Client> {
    let everywhere = ["0.0.0.0/0", "::/0"].map(str::parse::<Pattern>).into_iter().collect::<Result<_, _>>()?;
    Ok(Client::new(Guard { blocked: Vec::new(), allowed: everywhere }, roots))
}

/// Keeps the keys current. The last ones stay in use while the issuer does not answer.
async fn fetch(source: KeySource, client: Client, keys: watch::Sender<Keys>) {
    let wanted = WantedSource { timeout: FETCH_TIMEOUT, namespaces: [Arc::from("")].into() };
    let (_wanted, wanted) = watch::channel(Arc::new(BTreeMap::from([(source, wanted)])));
    let (sender, mut updates) = mpsc::channel(QUEUE);
    let (client, outcomes) = (&client, Arc::new(Outcomes::default()));
    let fetch = move |fetch: jwks::Fetch| async move { client.fetch(&fetch).await };
    let following = follow(wanted, jwks::Settings::default(), fetch, outcomes, sender);
    let handing_over = async {
        while let Some(update) = updates.recv().await {
            for change in update.changes {
                let reason =
                    || change.failure.map_or_else(|| "unknown".to_owned(), |failure| failure.reason.to_string());
                let _ = keys.send_replace(change.keys.as_ref().map(usable).ok_or_else(reason));
            }
        }
    };
    tokio::join!(following, handing_over);
}

#[async_trait]
impl Authenticator for Oidc {
    fn method(&self) -> Method {
        Method::Oidc
    }

    async fn authenticate(&self, credentials: &Credentials) -> Result<Option<Caller>, CallerError> {
        let Some(token) = credentials.bearer() else { return Ok(None) };
        // Tokens of other issuers, and join tokens, are for other methods.
        if Claims::unverified(token).is_none_or(|claims| claims.issuer != self.rule.issuer) {
            return Ok(None);
        }
        let keys = self.keys.borrow().clone();
        self.caller(token, &keys, SystemTime::now()).map(Some)
    }
}

impl Oidc {
    fn caller(&self, token: &str, keys: &Keys, now: SystemTime) -> Result<Caller, CallerError> {
        let invalid = |reason: String| CallerError::Invalid(reason);
        let keys = keys.as_ref().map_err(|why| invalid(format!("the keys of the issuer are not known: {why}")))?;
        let claims = keys.verified(token).map_err(|error| invalid(error.to_string()))?;
        let claims = Claims::of(&claims);
        if !claims.expires() || !claims.is_valid_at(now) {
            return Err(invalid("the token has expired, never expires, or is not valid yet".to_owned()));
        }
        Caller::from_claims(&claims.subject, &claims.audiences, &self.rule.audiences, &trust_domain(&self.mesh))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use serde_json::{Value, json};

    use super::*;

    const ISSUER: &str = "https://issuer.example";

    struct Issuer(EcdsaKeyPair);

    impl Issuer {
        fn new() -> Issuer {
            Issuer(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key"))
        }

        fn jwks(&self) -> String {
            let (x, y) = self.0.public_key().as_ref()[1..].split_at(32);
            let encode = |part: &[u8]| URL_SAFE_NO_PAD.encode(part);
            json!({"keys": [{"kty": "EC", "crv": "P-256", "x": encode(x), "y": encode(y)}]}).to_string()
        }

        fn token(&self, claims: &Value) -> String {
            let [header, claims] = [json!({"alg": "ES256"}), claims.clone()].map(|part| part.to_string());
            let signed = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part)).join(".");
            let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes()).expect("a signature");
            format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
        }
    }

    fn oidc(issuer: &Issuer) -> Oidc {
        let rule = json!({"issuer": ISSUER, "audiences": ["istio-ca"], "jwks": issuer.jwks()}).to_string();
        let mesh = watch::channel(Arc::new(MeshConfig::default())).1;
        of_rule(Rule::parse(&rule).expect("a valid rule"), None, mesh, &mut JoinSet::new()).expect("usable keys")
    }

    #[test]
    fn a_token_proves_the_service_account_of_its_subject() {
        let issuer = Issuer::new();
        let oidc = oidc(&issuer);
        let keys = oidc.keys.borrow().clone();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        let subject = "system:serviceaccount:shop:cart";
        let good = json!({"iss": ISSUER, "sub": subject, "aud": ["istio-ca"], "exp": 2000});
        let caller = oidc.caller(&issuer.token(&good), &keys, now).expect("a caller");
        assert_eq!(caller.identity.to_string(), "spiffe://cluster.local/ns/shop/sa/cart");
        assert_eq!(caller.method, Method::Oidc);
        let with = |name: &str, value: Value| {
            let mut claims = good.clone();
            claims[name] = value;
            claims
        };
        for (claims, part) in [
            (with("exp", json!(999)), "expired"),
            (with("exp", Value::Null), "expired"),
            (with("nbf", json!(1500)), "expired"),
            (with("aud", json!("other")), "audiences"),
            (with("sub", json!("cart")), "not a service account"),
            (with("sub", json!("system:serviceaccount:shop:cart:x")), "not a service account"),
        ] {
            let error = oidc.caller(&issuer.token(&claims), &keys, now).expect_err("refused").to_string();
            assert!(error.contains(part), "{claims}: {error}");
        }
        let forged = Issuer::new().token(&good);
        assert!(oidc.caller(&forged, &keys, now).is_err());
        let unknown = oidc.caller(&issuer.token(&good), &Err("no answer".to_owned()), now).expect_err("refused");
        assert_eq!(unknown.to_string(), "the keys of the issuer are not known: no answer");
    }

    #[test]
    fn a_rule_needs_an_issuer_and_an_audience() {
        let error = |text: &str| Rule::parse(text).expect_err("not valid").to_string();
        assert!(error("{").starts_with("--jwt-rule: expected JSON such as"));
        assert!(error(r#"{"issuer": "a", "audiences": []}"#).contains("audiences is required"));
        assert!(error(r#"{"issuer": "", "audiences": ["a"]}"#).contains("issuer is required"));
        let rule =
            Rule::parse(r#"{"issuer": "https://a/", "audiences": ["a"], "jwks_uri": "https://b"}"#).expect("valid");
        assert_eq!(rule.source(), KeySource::Uri("https://b".into()));
        let rule = Rule::parse(r#"{"issuer": "https://a/", "audiences": ["a"]}"#).expect("valid");
        assert_eq!(rule.source().url(), "https://a/.well-known/openid-configuration");
    }
}
