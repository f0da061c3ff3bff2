//! Asks whether service accounts may list the Secrets of their namespaces (SubjectAccessReview).
//!
//! The world names the accounts of connected proxies ([`WorldHandle::wanted_readers`]). The API of the account's cluster is
//! asked, and the answer enters the world as data. An account without an answer is not allowed. Answers are asked for again
//! when they get old; while the API does not answer, a permission stays for [`GRACE`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode, header};
use kube::Client;
use kube::client::Body;
use model::audience::Account;
use serde_json::{Value, json};
use server::WorldHandle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use world::Batch;

use super::answer;
use super::clusters::Ways;

/// How long answers are valid, as with istiod: a new permission is noticed sooner than a revoked one.
const ALLOWED_FOR: Duration = Duration::from_secs(300);
const DENIED_FOR: Duration = Duration::from_secs(60);
/// How long a permission outlives its validity while the API does not answer.
const GRACE: Duration = Duration::from_secs(3600);
/// The first and the longest delay before the next attempt after a failure.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// The time limit of one request.
const ANSWER: Duration = Duration::from_secs(10);
/// The number of concurrent requests.
const CONCURRENCY: usize = 8;
/// The number of known accounts. Further ones are not allowed.
const MOST: usize = 10_000;

/// Asks about the accounts until the control plane ends. `home` is the configuration cluster.
pub(super) async fn run(pilot: WorldHandle, home: Client, mut ways: watch::Receiver<Ways>) {
    let mut wanted = pilot.wanted_readers();
    let mut reviews = Reviews::default();
    let mut asking = JoinSet::new();
    loop {
        let now = Instant::now();
        let mut changes = reviews.want(&wanted.borrow_and_update().clone(), now);
        for account in reviews.take_due(now, CONCURRENCY.saturating_sub(asking.len())) {
            let client = match account.cluster.is_empty() {
                true => Some(home.clone()),
                false => ways.borrow().get(&account.cluster).map(|way| way.client.clone()),
            };
            asking.spawn(async move {
                let answer = ask(client, &account).await;
                (account, answer)
            });
        }
        let next = reviews.next().filter(|_| asking.len() < CONCURRENCY);
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() {
                return;
            },
            Some(Ok((account, answer))) = asking.join_next() => {
                changes.extend(reviews.answer(account, answer, Instant::now()));
            }
            Ok(()) = ways.changed() => reviews.retry_remote(Instant::now()),
            () = async { tokio::time::sleep_until(next.unwrap_or(now)).await }, if next.is_some() => {}
        }
        let mut batch = Batch::new();
        changes.into_iter().for_each(|(account, allowed)| batch.set_secret_reader(account, allowed));
        if !batch.is_empty() && pilot.commit(batch).await.is_err() {
            return;
        }
    }
}

/// Asks the API of a cluster.
///
/// # Errors
/// There is no answer, for this reason.
async fn ask(client: Option<Client>, account: &Account) -> Result<bool, String> {
    let client = client.ok_or("there is no connection to the cluster")?;
    let request = Request::post("/apis/authorization.k8s.io/v1/subjectaccessreviews")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(review(account).to_string().into_bytes()));
    let answered = tokio::time::timeout(ANSWER, answer::ask(&client, request)).await;
    match answered.map_err(|_| format!("no answer within {ANSWER:?}"))? {
        Ok((status, answer)) if status.is_success() => allowed(&answer),
        Ok((StatusCode::FORBIDDEN, answer)) => Err(format!(
            "{}; grant the control plane `create` of subjectaccessreviews.authorization.k8s.io",
            answer::message(&answer)
        )),
        Ok((status, answer)) => Err(format!("{status}: {}", answer::message(&answer))),
        Err(outcome) => Err(format!("{outcome:?}")),
    }
}

/// The question for a service account, with the groups that its tokens have.
fn review(account: &Account) -> Value {
    let Account { namespace, name, .. } = account;
    let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}"), "system:authenticated"];
    json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": format!("system:serviceaccount:{namespace}:{name}"),
            "groups": groups,
            "resourceAttributes": {"namespace": &**namespace, "verb": "list", "version": "v1", "resource": "secrets"},
        },
    })
}

/// The verdict of an answer. Only an explicit permission counts.
fn allowed(answer: &Value) -> Result<bool, String> {
    let status = &answer["status"];
    let allowed = status["allowed"].as_bool().ok_or("the answer has no verdict")?;
    match status["evaluationError"].as_str().filter(|error| !error.is_empty()) {
        Some(error) if !allowed => Err(error.to_owned()),
        _ => Ok(allowed && status["denied"] != true),
    }
}

/// The reviews of the accounts.
#[derive(Default)]
struct Reviews {
    known: BTreeMap<Account, Review>,
    /// Whether it was logged that there are too many accounts.
    full: bool,
}

struct Review {
    /// The last answer and its time.
    answer: Option<(bool, Instant)>,
    /// When to ask, or to ask again.
    due: Instant,
    /// Failed attempts since the last answer.
    failures: u32,
    /// Connected proxies need it. If not, it is forgotten when it is due.
    wanted: bool,
}

/// A change: whether an account is allowed.
type Change = (Account, bool);

impl Reviews {
    /// Sets the accounts of connected proxies, and forgets old answers for others. Returns the changes.
    fn want(&mut self, wanted: &Arc<BTreeSet<Account>>, now: Instant) -> Vec<Change> {
        for (account, review) in &mut self.known {
            review.wanted = wanted.contains(account);
        }
        let mut changes = Vec::new();
        self.known.retain(|account, review| {
            let keeps = review.wanted || review.due > now;
            if !keeps && review.is_allowed() {
                changes.push((account.clone(), false));
            }
            keeps
        });
        for account in wanted.iter().filter(|account| !account.name.is_empty()) {
            if self.known.contains_key(account) {
                continue;
            }
            if self.known.len() >= MOST {
                if !std::mem::replace(&mut self.full, true) {
                    tracing::error!("more than {MOST} service accounts of proxies need Secrets; further ones get none");
                }
                break;
            }
            let review = Review { answer: None, due: now, failures: 0, wanted: true };
            self.known.insert(account.clone(), review);
        }
        changes
    }

    /// The accounts to ask about now, at most `room`. They are due again if no answer follows.
    fn take_due(&mut self, now: Instant, room: usize) -> Vec<Account> {
        let due = self.known.iter_mut().filter(|(_, review)| review.wanted && review.due <= now).take(room);
        let taken = due.map(|(account, review)| {
            review.due = now + ANSWER * 2;
            account.clone()
        });
        taken.collect()
    }

    /// The time at which something is due.
    fn next(&self) -> Option<Instant> {
        self.known.values().map(|review| review.due).min()
    }

    /// Accounts of other clusters whose review failed are due, because a connection changed.
    fn retry_remote(&mut self, now: Instant) {
        let failing =
            self.known.iter_mut().filter(|(account, review)| !account.cluster.is_empty() && review.failures > 0);
        failing.for_each(|(_, review)| review.due = now);
    }

    /// Records an answer. Returns the change, if there is one.
    fn answer(&mut self, account: Account, answer: Result<bool, String>, now: Instant) -> Option<Change> {
        let review = self.known.get_mut(&account)?;
        let before = review.is_allowed();
        match answer {
            Ok(allowed) => {
                if !allowed && review.answer.is_none_or(|(before, _)| before) {
                    let Account { cluster, namespace, name } = &account;
                    tracing::warn!(
                        %cluster, %namespace, service_account = %name,
                        "the service account may not list secrets: its proxies get none; bind it to a Role that allows it"
                    );
                }
                *review = Review {
                    answer: Some((allowed, now)),
                    due: now + if allowed { ALLOWED_FOR } else { DENIED_FOR },
                    failures: 0,
                    wanted: review.wanted,
                };
            }
            Err(error) => {
                if review.failures == 0 {
                    let Account { cluster, namespace, name } = &account;
                    tracing::warn!(
                        %cluster, %namespace, service_account = %name, %error,
                        "cannot ask whether a service account may list secrets"
                    );
                }
                let delay = RETRY.0 * 2u32.saturating_pow(review.failures.min(10));
                review.due = now + delay.min(RETRY.1);
                review.failures = review.failures.saturating_add(1);
                let expired = |(_, at): &(bool, Instant)| *at + ALLOWED_FOR + GRACE <= now;
                review.answer = review.answer.take_if(|answer| !expired(answer));
            }
        }
        let after = review.is_allowed();
        (before != after).then_some((account, after))
    }
}

impl Review {
    fn is_allowed(&self) -> bool {
        self.answer.is_some_and(|(allowed, _)| allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(name: &str) -> Account {
        Account { cluster: Arc::default(), namespace: "shop".into(), name: name.into() }
    }

    fn all(names: &[&str]) -> Arc<BTreeSet<Account>> {
        Arc::new(names.iter().map(|name| account(name)).collect())
    }

    #[test]
    fn an_account_is_allowed_from_the_answer_until_a_denial_or_a_long_silence() {
        let start = Instant::now();
        let mut reviews = Reviews::default();
        assert_eq!(reviews.want(&all(&["edge", ""]), start), []);
        assert_eq!(reviews.take_due(start, 8), [account("edge")], "an account without a name is nobody's");
        assert_eq!(reviews.take_due(start, 8), [], "it is being asked about");
        assert_eq!(reviews.answer(account("edge"), Ok(true), start), Some((account("edge"), true)));
        let later = start + ALLOWED_FOR;
        assert_eq!(reviews.take_due(later - Duration::from_secs(1), 8), []);
        assert_eq!(reviews.take_due(later, 8), [account("edge")]);
        assert_eq!(reviews.answer(account("edge"), Err("down".into()), later), None, "the permission stays");
        assert_eq!(reviews.take_due(later + RETRY.0, 8), [account("edge")]);
        assert_eq!(reviews.answer(account("edge"), Ok(false), later), Some((account("edge"), false)));
        assert_eq!(reviews.take_due(later + DENIED_FOR, 8), [account("edge")]);
        assert_eq!(reviews.answer(account("edge"), Ok(true), later), Some((account("edge"), true)));
        let silent = later + ALLOWED_FOR + GRACE;
        assert_eq!(reviews.answer(account("edge"), Err("down".into()), silent), Some((account("edge"), false)));
    }

    #[test]
    fn answers_of_nobody_are_forgotten_when_they_are_due_and_requests_are_limited() {
        let start = Instant::now();
        let mut reviews = Reviews::default();
        reviews.want(&all(&["a", "b", "c"]), start);
        assert_eq!(reviews.take_due(start, 2).len(), 2);
        reviews.answer(account("a"), Ok(true), start);
        assert_eq!(reviews.want(&all(&[]), start), [], "a proxy that reconnects finds the answer");
        assert_eq!(reviews.want(&all(&[]), start + ALLOWED_FOR), [(account("a"), false)]);
        assert!(reviews.known.is_empty());
        assert_eq!(reviews.answer(account("a"), Ok(true), start), None, "a late answer is not used");
        let many: BTreeSet<Account> = (0..MOST + 5).map(|n| account(&format!("n{n}"))).collect();
        reviews.want(&Arc::new(many), start);
        assert_eq!(reviews.known.len(), MOST);
    }

    #[test]
    fn only_an_explicit_permission_counts() {
        let verdict = |status: Value| allowed(&json!({"status": status}));
        assert_eq!(verdict(json!({"allowed": true})), Ok(true));
        assert_eq!(verdict(json!({"allowed": true, "denied": true})), Ok(false));
        assert_eq!(verdict(json!({"allowed": false})), Ok(false));
        assert!(verdict(json!({"allowed": false, "evaluationError": "webhook down"})).is_err());
        for unclear in [json!({}), json!({"allowed": "true"}), Value::Null] {
            assert!(verdict(unclear.clone()).is_err(), "{unclear}");
        }
        let asked = review(&account("edge"));
        assert_eq!(asked["spec"]["user"], "system:serviceaccount:shop:edge");
        assert_eq!(asked["spec"]["resourceAttributes"]["verb"], "list");
    }
}
