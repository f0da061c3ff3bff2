use std::collections::BTreeMap;

use ca::join::DEFAULT_LIFETIME;
use http::{HeaderMap, HeaderValue, header};
use serde_json::json;

use super::*;
use crate::file_objects::fresh_store;

const NAMESPACE: &str = "istio-system";

/// Stores the Secret that `rutter token create` writes, and returns the token.
async fn created(store: &Arc<dyn Store>, now: SystemTime) -> JoinToken {
    let (token, record) = JoinToken::create("shop", "cart", DEFAULT_LIFETIME, now).unwrap();
    let name = secret_name(token.id());
    let value = json!({
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"a": "b", LABEL: "true"}},
        "data": {RECORD: STANDARD.encode(serde_json::to_vec(&record).unwrap())},
    });
    let key = Key::new(GroupResource::new("", "secrets"), NAMESPACE, name);
    put(&**store, Operation::Put { key, value, expect: Expect::Absent }).await.unwrap().unwrap();
    token
}

fn tokens(store: &Arc<dyn Store>) -> JoinTokens<StoredSecrets> {
    let (_, mesh) = watch::channel(Arc::new(MeshConfig::default()));
    JoinTokens::new(StoredSecrets::new(store.clone(), NAMESPACE), mesh)
}

fn bearer(token: &str) -> Credentials {
    let mut headers = HeaderMap::new();
    headers.insert(header::AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}")).unwrap());
    Credentials::new(&headers, None, None)
}

async fn join(store: &Arc<dyn Store>, token: &str) -> Result<Option<Caller>, String> {
    tokens(store).authenticate(&bearer(token)).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_token_is_accepted_once_also_after_a_restart() {
    let store = fresh_store();
    let token = created(&store, SystemTime::now()).await;
    let caller = join(&store, &token.expose()).await.unwrap().unwrap();
    assert_eq!(caller.identity.to_string(), "spiffe://cluster.local/ns/shop/sa/cart");
    assert_eq!(caller.method, Method::JoinToken);
    let replayed = join(&store, &token.expose()).await.unwrap_err();
    assert!(replayed.contains("already used"), "{replayed}");
    let key = Key::new(GroupResource::new("", "secrets"), NAMESPACE, secret_name(token.id()));
    let stored = store.get(&key).await.unwrap().unwrap().value();
    assert_eq!(stored["metadata"]["labels"]["a"], "b", "the Secret is kept");
}

#[tokio::test]
async fn of_callers_at_the_same_time_one_succeeds() {
    let store = fresh_store();
    let token = created(&store, SystemTime::now()).await.expose();
    let attempts = (0..8).map(|_| {
        let (store, token) = (store.clone(), token.clone());
        tokio::spawn(async move { join(&store, &token).await })
    });
    let mut accepted = 0;
    for attempt in attempts.collect::<Vec<_>>() {
        match attempt.await.unwrap() {
            Ok(caller) => accepted += usize::from(caller.is_some()),
            Err(error) => assert!(error.contains("already used"), "{error}"),
        }
    }
    assert_eq!(accepted, 1);
}

#[tokio::test]
async fn expired_deleted_and_forged_tokens_are_refused() {
    let store = fresh_store();
    let old = created(&store, SystemTime::now() - DEFAULT_LIFETIME).await;
    assert!(join(&store, &old.expose()).await.unwrap_err().contains("expired"));
    let (unknown, _) = JoinToken::create("shop", "cart", DEFAULT_LIFETIME, SystemTime::now()).unwrap();
    assert!(join(&store, &unknown.expose()).await.unwrap_err().contains("is not valid"));
    let token = created(&store, SystemTime::now()).await;
    let forged = format!("{PREFIX}{}.{}", token.id(), unknown.expose().rsplit('.').next().unwrap());
    assert!(join(&store, &forged).await.unwrap_err().contains("is not valid"));
    assert!(join(&store, &format!("{PREFIX}../secrets.x")).await.is_err());
    assert!(join(&store, &token.expose()).await.unwrap().is_some(), "attempts do not use it up");
}

#[tokio::test]
async fn records_of_tokens_that_expired_long_ago_are_deleted() {
    let (store, now) = (fresh_store(), SystemTime::now());
    let old = created(&store, now - DEFAULT_LIFETIME - SHOWN).await;
    let expired = created(&store, now - DEFAULT_LIFETIME).await;
    let valid = created(&store, now).await;
    let key = Key::new(GroupResource::new("", "secrets"), NAMESPACE, "other");
    let value = json!({"metadata": {"labels": {LABEL: "true"}}, "data": {RECORD: "?"}});
    put(&*store, Operation::Put { key, value, expect: Expect::Absent }).await.unwrap().unwrap();
    let secrets = StoredSecrets::new(store.clone(), NAMESPACE);
    assert_eq!(secrets.remove_over(now).await.unwrap(), 1);
    assert!(secrets.read(&secret_name(old.id())).await.unwrap().is_none());
    for kept in [&expired, &valid] {
        assert!(secrets.read(&secret_name(kept.id())).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn other_credentials_are_left_to_other_methods() {
    let store = fresh_store();
    assert_eq!(join(&store, "eyJhbGciOiJSUzI1NiJ9.e30.x").await, Ok(None));
    assert_eq!(tokens(&store).authenticate(&Credentials::new(&HeaderMap::new(), None, None)).await.unwrap(), None);
}

/// Storage that does not answer.
struct Broken;

impl Secrets for Broken {
    async fn read(&self, _: &str) -> Result<Option<Found>, StorageError> {
        Err(StorageError("gone".to_owned()))
    }

    async fn write(
        &self,
        _: &str,
        _: &BTreeMap<String, Vec<u8>>,
        _: Option<&str>,
    ) -> Result<Option<String>, StorageError> {
        Err(StorageError("gone".to_owned()))
    }
}

#[tokio::test]
async fn nobody_joins_while_the_use_cannot_be_recorded() {
    let (_, mesh) = watch::channel(Arc::new(MeshConfig::default()));
    let (token, _) = JoinToken::create("shop", "cart", DEFAULT_LIFETIME, SystemTime::now()).unwrap();
    let error = JoinTokens::new(Broken, mesh).authenticate(&bearer(&token.expose())).await.unwrap_err().to_string();
    assert_eq!(error, "join tokens cannot be checked: gone");
    assert!(!error.contains(&token.expose()));
}
