//! The steps of the demo about security: workloads with certificates of Rutter's own authority, and a service that accepts
//! mutual TLS only, one caller only, and requests with a token only.
//!
//! Both demonstrations show them: [`Place`] is where the workloads run.

mod here;
pub(crate) mod objects;

use std::time::Duration;

use serde_json::{Value, json};
use test_agent::issuer::{SigningKey, key_set, now};
use test_harness::run::{Result, http, wait_for};

pub(crate) use here::run;
use objects::{BANK, ISSUER};

use crate::config::Manifest;
use crate::promises::Promises;
use crate::screen::Screen;

const PATIENCE: Duration = Duration::from_secs(60);

/// The sender of a request to the ledger.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A workload with a certificate.
    Teller,
    /// Another one.
    Visitor,
    /// A program without a sidecar, which calls the ledger's sidecar in plain text.
    Stranger,
}

/// The place in which the ledger and its callers run.
pub(crate) trait Place {
    /// Applies an object. Returns the equivalent `kubectl` command, without the program name.
    async fn apply(&self, manifest: &Manifest) -> Result<String>;
    /// Sends one request to the ledger, with a token if there is one.
    async fn ask(&self, caller: Caller, token: Option<&str>) -> Answer;
}

/// The answer to one request.
#[derive(Clone)]
pub(crate) struct Answer {
    /// 0 without an answer.
    pub(crate) status: u16,
    /// The caller's certificate as the ledger's sidecar has verified it (`x-forwarded-client-cert`); empty without one.
    certificate: String,
    /// The body, or the error.
    text: String,
}

impl Answer {
    /// The answer of the ledger, or of a proxy.
    pub(crate) fn new(status: u16, headers: &Value, text: &str) -> Answer {
        let certificate = headers["x-forwarded-client-cert"].as_str().unwrap_or_default().to_owned();
        Answer { status, certificate, text: text.trim().to_owned() }
    }

    /// The result of a request from this machine.
    pub(crate) fn read(answer: Result<http::Response>) -> Answer {
        match answer {
            Ok(answer) => {
                let body: Value = answer.json().unwrap_or_default();
                Answer::new(answer.status.as_u16(), &body["headers"], &answer.text())
            }
            Err(error) => Answer::new(0, &Value::Null, &error.to_string()),
        }
    }

    /// The verified identity of the caller.
    fn identity(&self) -> &str {
        self.part("URI=").unwrap_or("nobody")
    }

    fn part(&self, name: &str) -> Option<&str> {
        self.certificate.split([';', ',']).find_map(|part| part.strip_prefix(name))
    }

    /// The status, and the reason if it is not 200.
    fn shown(&self) -> String {
        match self.status {
            0 => format!("no answer ({})", self.text),
            200 => "200".to_owned(),
            status => format!("{status} ({})", self.text),
        }
    }
}

/// The steps.
pub(crate) struct Bank<'a, P> {
    pub(crate) place: &'a P,
    pub(crate) screen: &'a mut Screen,
    pub(crate) promises: &'a mut Promises,
    /// The number of the next step.
    pub(crate) step: u32,
}

impl<P: Place> Bank<'_, P> {
    /// Runs all steps. The workloads have joined.
    pub(crate) async fn run(&mut self) -> Result<()> {
        self.mutual_tls().await;
        self.strict().await?;
        self.denial().await?;
        self.tokens().await
    }

    /// Shows that both callers prove who they are.
    async fn mutual_tls(&mut self) {
        for (name, caller) in [("teller", Caller::Teller), ("visitor", Caller::Visitor)] {
            let verified = |answer: &Answer| answer.status == 200 && !answer.certificate.is_empty();
            let answer = self.observed(caller, None, verified).await;
            self.screen.say(&format!("     {name} calls the ledger: {}", answer.shown()));
            self.screen.say(&format!("     the ledger's sidecar has verified the caller as {}", answer.identity()));
            let identity = |name: &str| format!("spiffe://cluster.local/ns/{BANK}/sa/{name}");
            let held =
                answer.identity() == identity(name) && answer.part("By=").is_some_and(|by| by == identity("ledger"));
            self.promises.check(
                answer.status == 200 && held,
                format!("mutual TLS between sidecars: the ledger was called by {}", answer.identity()),
            );
        }
    }

    /// Shows that plain text is refused once the ledger is strict, and mutual TLS is not.
    async fn strict(&mut self) -> Result<()> {
        self.begin("the bank accepts mutual TLS only");
        let before = self.observed(Caller::Stranger, None, |answer| answer.status == 200).await;
        self.screen.say(&format!("     a stranger calls the ledger's sidecar in plain text: {}", before.shown()));
        self.apply(&objects::strict()).await?;
        let after = self.observed(Caller::Stranger, None, |answer| answer.status == 0).await;
        let teller = self.place.ask(Caller::Teller, None).await;
        self.screen.say(&format!("     the stranger: {}", after.shown()));
        self.screen.say(&format!("     teller: {}", teller.shown()));
        let refusal = if after.status == 0 { "was refused".to_owned() } else { format!("got {}", after.status) };
        self.promises.check(
            before.status == 200 && before.certificate.is_empty() && after.status == 0 && teller.status == 200,
            format!(
                "STRICT: plain text got {} before, and {refusal} then; teller over mutual TLS got {}",
                before.status, teller.status
            ),
        );
        Ok(())
    }

    /// Shows that a policy denies one of two callers.
    async fn denial(&mut self) -> Result<()> {
        self.begin("only teller may call the ledger");
        let before = self.observed(Caller::Visitor, None, |answer| answer.status == 200).await;
        self.apply(&objects::allow("teller", false)).await?;
        let denied = self.observed(Caller::Visitor, None, |answer| answer.status == 403).await;
        let allowed = self.observed(Caller::Teller, None, |answer| answer.status == 200).await;
        let (visitor, teller) = (before.identity(), allowed.identity());
        self.screen.say(&format!("     {visitor} (before: {}): {}", before.status, denied.shown()));
        self.screen.say(&format!("     {teller}: {}", allowed.shown()));
        let held = before.status == 200 && denied.status == 403 && denied.text.contains("RBAC: access denied");
        self.promises.check(
            held && allowed.status == 200,
            format!("denied: {visitor} got {}; allowed: {teller} got {}", denied.status, allowed.status),
        );
        Ok(())
    }

    /// Shows which tokens are accepted.
    async fn tokens(&mut self) -> Result<()> {
        self.begin("and only with a token");
        let (key, foreign) = (SigningKey::new("one")?, SigningKey::new("one")?);
        self.apply(&objects::tokens(&key_set(&[&key]))).await?;
        self.apply(&objects::allow("teller", true)).await?;
        let without = self.observed(Caller::Teller, None, |answer| answer.status == 403).await;
        let good = key.sign(&claims(ISSUER, now()? + 600))?;
        let good = self.observed(Caller::Teller, Some(&good), |answer| answer.status == 200).await;
        let mut seen = vec![("no token", without, 403), ("a good token", good, 200)];
        for (what, token) in [
            ("an expired token", key.sign(&claims(ISSUER, now()? - 3600))?),
            ("a token of another issuer", key.sign(&claims("https://other.example", now()? + 600))?),
            ("a token with a forged signature", foreign.sign(&claims(ISSUER, now()? + 600))?),
        ] {
            // Another worker thread of a sidecar may still have a connection to the old, draining listener.
            seen.push((what, self.observed(Caller::Teller, Some(&token), |answer| answer.status == 401).await, 401));
        }
        for (what, answer, _) in &seen {
            self.screen.say(&format!("     teller with {what}: {}", answer.shown()));
        }
        let list: Vec<String> = seen.iter().map(|(what, answer, _)| format!("{what} {}", answer.status)).collect();
        let held = seen.iter().all(|(_, answer, wanted)| answer.status == *wanted);
        self.promises.check(held, format!("tokens: {}", list.join(", ")));
        Ok(())
    }

    /// Shows the title of the next step.
    pub(crate) fn begin(&mut self, text: &str) {
        self.screen.say(&format!("\n  {}  {text}", self.step));
        self.step += 1;
    }

    async fn apply(&mut self, manifest: &Manifest) -> Result<()> {
        let command = self.place.apply(manifest).await?;
        self.screen.say(&format!("     $ kubectl {command}"));
        Ok(())
    }

    /// Asks until the answer is as expected, for a limited time. Returns the last answer, whatever it is.
    async fn observed(&self, caller: Caller, token: Option<&str>, expected: impl Fn(&Answer) -> bool) -> Answer {
        let reached = || async { Some(self.place.ask(caller, token).await).filter(&expected) };
        match wait_for("the answer", PATIENCE, reached).await {
            Ok(answer) => answer,
            Err(_) => self.place.ask(caller, token).await,
        }
    }
}

fn claims(issuer: &str, expires: u64) -> Value {
    json!({"iss": issuer, "sub": "alice", "aud": "ledger", "exp": expires})
}
