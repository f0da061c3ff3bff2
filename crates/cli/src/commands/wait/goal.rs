//! Goals of `wait`, and the state of an object relative to a goal.

use std::fmt;

use config::json_path::{JsonPath, JsonPathError, json_text};
use serde_json::Value as Json;

/// The reason of the condition `Programmed` for an object with parts that have no effect.
pub(super) const NOT_IMPLEMENTED: &str = "NotImplemented";

/// The goal of a wait.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Goal {
    /// The object is deleted, or another one has its name.
    Deleted,
    /// The object exists.
    Created,
    /// A condition has a status.
    Condition { kind: String, status: String },
    /// This percentage of the proxies that need the object has acknowledged its current generation.
    Proxies(f64),
    /// A path selects this value, or any value if none is given.
    Field { path: JsonPath, value: Option<String> },
}

/// An invalid value of `--for`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum GoalError {
    #[error(
        "`{0}` is not one of: proxies=100%, condition=Programmed, condition=NAME=STATUS, jsonpath='{{.a.b}}'=VALUE, delete, \
         create"
    )]
    Unknown(String),
    #[error("`{0}` is not a percentage: expected for example proxies=90%")]
    Percentage(String),
    #[error(transparent)]
    Path(#[from] JsonPathError),
}

impl Goal {
    /// Parses the value of `--for`.
    pub(crate) fn parse(text: &str) -> Result<Goal, GoalError> {
        let (name, rest) = text.split_once('=').unwrap_or((text, ""));
        match name.to_lowercase().as_str() {
            "delete" => Ok(Goal::Deleted),
            "create" => Ok(Goal::Created),
            "condition" if !rest.is_empty() => {
                let (kind, status) = rest.split_once('=').unwrap_or((rest, "True"));
                Ok(Goal::Condition { kind: kind.to_owned(), status: status.to_owned() })
            }
            "proxies" => {
                let share = if rest.is_empty() { "100" } else { rest.trim_end_matches('%') };
                match share.parse() {
                    Ok(share) if (0.0..=100.0).contains(&share) => Ok(Goal::Proxies(share)),
                    _ => Err(GoalError::Percentage(rest.to_owned())),
                }
            }
            "jsonpath" if !rest.is_empty() => {
                let end = rest.rfind('}').map_or_else(|| rest.find('=').unwrap_or(rest.len()), |at| at + 1);
                let (path, value) = rest.split_at(end);
                Ok(Goal::Field { path: JsonPath::parse(path)?, value: value.strip_prefix('=').map(str::to_owned) })
            }
            _ => Err(GoalError::Unknown(text.to_owned())),
        }
    }
}

impl Goal {
    /// Whether the goal is that an object is in effect.
    pub(super) fn asks_for_effect(&self) -> bool {
        match self {
            Goal::Proxies(_) => true,
            Goal::Condition { kind, status } => {
                kind.eq_ignore_ascii_case("Programmed") && status.eq_ignore_ascii_case("True")
            }
            Goal::Deleted | Goal::Created | Goal::Field { .. } => false,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Goal::Deleted => f.write_str("deletion"),
            Goal::Created => f.write_str("creation"),
            Goal::Condition { kind, status } => write!(f, "condition {kind}={status}"),
            Goal::Proxies(share) => write!(f, "{share} % of the proxies"),
            Goal::Field { value: None, .. } => f.write_str("a field"),
            Goal::Field { value: Some(value), .. } => write!(f, "a field to be {value}"),
        }
    }
}

/// The state of an object relative to a goal.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum State {
    /// The goal is reached.
    Met(String),
    /// The goal is not reached yet.
    Pending(String),
    /// A reference of the object does not resolve. Another object may still resolve it.
    Unresolved(String),
    /// The goal cannot be reached.
    Failed(String),
}

pub(super) fn pending(what: impl Into<String>) -> State {
    State::Pending(what.into())
}

/// The state of an existing object.
pub(super) fn judge(goal: &Goal, object: &Json) -> State {
    match goal {
        Goal::Deleted => pending("still exists"),
        Goal::Created => State::Met("exists".to_owned()),
        Goal::Condition { kind, status } => match condition(object, kind, status) {
            State::Met(what) if goal.asks_for_effect() => resolved(object).unwrap_or(State::Met(what)),
            state => state,
        },
        Goal::Proxies(share) => match proxies(object, *share) {
            State::Met(what) => resolved(object).unwrap_or(State::Met(what)),
            state => state,
        },
        Goal::Field { path, value } => {
            let found = path.find(object);
            let fits = |found: &&Json| value.as_ref().is_none_or(|value| json_text(found) == *value);
            match found.iter().any(fits) {
                true => State::Met("condition met".to_owned()),
                false => pending("the field does not have the value yet"),
            }
        }
    }
}

fn condition(object: &Json, kind: &str, status: &str) -> State {
    let Some(found) = find_condition(object, kind) else {
        return pending(format!("has no condition {kind} yet"));
    };
    if !is_current(&found["observedGeneration"], object) {
        return pending(format!("{kind} is for an earlier generation"));
    }
    let now = found["status"].as_str().unwrap_or_default();
    if now.eq_ignore_ascii_case(status) {
        return State::Met("condition met".to_owned());
    }
    let message = found["message"].as_str().unwrap_or_default();
    // These conditions stay false until the object changes.
    let rejected = matches!(
        (kind.to_lowercase().as_str(), found["reason"].as_str()),
        ("programmed", Some("Rejected" | NOT_IMPLEMENTED)) | ("accepted", Some("Invalid"))
    );
    match rejected && status.eq_ignore_ascii_case("True") {
        true => State::Failed(message.to_owned()),
        false => pending(format!("{kind} is {now}")),
    }
}

/// The state of an object whose references do not resolve; `None` if they do.
fn resolved(object: &Json) -> Option<State> {
    let found = find_condition(object, "ResolvedRefs").filter(|found| found["status"] == "False")?;
    Some(State::Unresolved(found["message"].as_str().unwrap_or_default().to_owned()))
}

fn find_condition<'o>(object: &'o Json, kind: &str) -> Option<&'o Json> {
    let mut conditions = object["status"]["conditions"].as_array()?.iter();
    conditions.find(|condition| condition["type"].as_str().is_some_and(|name| name.eq_ignore_ascii_case(kind)))
}

/// Whether a status is for the current generation. A status without a generation counts as current.
pub(super) fn is_current(observed: &Json, object: &Json) -> bool {
    match (observed.as_i64(), object["metadata"]["generation"].as_i64()) {
        (Some(observed), Some(generation)) => observed >= generation,
        _ => true,
    }
}

fn proxies(object: &Json, share: f64) -> State {
    let accepted = find_condition(object, "Accepted").filter(|found| is_current(&found["observedGeneration"], object));
    if let Some(found) = accepted.filter(|found| found["status"] == "False") {
        let message = found["message"].as_str().unwrap_or_default();
        return State::Failed(format!("not accepted: {message}"));
    }
    let programmed =
        find_condition(object, "Programmed").filter(|found| is_current(&found["observedGeneration"], object));
    if let Some(found) = programmed.filter(|found| found["reason"] == NOT_IMPLEMENTED) {
        return State::Failed(found["message"].as_str().unwrap_or_default().to_owned());
    }
    let proxies = &object["status"]["proxies"];
    let generation = object["metadata"]["generation"].as_i64().unwrap_or_default();
    if !proxies.is_object() || !is_current(&proxies["generation"], object) {
        return pending(format!("no proxy has reported generation {generation} yet"));
    }
    let count = |field: &str| proxies[field].as_u64().unwrap_or_default();
    let (total, running, rejected) = (count("total"), count("running"), count("rejected"));
    if total == 0 {
        return State::Met("no proxy needs it".to_owned());
    }
    // Counts are small enough to be exact as f64.
    let needed = share * total as f64 / 100.0;
    let what = format!("{running} of {total} proxies run generation {generation}");
    if running as f64 >= needed {
        return State::Met(what);
    }
    if (total.saturating_sub(rejected) as f64) < needed {
        let rejection = &proxies["rejection"];
        let text = |field: &str| rejection[field].as_str().unwrap_or("?");
        return State::Failed(format!(
            "{rejected} of {total} proxies reject generation {generation}; {} rejects {} {}: {}",
            text("proxy"),
            text("type"),
            text("resource"),
            text("message")
        ));
    }
    State::Pending(what)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(generation: i64, proxies: Json) -> Json {
        json!({"metadata": {"generation": generation}, "status": {"proxies": proxies}})
    }

    fn counted(total: u64, running: u64, rejected: u64) -> Json {
        let rejection = json!({"proxy": "web-1", "type": "RDS", "resource": "80", "message": "no such cluster"});
        object(
            2,
            json!({"generation": 2, "total": total, "running": running, "rejected": rejected, "rejection": rejection}),
        )
    }

    #[test]
    fn goals_are_parsed() {
        assert_eq!(Goal::parse("proxies=90%"), Ok(Goal::Proxies(90.0)));
        assert_eq!(Goal::parse("proxies"), Ok(Goal::Proxies(100.0)));
        assert_eq!(Goal::parse("delete"), Ok(Goal::Deleted));
        let ready = Goal::Condition { kind: "Ready".into(), status: "False".into() };
        assert_eq!(Goal::parse("condition=Ready=False"), Ok(ready));
        let path = || JsonPath::parse("{.a[?(@.b==\"c\")]}").unwrap();
        let field = |value: Option<&str>| Ok(Goal::Field { path: path(), value: value.map(str::to_owned) });
        assert_eq!(Goal::parse("jsonpath={.a[?(@.b==\"c\")]}=x=y"), field(Some("x=y")));
        assert_eq!(Goal::parse("jsonpath={.a[?(@.b==\"c\")]}"), field(None));
        for wrong in ["", "condition", "proxies=101%", "proxies=x", "jsonpath", "jsonpath={", "ready"] {
            assert!(Goal::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_share_of_proxies_decides() {
        let judged = |share, object: &Json| judge(&Goal::Proxies(share), object);
        assert!(matches!(judged(100.0, &counted(10, 10, 0)), State::Met(_)));
        assert!(matches!(judged(100.0, &counted(0, 0, 0)), State::Met(_)));
        assert!(matches!(judged(90.0, &counted(10, 9, 1)), State::Met(_)));
        assert_eq!(judged(100.0, &counted(10, 4, 0)), State::Pending("4 of 10 proxies run generation 2".into()));
        let State::Failed(why) = judged(100.0, &counted(10, 4, 1)) else { panic!("one rejects") };
        assert!(why.contains("web-1 rejects RDS 80: no such cluster"), "{why}");
        assert!(matches!(judged(80.0, &counted(10, 4, 2)), State::Pending(_)), "eight may still run it");
        assert!(matches!(judged(80.0, &counted(10, 4, 3)), State::Failed(_)));
    }

    #[test]
    fn an_object_without_effect_fails_and_one_with_unresolved_references_is_not_done() {
        let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": "why", "observedGeneration": 2});
        let with = |conditions: &[Json]| {
            let mut object = counted(1, 1, 0);
            object["status"]["conditions"] = json!(conditions);
            object
        };
        let goals = [Goal::Proxies(100.0), Goal::parse("condition=Programmed").unwrap()];
        let programmed = condition("Programmed", "True", "Programmed");
        for goal in &goals {
            let idle = with(&[condition("Programmed", "False", "NotImplemented")]);
            assert_eq!(judge(goal, &idle), State::Failed("why".into()), "{goal}");
            let unresolved = with(&[programmed.clone(), condition("ResolvedRefs", "False", "NotFound")]);
            assert_eq!(judge(goal, &unresolved), State::Unresolved("why".into()), "{goal}");
            assert!(matches!(judge(goal, &with(std::slice::from_ref(&programmed))), State::Met(_)), "{goal}");
        }
    }

    #[test]
    fn status_of_an_earlier_generation_does_not_count() {
        let old = object(3, json!({"generation": 2, "total": 1, "running": 1}));
        assert!(matches!(judge(&Goal::Proxies(100.0), &old), State::Pending(_)));
        let mut conditions = json!({"metadata": {"generation": 3}, "status": {"conditions": [
            {"type": "Programmed", "status": "True", "observedGeneration": 2},
            {"type": "Accepted", "status": "False", "reason": "Invalid", "message": "no hosts", "observedGeneration": 3}]}});
        let programmed = Goal::parse("condition=programmed").unwrap();
        assert!(matches!(judge(&programmed, &conditions), State::Pending(_)));
        assert_eq!(judge(&Goal::Proxies(100.0), &conditions), State::Failed("not accepted: no hosts".into()));
        conditions["status"]["conditions"][0]["observedGeneration"] = json!(3);
        assert!(matches!(judge(&programmed, &conditions), State::Met(_)));
    }
}
