//! Keeps the webhook configurations of this revision: their CA bundle, and the failure policy of validation.
//!
//! Every replica does this, as in istiod: all have the same roots, and a webhook without a bundle would stop pods.

use std::time::{Duration, SystemTime};

use controllers::{Controller as _, MUTATING, VALIDATING, Watched, WebhookBundles, WebhookNames, Write};
use http::{Request, header};
use kube::Client;
use kube::client::Body;
use names::TrustDomain;
use serde_json::json;
use server::signing::Watched as Signing;
use settings::Settings;
use sources::kubernetes::Seen;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::answer;
use super::controllers::ObjectWriter;
use super::watched::follow;
use crate::leadership::{Outcome, Writer as _};

/// The number of queued events.
const EVENTS: usize = 64;
/// The time between attempts to write, and to have an invalid object refused.
const AGAIN: Duration = Duration::from_secs(3);
/// The field of messages of API servers about objects that a webhook refuses.
const REFUSED: &str = "denied the request";

/// Watches the configurations and writes them, until the task is dropped.
pub(crate) async fn run(client: Client, settings: Settings, mut signing: Signing) {
    let revision = match settings.revision.as_str() {
        "" => "default",
        revision => revision,
    };
    let mut machine = WebhookBundles::new(WebhookNames {
        revision: revision.to_owned(),
        injection: settings.injection_webhook.clone(),
        validation: settings.validation_webhook.clone(),
    });
    let (events, mut seen) = mpsc::channel(EVENTS);
    let mut watches = JoinSet::new();
    for resource in [MUTATING, VALIDATING] {
        watches.spawn(follow(client.clone(), Watched::all(resource), events.clone(), move |seen| (resource, seen)));
    }
    drop(events);
    let writer = ObjectWriter::new(client.clone());
    let mut again = tokio::time::interval(AGAIN);
    machine.bundle(&roots(&signing));
    loop {
        let mut failed = false;
        for write in machine.plan() {
            failed |= !written(&writer, &write).await;
        }
        tokio::select! {
            event = seen.recv() => match event {
                Some((resource, Seen::Applied(object))) => machine.see(resource, &object, true),
                Some((resource, Seen::Deleted(object))) => machine.see(resource, &object, false),
                Some((_, Seen::Synced | Seen::Failing { .. })) => {}
                None => return,
            },
            changed = signing.changed() => {
                if changed.is_err() {
                    return;
                }
                machine.bundle(&roots(&signing));
            }
            _ = again.tick(), if failed || machine.awaits_refusal() => {
                if failed {
                    machine.restart();
                }
                if machine.awaits_refusal() && is_refused(&client, &settings.namespace, revision).await {
                    tracing::info!("the validation webhook refuses invalid objects: it fails closed from now on");
                    machine.refuses(true);
                }
            }
        }
    }
}

/// The roots of the own trust domain.
fn roots(signing: &Signing) -> String {
    let trust = signing.borrow().trust.clone();
    let own: Option<TrustDomain> = trust.domains().into_iter().find(|domain| trust.is_own(domain));
    own.map(|domain| trust.pem(&domain, SystemTime::now())).unwrap_or_default()
}

async fn written(writer: &ObjectWriter, write: &Write) -> bool {
    match writer.write(write).await {
        Outcome::Written => {
            tracing::info!(object = %write.target, "wrote the CA bundle of the webhooks");
            true
        }
        // A newer version is observed soon.
        Outcome::Gone | Outcome::Stale => true,
        Outcome::Retry(error) | Outcome::Refused(error) => {
            tracing::warn!(object = %write.target, error, "cannot write the CA bundle of the webhooks");
            false
        }
    }
}

/// Whether the API server refuses an invalid object because of the validation webhook. Nothing is stored.
async fn is_refused(client: &Client, namespace: &str, revision: &str) -> bool {
    let object = json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "Gateway",
        "metadata": {
            "name": "rutter-validation-test",
            "labels": {"istio.io/rev": revision},
            "annotations": {"internal.istio.io/webhook-always-reject": "true"},
        },
        "spec": {},
    });
    let path = format!("/apis/networking.istio.io/v1/namespaces/{namespace}/gateways?dryRun=All");
    let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
    match answer::ask(client, request.body(Body::from(object.to_string().into_bytes()))).await {
        Ok((status, answer)) => !status.is_success() && answer::message(&answer).contains(REFUSED),
        Err(_) => false,
    }
}
