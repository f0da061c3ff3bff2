//! `rutter wait`: until objects are as wanted, or until it is clear that they will not be.

mod goal;
mod screen;

use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use clap::{Arg, ArgMatches, Command};
use serde_json::Value as Json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

pub(crate) use goal::Goal;
use goal::{State, judge, pending};
use screen::Screen;

use crate::failure::{FAILURE, NoServer, Refusal, SUCCESS, TimedOut, usage};
use crate::io::Io;
use crate::server::{self, Event, Kind, Request, Server, is_expired};
use crate::targets::{self, Target};
use crate::{age, style};

/// How long to wait before a watch that ended is opened again.
const PAUSE: Duration = Duration::from_millis(500);

pub(super) fn command() -> Command {
    let command = Command::new("wait")
        .about("Wait until objects are as wanted")
        .after_help(
            "Exit codes: 0 as wanted; 1 refused, deleted or not there; 3 the time ran out.\n\n\
             Examples:\n  rutter wait virtualservice/reviews --for=proxies=100%\n  \
             rutter wait vs --all --for=condition=Programmed --timeout 2m\n  rutter wait vs/reviews --for=delete\n  \
             rutter wait gateway/a --for=jsonpath='{.status.addresses[0].value}'",
        )
        .arg(
            Arg::new("for")
                .long("for")
                .value_name("GOAL")
                .value_parser(Goal::parse)
                .default_value("proxies=100%")
                .help("proxies=N%, condition=NAME[=STATUS], jsonpath='{.a.b}'[=VALUE], delete, create"),
        )
        .arg(
            Arg::new("timeout")
                .long("timeout")
                .value_name("TIME")
                .value_parser(age::parse)
                .default_value("60s")
                .help("How long"),
        );
    server::arguments(targets::arguments(command))
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let goal = matches.get_one::<Goal>("for").cloned().unwrap_or(Goal::Proxies(100.0));
    let timeout = matches.get_one::<Duration>("timeout").copied().unwrap_or_default();
    let server = Server::connect(matches, io).await?;
    let catalogue = server.catalogue().await?;
    let targets = targets::all(matches, &server, &catalogue, io).await?;
    if let (Goal::Proxies(_), Some(other)) = (&goal, targets.iter().find(|target| !is_reported(&target.kind))) {
        return Err(usage(format!(
            "{}: no status says how many proxies run a {}: wait --for=condition=…, jsonpath=…, delete or create",
            other.label(),
            other.kind.kind
        )));
    }
    ensure!(!targets.is_empty() || goal == Goal::Gone, "no matching resources found");
    until(&server, targets, goal, timeout, io).await
}

/// Whether the control plane says in the status of a kind's objects how many proxies run them.
pub(crate) fn is_reported(kind: &Kind) -> bool {
    kind.group.ends_with(".istio.io") || kind.group == "gateway.networking.k8s.io"
}

/// Waits until all targets are as wanted, the first is refused, or the time runs out.
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
        let follower = Follower {
            server: server.clone(),
            target: target.clone(),
            goal: goal.clone(),
            uid: None,
            seen: false,
            answered: false,
        };
        let sender = sender.clone();
        tasks.spawn(async move {
            if let Err(error) = follower.run(index, &sender).await {
                let _ = sender.send((index, Err(error))).await;
            }
        });
    }
    drop(sender);
    let mut screen = Screen::new(&targets, io.terminal.err);
    let all = watch_all(&targets, &mut news, &mut screen, io);
    // The tasks end with the set that holds them.
    let outcome = tokio::time::timeout(timeout, all).await;
    screen.clear();
    match outcome {
        Ok(code) => code,
        Err(_) => Err(TimedOut(screen.left(&targets, &goal)).into()),
    }
}

async fn watch_all(
    targets: &[Target],
    news: &mut mpsc::Receiver<(usize, Result<State>)>,
    screen: &mut Screen,
    io: &mut Io,
) -> Result<u8> {
    let mut met = 0;
    while met < targets.len() {
        let Some((index, state)) = news.recv().await else {
            return Err(anyhow!("a watch ended"));
        };
        let label = targets[index].label();
        // What the server refuses names its object.
        let state = state.map_err(|error| match error.is::<Refusal>() {
            true => error,
            false => error.context(label.clone()),
        });
        match state? {
            State::Met(what) => {
                met += 1;
                screen.done(index);
                screen.pause(|| io.say(format!("{label} {what}")).and_then(|()| io.out.flush()))?;
            }
            State::Refused(why) => {
                screen.clear();
                io.tell(format!("error: {label}: {}", style::printable(&why, false)));
                return Ok(FAILURE);
            }
            State::Pending { what, share } => screen.pending(index, &label, what, share, io),
        }
    }
    Ok(SUCCESS)
}

/// Watches one object.
struct Follower {
    server: Server,
    target: Target,
    goal: Goal,
    /// The first object that was seen under the name.
    uid: Option<String>,
    seen: bool,
    /// Whether the server has answered once.
    answered: bool,
}

impl Follower {
    /// Sends every state until the last one.
    async fn run(mut self, index: usize, sender: &mpsc::Sender<(usize, Result<State>)>) -> Result<()> {
        let one = Request::get(self.target.kind.collection(Some(&self.target.namespace)))
            .with("fieldSelector", format!("metadata.name={}", self.target.name));
        loop {
            let list = match self.server.list(one.clone()).await {
                // It was there a moment ago: it may be starting anew.
                Err(error) if self.answered && error.is::<NoServer>() => {
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
            if self.tell(index, object, sender).await? {
                return Ok(());
            }
            let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            match self
                .changes(index, one.clone().with("resourceVersion", version), sender)
                .await
            {
                Ok(true) => return Ok(()),
                Ok(false) => tokio::time::sleep(PAUSE).await,
                Err(error) if is_expired(&error) || error.is::<NoServer>() => {}
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
        let mut watch = self.server.watch(request).await?;
        while let Some(event) = watch.next().await? {
            let object = match &event {
                Event::Added(object) | Event::Modified(object) => Some(object),
                Event::Deleted(_) => None,
                Event::Bookmark(_) => continue,
            };
            if self.tell(index, object, sender).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Says how far the object is; true if that is the last word.
    async fn tell(
        &mut self,
        index: usize,
        object: Option<&Json>,
        sender: &mpsc::Sender<(usize, Result<State>)>,
    ) -> Result<bool> {
        let state = self.state(object)?;
        let last = !matches!(state, State::Pending { .. });
        // Nobody listens any more once one object is refused.
        Ok(sender.send((index, Ok(state))).await.is_err() || last)
    }

    fn state(&mut self, object: Option<&Json>) -> Result<State> {
        let Some(object) = object else {
            let seen = std::mem::replace(&mut self.seen, true);
            return match self.goal {
                Goal::Gone => Ok(State::Met("deleted".to_owned())),
                Goal::There => Ok(pending("is not there yet")),
                _ if seen => Ok(State::Refused("was deleted meanwhile".to_owned())),
                _ => Err(not_found(&self.target).into()),
            };
        };
        self.seen = true;
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let first = self.uid.get_or_insert_with(|| uid.clone());
        if self.goal == Goal::Gone && *first != uid {
            return Ok(State::Met("deleted (another one has its name now)".to_owned()));
        }
        Ok(judge(&self.goal, object))
    }
}

fn not_found(target: &Target) -> Refusal {
    Refusal {
        code: 404,
        reason: "NotFound".to_owned(),
        message: format!("{} \"{}\" not found", target.kind.qualified(), target.name),
        subject: None,
        causes: Vec::new(),
    }
}
