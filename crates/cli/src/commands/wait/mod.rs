//! `rutter wait`: waits until objects reach a goal or cannot reach it.
//!
//! Each object has its own watch task, which reports its state over a channel to one loop.

mod gateway_api;
mod goal;

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use clap::{ArgMatches, Command};
use futures::StreamExt;
use kube::core::{Status, WatchEvent};
use serde_json::Value as Json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub(crate) use goal::Goal;
use goal::{State, judge, pending};

use crate::failure::{FAILURE, SUCCESS, StatusError, TimedOut, Unreachable, usage};
use crate::flags::{self, option};
use crate::io::Io;
use crate::server::{self, Kind, Request, Server, is_expired};
use crate::style;
use crate::targets::{self, Target};

/// The delay before a watch that ended is opened again.
const PAUSE: Duration = Duration::from_millis(500);
/// The time that a reference may take to resolve: the object it names may have been written at the same moment.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn command() -> Command {
    let command = Command::new("wait")
        .about("Wait until proxies have acknowledged objects, or for another goal")
        .after_help(
            "Exit codes: 0 goal reached; 1 an object was rejected, deleted or not found, is not implemented, or has a \
             reference that does not resolve; 3 timeout.\n\n\
             Examples:\n  rutter wait virtualservice/reviews --for=proxies=100%\n  \
             rutter wait vs --all --for=condition=Programmed --timeout 2m\n  rutter wait vs/reviews --for=delete\n  \
             rutter wait gateway/a --for=jsonpath='{.status.addresses[0].value}'",
        )
        .arg(
            option(
                "for",
                "GOAL",
                "Goal: proxies=N%, condition=NAME[=STATUS], jsonpath='{.a.b}'[=VALUE], delete or create",
            )
            .value_parser(Goal::parse)
            .default_value("proxies=100%"),
        )
        .arg(flags::timeout());
    server::arguments(targets::arguments(command))
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let goal = matches.get_one::<Goal>("for").cloned().unwrap_or(Goal::Proxies(100.0));
    let timeout = matches.get_one::<Duration>("timeout").copied().unwrap_or_default();
    let server = Server::connect(matches, io).await?;
    let catalog = server.catalog().await?;
    let targets = targets::all(matches, &server, &catalog, io).await?;
    if let (Goal::Proxies(_), Some(other)) = (&goal, targets.iter().find(|target| !is_reported(&target.kind))) {
        return Err(usage(format!(
            "{}: proxies are not counted for kind {}: use --for=condition=…, jsonpath=…, delete or create",
            other.label(),
            other.kind.kind
        )));
    }
    let is_whole = !matches!(goal, Goal::Proxies(share) if share < 100.0);
    if let Some(other) = targets.iter().find(|target| !is_whole && gateway_api::has(&target.kind.group)) {
        return Err(usage(format!(
            "{}: the status of kind {} has no number of proxies: use --for=condition=Programmed",
            other.label(),
            other.kind.kind
        )));
    }
    ensure!(!targets.is_empty() || goal == Goal::Deleted, "no matching resources found");
    until(&server, targets, goal, timeout, io).await
}

/// Whether the status of the kind's objects says whether proxies have acknowledged them.
pub(crate) fn is_reported(kind: &Kind) -> bool {
    kind.group.ends_with(".istio.io") || gateway_api::has(&kind.group) && kind.kind != "ReferenceGrant"
}

/// Waits until all objects reach the goal, one cannot reach it, or the timeout expires.
pub(crate) async fn until(
    server: &Server,
    targets: Vec<Target>,
    goal: Goal,
    timeout: Duration,
    io: &mut Io,
) -> Result<u8> {
    let (sender, mut news) = mpsc::channel(64);
    let mut tasks = JoinSet::new();
    for (index, target) in targets.iter().enumerate() {
        let watch = ObjectWatch {
            server: server.clone(),
            target: target.clone(),
            goal: goal.clone(),
            uid: None,
            seen: false,
            answered: false,
        };
        let sender = sender.clone();
        tasks.spawn(async move {
            if let Err(error) = watch.run(index, &sender).await {
                let _ = sender.send((index, Err(error))).await;
            }
        });
    }
    drop(sender);
    let mut open = Open::new(&targets);
    let all = watch_all(&mut open, &mut news, io);
    // Dropping the set aborts the tasks.
    match tokio::time::timeout(timeout, all).await {
        Ok(code) => code,
        Err(_) => Err(TimedOut(open.describe(&goal)).into()),
    }
}

async fn watch_all(open: &mut Open, news: &mut mpsc::Receiver<(usize, Result<State>)>, io: &mut Io) -> Result<u8> {
    let mut unresolved = Unresolved::default();
    while !open.0.is_empty() {
        let received = tokio::select! {
            received = news.recv() => received,
            (label, why) = unresolved.expired(open) => {
                io.eprint(format!("error: {label}: {}", style::printable(&why, false)));
                return Ok(FAILURE);
            }
        };
        let Some((index, state)) = received else {
            return Err(anyhow!("all watches ended"));
        };
        let Some((label, last)) = open.0.get_mut(&index) else {
            continue;
        };
        // Errors of the server name the object.
        let state = state.map_err(|error| match error.is::<StatusError>() {
            true => error,
            false => error.context(label.clone()),
        });
        let state = state?;
        unresolved.note(index, &state);
        match state {
            State::Met(what) => {
                io.print(format!("{label} {what}"))?;
                io.out.flush()?;
                open.0.remove(&index);
            }
            State::Failed(why) => {
                io.eprint(format!("error: {label}: {}", style::printable(&why, false)));
                return Ok(FAILURE);
            }
            State::Pending(what) | State::Unresolved(what) => {
                if last.as_ref() != Some(&what) {
                    io.eprint(format!("{label}: {what}"));
                    *last = Some(what);
                }
            }
        }
    }
    Ok(SUCCESS)
}

/// The objects with references that do not resolve, with the time until which they may.
#[derive(Default)]
struct Unresolved(BTreeMap<usize, (Instant, String)>);

impl Unresolved {
    fn note(&mut self, index: usize, state: &State) {
        match state {
            State::Unresolved(why) => {
                let (_, known) = self.0.entry(index).or_insert_with(|| (Instant::now() + PATIENCE, String::new()));
                known.clone_from(why);
            }
            _ => drop(self.0.remove(&index)),
        }
    }

    /// Waits until the time of an object is over. Returns its label and the reason.
    async fn expired(&self, open: &Open) -> (String, String) {
        let Some((index, (at, why))) = self.0.iter().min_by_key(|(_, (at, _))| *at) else {
            return std::future::pending().await;
        };
        tokio::time::sleep_until(*at).await;
        let label = open.0.get(index).map_or_else(String::new, |(label, _)| label.clone());
        (label, why.clone())
    }
}

/// Label and last reported state of the objects that have not reached the goal.
struct Open(BTreeMap<usize, (String, Option<String>)>);

impl Open {
    fn new(targets: &[Target]) -> Open {
        let labels = targets.iter().map(|target| (target.label(), None));
        Open(labels.enumerate().collect())
    }

    /// The objects for the timeout message.
    fn describe(&self, goal: &Goal) -> String {
        let shown = self.0.values().take(5).map(|(label, last)| match last {
            Some(what) => format!("{label}: {what}"),
            None => label.clone(),
        });
        let shown: Vec<String> = shown.collect();
        let more = match self.0.len() - shown.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("waiting for {goal}: {}{more}", shown.join("; "))
    }
}

/// Watches one object.
struct ObjectWatch {
    server: Server,
    target: Target,
    goal: Goal,
    /// The UID of the first object with the name.
    uid: Option<String>,
    seen: bool,
    /// Whether the server has answered before.
    answered: bool,
}

impl ObjectWatch {
    /// Sends every state up to the final one.
    async fn run(mut self, index: usize, sender: &mpsc::Sender<(usize, Result<State>)>) -> Result<()> {
        let one = Request::get(self.target.kind.collection(Some(&self.target.namespace)))
            .with("fieldSelector", format!("metadata.name={}", self.target.name));
        loop {
            let list = match self.server.list(one.clone()).await {
                // The server was reachable before: it may be restarting.
                Err(error) if self.answered && error.is::<Unreachable>() => {
                    let away = pending("the server cannot be reached");
                    if sender.send((index, Ok(away))).await.is_err() {
                        return Ok(());
                    }
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                list => list?,
            };
            self.answered = true;
            let object = list["items"].get(0).filter(|object| !object.is_null());
            if self.send_state(index, object, sender).await? {
                return Ok(());
            }
            let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            match self.changes(index, one.clone().with("resourceVersion", version), sender).await {
                Ok(true) => return Ok(()),
                Ok(false) => tokio::time::sleep(PAUSE).await,
                Err(error) if is_expired(&error) || error.is::<Unreachable>() => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn changes(
        &mut self,
        index: usize,
        request: Request,
        sender: &mpsc::Sender<(usize, Result<State>)>,
    ) -> Result<bool> {
        let mut events = pin!(self.server.watch(request).await?);
        // A connection that breaks ends the watch.
        while let Some(Ok(event)) = events.next().await {
            let object = match &event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => Some(object),
                WatchEvent::Deleted(_) => None,
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(status) => return Err(StatusError { status: status.clone() }.into()),
            };
            if self.send_state(index, object, sender).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sends the state of the object. Returns whether it is final.
    async fn send_state(
        &mut self,
        index: usize,
        object: Option<&Json>,
        sender: &mpsc::Sender<(usize, Result<State>)>,
    ) -> Result<bool> {
        let state = self.state(object)?;
        let last = !matches!(state, State::Pending(_) | State::Unresolved(_));
        // The receiver is gone after one object has failed.
        Ok(sender.send((index, Ok(state))).await.is_err() || last)
    }

    fn state(&mut self, object: Option<&Json>) -> Result<State> {
        let Some(object) = object else {
            let seen = std::mem::replace(&mut self.seen, true);
            return match self.goal {
                Goal::Deleted => Ok(State::Met("deleted".to_owned())),
                Goal::Created => Ok(pending("does not exist yet")),
                _ if seen => Ok(State::Failed("was deleted".to_owned())),
                _ => Err(not_found(&self.target).into()),
            };
        };
        self.seen = true;
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let first = self.uid.get_or_insert_with(|| uid.clone());
        if self.goal == Goal::Deleted && *first != uid {
            return Ok(State::Met("deleted (another object has its name)".to_owned()));
        }
        let kind = &self.target.kind;
        match without_effect(kind).filter(|_| self.goal.asks_for_effect()) {
            Some(why) => Ok(State::Failed(why)),
            None if gateway_api::has(&kind.group) => Ok(gateway_api::judge(&self.goal, &kind.kind, object)),
            None => Ok(judge(&self.goal, object)),
        }
    }
}

/// The reason why a kind of the Gateway API has no effect. Objects of other kinds have it in their status.
fn without_effect(kind: &Kind) -> Option<String> {
    let known = config::Kind::find(&kind.group, &kind.kind).filter(|_| !kind.group.ends_with(".istio.io"))?;
    config::effects::KINDS_NOT_YET.contains(&known).then(|| config::effects::lack(known))
}

fn not_found(target: &Target) -> StatusError {
    let message = format!("{} \"{}\" not found", target.kind.qualified(), target.name);
    StatusError { status: Status::failure(&message, "NotFound").with_code(404).boxed() }
}
