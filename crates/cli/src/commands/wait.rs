//! `rutter wait`: until objects are as wanted, or until it is clear that they will not be.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::{Arg, ArgMatches, Command};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::Value as Json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::failure::{FAILURE, Refusal, SUCCESS, TimedOut};
use crate::io::Io;
use crate::jsonpath::{self, Path};
use crate::server::{self, Event, Kind, Request, Server, is_expired};
use crate::targets::{self, Target};
use crate::{age, style};

/// How long to wait before a watch that ended is opened again.
const PAUSE: Duration = Duration::from_millis(500);

/// What is waited for.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Goal {
    /// The object is gone, or another one has its name.
    Gone,
    /// The object is there.
    There,
    /// A condition has a status.
    Condition { kind: String, status: String },
    /// This share of the proxies that need the object, in per cent, runs its current generation.
    Proxies(f64),
    /// A path leads to a value; none: to any.
    Field { path: Path, value: Option<String> },
}

impl Goal {
    /// Reads the value of `--for`.
    pub(crate) fn parse(text: &str) -> Result<Goal, String> {
        let (name, rest) = text.split_once('=').unwrap_or((text, ""));
        match name.to_lowercase().as_str() {
            "delete" => Ok(Goal::Gone),
            "create" => Ok(Goal::There),
            "condition" if !rest.is_empty() => {
                let (kind, status) = rest.split_once('=').unwrap_or((rest, "True"));
                Ok(Goal::Condition {
                    kind: kind.to_owned(),
                    status: status.to_owned(),
                })
            }
            "proxies" => {
                let share = if rest.is_empty() {
                    "100"
                } else {
                    rest.trim_end_matches('%')
                };
                let share: f64 = share
                    .parse()
                    .map_err(|_| format!("`{rest}` is no share: proxies=90%"))?;
                match (0.0..=100.0).contains(&share) {
                    true => Ok(Goal::Proxies(share)),
                    false => Err(format!("{share} % is no share")),
                }
            }
            "jsonpath" if !rest.is_empty() => {
                let end = rest
                    .rfind('}')
                    .map_or_else(|| rest.find('=').unwrap_or(rest.len()), |at| at + 1);
                let (path, value) = rest.split_at(end);
                Ok(Goal::Field {
                    path: Path::parse(path).map_err(|error| error.to_string())?,
                    value: value.strip_prefix('=').map(str::to_owned),
                })
            }
            _ => Err(format!(
                "`{text}` is none of: proxies=100%, condition=Programmed, condition=NAME=STATUS, jsonpath='{{.a.b}}'=VALUE, delete, create"
            )),
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Goal::Gone => f.write_str("deletion"),
            Goal::There => f.write_str("creation"),
            Goal::Condition { kind, status } => write!(f, "condition {kind}={status}"),
            Goal::Proxies(share) => write!(f, "{share} % of the proxies"),
            Goal::Field { value: None, .. } => f.write_str("a field"),
            Goal::Field { value: Some(value), .. } => write!(f, "a field to be {value}"),
        }
    }
}

/// How far an object is.
#[derive(Clone, PartialEq, Debug)]
enum State {
    /// It is as wanted.
    Met(String),
    /// It is not yet; with how many of how many, where that can be said.
    Pending { what: String, share: Option<(u64, u64)> },
    /// It will not be.
    Refused(String),
}

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
        match state.with_context(|| label.clone())? {
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
}

impl Follower {
    /// Sends every state until the last one.
    async fn run(mut self, index: usize, sender: &mpsc::Sender<(usize, Result<State>)>) -> Result<()> {
        let one = Request::get(self.target.kind.collection(Some(&self.target.namespace)))
            .with("fieldSelector", format!("metadata.name={}", self.target.name));
        loop {
            let list = self.server.list(one.clone()).await?;
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
                Err(error) if is_expired(&error) => {}
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

fn pending(what: impl Into<String>) -> State {
    State::Pending {
        what: what.into(),
        share: None,
    }
}

/// How far an object that is there is.
fn judge(goal: &Goal, object: &Json) -> State {
    match goal {
        Goal::Gone => pending("is still there"),
        Goal::There => State::Met("is there".to_owned()),
        Goal::Condition { kind, status } => condition(object, kind, status),
        Goal::Proxies(share) => proxies(object, *share),
        Goal::Field { path, value } => {
            // An index that is not there yet may come.
            let found = path.find(object).unwrap_or_default();
            let fits = |found: &&Json| value.as_ref().is_none_or(|value| jsonpath::text(found) == *value);
            match found.iter().any(fits) {
                true => State::Met("condition met".to_owned()),
                false => pending("the field is not as wanted yet"),
            }
        }
    }
}

fn condition(object: &Json, kind: &str, status: &str) -> State {
    let Some(found) = find_condition(object, kind) else {
        return pending(format!("has no condition {kind} yet"));
    };
    if !is_current(&found["observedGeneration"], object) {
        return pending(format!("{kind} is of an earlier generation"));
    }
    let now = found["status"].as_str().unwrap_or_default();
    if now.eq_ignore_ascii_case(status) {
        return State::Met("condition met".to_owned());
    }
    let message = found["message"].as_str().unwrap_or_default();
    // Our own conditions do not get better by themselves once they are false.
    let refused = matches!(
        (kind.to_lowercase().as_str(), found["reason"].as_str()),
        ("programmed", Some("Refused")) | ("accepted", Some("Invalid"))
    );
    match refused && status.eq_ignore_ascii_case("True") {
        true => State::Refused(message.to_owned()),
        false => pending(format!("{kind} is {now}")),
    }
}

fn find_condition<'o>(object: &'o Json, kind: &str) -> Option<&'o Json> {
    let mut conditions = object["status"]["conditions"].as_array()?.iter();
    conditions.find(|condition| {
        condition["type"]
            .as_str()
            .is_some_and(|name| name.eq_ignore_ascii_case(kind))
    })
}

/// Whether a status was written of the object as it is now; where nobody counts, it is.
fn is_current(observed: &Json, object: &Json) -> bool {
    match (observed.as_i64(), object["metadata"]["generation"].as_i64()) {
        (Some(observed), Some(generation)) => observed >= generation,
        _ => true,
    }
}

fn proxies(object: &Json, share: f64) -> State {
    let accepted = find_condition(object, "Accepted").filter(|found| is_current(&found["observedGeneration"], object));
    if let Some(found) = accepted.filter(|found| found["status"] == "False") {
        let message = found["message"].as_str().unwrap_or_default();
        return State::Refused(format!("it is not accepted: {message}"));
    }
    let proxies = &object["status"]["proxies"];
    let generation = object["metadata"]["generation"].as_i64().unwrap_or_default();
    if !proxies.is_object() || !is_current(&proxies["generation"], object) {
        return pending(format!("nothing is known of generation {generation} yet"));
    }
    let count = |field: &str| proxies[field].as_u64().unwrap_or_default();
    let (total, running, refused) = (count("total"), count("running"), count("refused"));
    if total == 0 {
        return State::Met("no proxy needs it".to_owned());
    }
    // Counts of proxies are far from where this loses digits.
    let needed = share * total as f64 / 100.0;
    let what = format!("{running} of {total} proxies run generation {generation}");
    if running as f64 >= needed {
        return State::Met(what);
    }
    if (total.saturating_sub(refused) as f64) < needed {
        let refusal = &proxies["refusal"];
        let text = |field: &str| refusal[field].as_str().unwrap_or("?");
        return State::Refused(format!(
            "{refused} of {total} proxies refuse generation {generation}; {} says of {} {}: {}",
            text("proxy"),
            text("type"),
            text("resource"),
            text("message")
        ));
    }
    State::Pending {
        what,
        share: Some((running, total)),
    }
}

/// What is shown while waiting: bars on a terminal, lines of what changed otherwise.
struct Screen {
    bars: Option<(MultiProgress, Vec<ProgressBar>)>,
    last: Vec<Option<String>>,
    open: Vec<bool>,
}

impl Screen {
    fn new(targets: &[Target], terminal: bool) -> Screen {
        // More bars than lines on a screen help nobody.
        let bars = (terminal && targets.len() <= 20).then(|| {
            let all = MultiProgress::new();
            let style = ProgressStyle::with_template("{prefix} {bar:24} {msg} {elapsed}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = |target: &Target| {
                let bar = all.add(
                    ProgressBar::new(1)
                        .with_style(style.clone())
                        .with_prefix(target.label()),
                );
                bar.enable_steady_tick(Duration::from_millis(200));
                bar
            };
            let bars = targets.iter().map(bar).collect();
            (all, bars)
        });
        Screen {
            bars,
            last: vec![None; targets.len()],
            open: vec![true; targets.len()],
        }
    }

    fn pending(&mut self, index: usize, label: &str, what: String, share: Option<(u64, u64)>, io: &mut Io) {
        if self.last[index].as_ref() == Some(&what) {
            return;
        }
        match &self.bars {
            Some((_, bars)) => {
                if let Some((running, total)) = share {
                    bars[index].set_length(total);
                    bars[index].set_position(running);
                }
                bars[index].set_message(what.clone());
            }
            None => io.tell(format!("{label}: {what}")),
        }
        self.last[index] = Some(what);
    }

    fn done(&mut self, index: usize) {
        self.open[index] = false;
        if let Some((_, bars)) = &self.bars {
            bars[index].finish_and_clear();
        }
    }

    /// Does something that prints.
    fn pause(&self, print: impl FnOnce() -> std::io::Result<()>) -> std::io::Result<()> {
        match &self.bars {
            Some((all, _)) => all.suspend(print),
            None => print(),
        }
    }

    fn clear(&mut self) {
        if let Some((all, bars)) = self.bars.take() {
            bars.iter().for_each(ProgressBar::finish_and_clear);
            let _ = all.clear();
        }
    }

    /// What is not as wanted, for the message at the end.
    fn left(&self, targets: &[Target], goal: &Goal) -> String {
        let open = (0..targets.len()).filter(|index| self.open[*index]);
        let of = |index: usize| match &self.last[index] {
            Some(what) => format!("{}: {what}", targets[index].label()),
            None => targets[index].label(),
        };
        let all: Vec<String> = open.map(of).collect();
        let more = if all.len() > 5 {
            format!(" and {} more", all.len() - 5)
        } else {
            String::new()
        };
        format!("waiting for {goal}: {}{more}", all[..all.len().min(5)].join("; "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(generation: i64, proxies: Json) -> Json {
        json!({"metadata": {"generation": generation}, "status": {"proxies": proxies}})
    }

    fn counted(total: u64, running: u64, refused: u64) -> Json {
        let refusal = json!({"proxy": "web-1", "type": "RDS", "resource": "80", "message": "no such cluster"});
        object(
            2,
            json!({"generation": 2, "total": total, "running": running, "refused": refused, "refusal": refusal}),
        )
    }

    #[test]
    fn goals_are_read() {
        assert_eq!(Goal::parse("proxies=90%"), Ok(Goal::Proxies(90.0)));
        assert_eq!(Goal::parse("proxies"), Ok(Goal::Proxies(100.0)));
        assert_eq!(Goal::parse("delete"), Ok(Goal::Gone));
        let ready = Goal::Condition {
            kind: "Ready".into(),
            status: "False".into(),
        };
        assert_eq!(Goal::parse("condition=Ready=False"), Ok(ready));
        let path = || Path::parse("{.a[?(@.b==\"c\")]}").unwrap();
        let field = |value: Option<&str>| {
            Ok(Goal::Field {
                path: path(),
                value: value.map(str::to_owned),
            })
        };
        assert_eq!(Goal::parse("jsonpath={.a[?(@.b==\"c\")]}=x=y"), field(Some("x=y")));
        assert_eq!(Goal::parse("jsonpath={.a[?(@.b==\"c\")]}"), field(None));
        for wrong in [
            "",
            "condition",
            "proxies=101%",
            "proxies=x",
            "jsonpath",
            "jsonpath={",
            "ready",
        ] {
            assert!(Goal::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_share_of_proxies_decides() {
        let judged = |share, object: &Json| judge(&Goal::Proxies(share), object);
        assert!(matches!(judged(100.0, &counted(10, 10, 0)), State::Met(_)));
        assert!(matches!(judged(100.0, &counted(0, 0, 0)), State::Met(_)));
        assert!(matches!(judged(90.0, &counted(10, 9, 1)), State::Met(_)));
        assert_eq!(
            judged(100.0, &counted(10, 4, 0)),
            State::Pending {
                what: "4 of 10 proxies run generation 2".into(),
                share: Some((4, 10))
            }
        );
        let State::Refused(why) = judged(100.0, &counted(10, 4, 1)) else {
            panic!("one refuses")
        };
        assert!(why.contains("web-1 says of RDS 80: no such cluster"), "{why}");
        assert!(
            matches!(judged(80.0, &counted(10, 4, 2)), State::Pending { .. }),
            "eight may still run it"
        );
        assert!(matches!(judged(80.0, &counted(10, 4, 3)), State::Refused(_)));
    }

    #[test]
    fn what_was_said_of_an_earlier_generation_does_not_count() {
        let old = object(3, json!({"generation": 2, "total": 1, "running": 1}));
        assert!(matches!(judge(&Goal::Proxies(100.0), &old), State::Pending { .. }));
        let mut conditions = json!({"metadata": {"generation": 3}, "status": {"conditions": [
            {"type": "Programmed", "status": "True", "observedGeneration": 2},
            {"type": "Accepted", "status": "False", "reason": "Invalid", "message": "no hosts", "observedGeneration": 3}]}});
        let programmed = Goal::parse("condition=programmed").unwrap();
        assert!(matches!(judge(&programmed, &conditions), State::Pending { .. }));
        assert_eq!(
            judge(&Goal::Proxies(100.0), &conditions),
            State::Refused("it is not accepted: no hosts".into())
        );
        conditions["status"]["conditions"][0]["observedGeneration"] = json!(3);
        assert!(matches!(judge(&programmed, &conditions), State::Met(_)));
    }
}
