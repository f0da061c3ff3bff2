//! Kubernetes tokens: the API server of the cluster that issued a token reviews it.
//!
//! A token whose own claims show that it will be refused is not sent: this only ever refuses. Results are kept for a few
//! seconds, because an agent requests certificates and streams with the same token, and rejections too. Each cluster has its
//! own limit of reviews, so that one that does not answer delays only its own workloads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use aws_lc_rs::digest::{SHA256, digest};
use ca::caller::{Caller, CallerError, Method, ReviewedToken};
use config::MeshConfig;
use kube::Client;
use serde::Deserialize;
use serde_json::json;
use server::{Authenticator, Credentials};
use tokio::sync::{Semaphore, watch};

use super::claims::Claims;
use super::trust_domain;
use crate::kubernetes::Ways;

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// The time in which an API server must answer, including the wait for a place.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How long an accepted token stays accepted, and a rejected one rejected, without another review. A token of a deleted pod is
/// accepted for this long.
const KEPT: Duration = Duration::from_secs(10);
/// The number of kept results.
const MAX_KEPT: usize = 20_000;
/// The number of reviews of one cluster at the same time.
const TOGETHER: usize = 32;

/// Kubernetes tokens of the home cluster and of other clusters.
pub(crate) struct Reviews {
    home: Client,
    home_id: Arc<str>,
    others: watch::Receiver<Ways>,
    audiences: Vec<String>,
    mesh: watch::Receiver<Arc<MeshConfig>>,
    kept: Mutex<HashMap<Key, Kept>>,
    /// The places for reviews, by cluster.
    places: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
}

/// The digest of a cluster and a token: tokens are not kept.
type Key = [u8; 32];

struct Kept {
    until: Instant,
    review: Result<ReviewedToken, CallerError>,
}

#[derive(Default, Deserialize)]
struct Review {
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    authenticated: bool,
    error: String,
    audiences: Vec<String>,
    user: User,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
    groups: Vec<String>,
    extra: HashMap<String, Vec<String>>,
}

impl Reviews {
    pub(crate) fn new(
        home: Client,
        home_id: Arc<str>,
        others: watch::Receiver<Ways>,
        audiences: Vec<String>,
        mesh: watch::Receiver<Arc<MeshConfig>>,
    ) -> Reviews {
        let (kept, places) = (Mutex::default(), Mutex::default());
        Reviews { home, home_id, others, audiences, mesh, kept, places }
    }

    /// The client of a cluster, and its ID; empty is the home cluster.
    fn client(&self, cluster: &str) -> Result<(Client, Arc<str>), CallerError> {
        if cluster.is_empty() || *cluster == *self.home_id {
            return Ok((self.home.clone(), self.home_id.clone()));
        }
        let others = self.others.borrow();
        let found = others.get_key_value(cluster).map(|(id, way)| (way.client.clone(), id.clone()));
        found.ok_or_else(|| {
            let shown: String = cluster.chars().take(100).collect();
            CallerError::Invalid(format!("the cluster {shown:?} is not known (the header clusterid names it)"))
        })
    }

    fn place(&self, cluster: &Arc<str>) -> Arc<Semaphore> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.entry(cluster.clone()).or_insert_with(|| Arc::new(Semaphore::new(TOGETHER))).clone()
    }

    async fn review(&self, client: Client, cluster: &Arc<str>, token: &str) -> Result<ReviewedToken, String> {
        let asked = async {
            let place = self.place(cluster);
            let _place = place.acquire().await.map_err(|error| error.to_string())?;
            let review = json!({
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenReview",
                "spec": {"token": token, "audiences": self.audiences},
            });
            let request = http::Request::post(PATH).header("content-type", "application/json");
            let request = request.body(review.to_string().into_bytes()).map_err(|error| error.to_string())?;
            client.request::<Review>(request).await.map_err(|error| error.to_string())
        };
        let Status { authenticated, error, audiences, mut user } =
            match tokio::time::timeout(ANSWER_WITHIN, asked).await {
                Ok(reviewed) => reviewed?.status,
                Err(_) => return Err(format!("no answer within {ANSWER_WITHIN:?}")),
            };
        let mut first = |name: &str| user.extra.remove(name)?.into_iter().next();
        let (pod_name, pod_uid) =
            (first("authentication.kubernetes.io/pod-name"), first("authentication.kubernetes.io/pod-uid"));
        let (username, groups) = (user.username, user.groups);
        Ok(ReviewedToken { authenticated, error, audiences, username, groups, pod_name, pod_uid })
    }

    fn kept(&self, key: &Key) -> Option<Result<ReviewedToken, CallerError>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(key).filter(|kept| kept.until > Instant::now()).map(|kept| kept.review.clone())
    }

    fn keep(&self, key: Key, review: Result<ReviewedToken, CallerError>) {
        let now = Instant::now();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_KEPT {
            kept.retain(|_, kept| kept.until > now);
        }
        if kept.len() < MAX_KEPT {
            kept.insert(key, Kept { until: now + KEPT, review });
        }
    }
}

#[async_trait]
impl Authenticator for Reviews {
    fn method(&self) -> Method {
        Method::KubernetesToken
    }

    async fn authenticate(&self, credentials: &Credentials) -> Result<Option<Caller>, CallerError> {
        let Some(token) = credentials.bearer().filter(|token| !token.starts_with(ca::join::PREFIX)) else {
            return Ok(None);
        };
        check(token, &self.audiences, SystemTime::now())?;
        let (client, cluster) = self.client(credentials.cluster())?;
        let key = key(&cluster, token);
        let review = match self.kept(&key) {
            Some(review) => review,
            None => match self.review(client, &cluster, token).await {
                Ok(reviewed) => {
                    self.keep(key, Ok(reviewed.clone()));
                    Ok(reviewed)
                }
                Err(error) => {
                    tracing::warn!(%cluster, error, "cannot review a token");
                    return Err(CallerError::Invalid(format!("the API server of {cluster} cannot be asked: {error}")));
                }
            },
        };
        Caller::from_token(&review?, &self.audiences, &trust_domain(&self.mesh)).map(Some)
    }
}

fn key(cluster: &str, token: &str) -> Key {
    let text = [cluster.as_bytes(), &[0], token.as_bytes()].concat();
    let mut key = Key::default();
    key.copy_from_slice(digest(&SHA256, &text).as_ref());
    key
}

/// Refuses tokens that the API server would refuse, by what they claim.
fn check(token: &str, audiences: &[String], now: SystemTime) -> Result<(), CallerError> {
    let claims = Claims::unverified(token).ok_or_else(|| CallerError::Invalid("the token is not a JWT".to_owned()))?;
    if !claims.is_valid_at(now) {
        return Err(CallerError::Invalid("the token has expired, or is not valid yet".to_owned()));
    }
    if !audiences.is_empty() && !claims.audiences.iter().any(|audience| audiences.contains(audience)) {
        let found = claims.audiences.into_iter().take(10).map(|audience| audience.chars().take(100).collect());
        return Err(CallerError::Audience { found: found.collect(), expected: audiences.to_vec() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    fn token(claims: &serde_json::Value) -> String {
        format!("{}.{}.c2ln", URL_SAFE_NO_PAD.encode("{}"), URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    #[test]
    fn tokens_that_would_be_refused_are_not_sent() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        let audiences = ["istio-ca".to_owned()];
        let checked = |claims: serde_json::Value| check(&token(&claims), &audiences, now);
        assert_eq!(checked(json!({"aud": ["a", "istio-ca"], "exp": 2000})), Ok(()));
        assert_eq!(checked(json!({"aud": "istio-ca"})), Ok(()));
        for (claims, part) in [
            (json!({"aud": ["a"], "exp": 2000}), "audiences"),
            (json!({"exp": 2000}), "audiences"),
            (json!({"aud": "istio-ca", "exp": 999}), "expired"),
            (json!({"aud": "istio-ca", "nbf": 1100}), "expired"),
            (json!([]), "not a JWT"),
        ] {
            let error = checked(claims.clone()).expect_err("refused").to_string();
            assert!(error.contains(part), "{claims}: {error}");
        }
        for text in ["", "a", "a.b.c", "..", "rutter-join.a.b"] {
            assert!(check(text, &audiences, now).is_err(), "{text}");
        }
    }

    #[test]
    fn results_belong_to_a_cluster_and_a_token() {
        assert_ne!(key("a", "bc"), key("ab", "c"));
        assert_eq!(key("a", "b"), key("a", "b"));
    }
}
