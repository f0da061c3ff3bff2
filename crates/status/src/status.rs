//! The status of an object and its JSON form.

use config::{Kind, Timestamp};
use model::standing::{Standing, condition as kinds};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::kube::{self, Judgement, KubeStatus};
use crate::subject::{Problems, Verdict};

/// The maximum length of a message in a status, in bytes.
const TEXT: usize = 2048;
/// The maximum number of skipped patches that a status names.
const UNMADE: usize = 16;
/// The maximum length of a name or reason of a skipped patch, in bytes.
const NAME: usize = 256;

/// The number of proxies that acknowledged the resources derived from an object.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Proxies that need the object.
    pub total: usize,
    /// Proxies that acknowledged it.
    pub running: usize,
    /// Proxies that rejected it (NACK).
    pub rejected: usize,
    /// Proxies that have not answered.
    pub pending: usize,
    /// One of the NACKs.
    #[serde(rename = "rejection", skip_serializing_if = "Option::is_none")]
    pub nack: Option<Nack>,
    /// The patches of an EnvoyFilter that were not applied everywhere, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmade: Vec<SkippedPatch>,
}

/// A patch of an EnvoyFilter that was not applied to some or all resources.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SkippedPatch {
    /// The index of the patch.
    pub index: u16,
    /// The number of resources that it was not applied to; 0 if it matches no resource of a connected proxy.
    pub resources: usize,
    /// The first of them by name.
    pub resource: String,
    /// The reason for that resource.
    pub why: String,
}

/// A rejection by a proxy, with its error message.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Nack {
    /// The proxy.
    pub proxy: String,
    /// `CDS`, `EDS`, `LDS` or `RDS`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The names of the resources, separated by commas.
    pub resource: String,
    /// The error message of the proxy.
    pub message: String,
}

/// The `status` of a condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Truth {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// Not known yet.
    Unknown,
}

/// One condition of a status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    /// Whether it holds.
    pub truth: Truth,
    /// The reason in CamelCase.
    pub reason: String,
    /// The reason as a sentence.
    pub message: String,
    /// The last change of `truth`.
    pub since: Timestamp,
}

/// The `proxies` field of a status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proxies {
    /// The generation in effect, which is the counted one; 0 if none ever was.
    pub generation: i64,
    /// The counts.
    pub counts: Counts,
    /// The last change of any of these fields.
    pub since: Timestamp,
}

/// The status of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// The last generation that was processed.
    pub observed: i64,
    /// Condition `Accepted`: the object is valid.
    pub accepted: Condition,
    /// Condition `Programmed`: all proxies that need the object acknowledged it, and all of it is implemented.
    pub programmed: Condition,
    /// Condition `Conflicted`, if other objects take precedence: the parts that are not used.
    pub conflicted: Option<Condition>,
    /// Condition `ResolvedRefs`, if a reference cannot be resolved.
    pub resolved: Option<Condition>,
    /// Condition `PatchesApplied`, if patches are skipped: which, and why.
    pub patches: Option<Condition>,
    /// The counts of proxies.
    pub proxies: Proxies,
    /// The status of an object of the Gateway API, which is written instead. `accepted` and `programmed` summarize it.
    pub kube: Option<KubeStatus>,
}

impl Status {
    /// The condition types that Rutter writes for Istio's kinds.
    pub(crate) const CONDITIONS: [&str; 5] = ["Accepted", "Programmed", "Conflicted", "ResolvedRefs", "PatchesApplied"];

    /// Builds the status of an object. Parts that equal `before` keep their timestamps.
    pub(crate) fn of(
        observed: i64,
        (verdict, problems): (&Verdict, &Problems),
        effective: Option<i64>,
        mut counts: Counts,
        before: Option<&Status>,
        now: Timestamp,
    ) -> Status {
        let unmade = std::mem::take(&mut counts.unmade);
        let accepted = Condition {
            truth: if verdict.accepted { Truth::True } else { Truth::False },
            reason: if verdict.accepted { "Accepted" } else { "Invalid" }.to_owned(),
            message: cut(&match &*problems.remarks {
                "" => verdict.message.clone(),
                remarks => format!("{}; remarks: {remarks}", verdict.message),
            }),
            since: now,
        };
        let programmed = programmed(verdict, &problems.without_effect, effective, &counts, now);
        let proxies = Proxies { generation: effective.unwrap_or(0), counts, since: now };
        let mut status = Status {
            observed,
            accepted,
            programmed,
            conflicted: condition(Truth::True, "Conflict", &problems.conflicts, now),
            resolved: condition(Truth::False, "NotFound", &problems.missing, now),
            patches: condition(Truth::False, "Skipped", &summary(&unmade), now),
            proxies,
            kube: None,
        };
        if let Some(before) = before {
            status.keep_times(before);
        }
        status
    }

    /// Builds the status of an object of the Gateway API. Parts that equal `before` keep their timestamps.
    pub(crate) fn of_kube(
        observed: i64,
        (verdict, problems, standing): (&Verdict, &Problems, &Standing),
        effective: Option<i64>,
        counts: Counts,
        before: Option<&Status>,
        now: Timestamp,
    ) -> Status {
        let mut programmed = programmed(verdict, "", effective, &counts, now);
        match &*programmed.reason {
            "Rejected" => programmed.reason = "Invalid".to_owned(),
            "NoProxies" => {
                let message = "no connected proxy serves it";
                programmed = Condition::new(Truth::False, "NoResources", message, now);
            }
            _ => {}
        }
        let remarks = [&*problems.conflicts, &*verdict.warnings].into_iter().filter(|text| !text.is_empty());
        let remarks = cut(&remarks.collect::<Vec<_>>().join("; "));
        let judgement = Judgement { verdict, remarks, programmed, is_rejected: counts.rejected > 0, now };
        let mut kube = KubeStatus::of(standing, &judgement);
        if let Some(before) = before.and_then(|before| before.kube.as_ref()) {
            kube.keep_times(before);
        }
        let proxies = Proxies { generation: effective.unwrap_or(0), counts, since: now };
        Status::of_parts(observed, kube, proxies)
    }

    fn of_parts(observed: i64, kube: KubeStatus, proxies: Proxies) -> Status {
        Status {
            observed,
            accepted: kube.summary(kinds::ACCEPTED),
            programmed: kube.summary(kinds::PROGRAMMED),
            conflicted: None,
            resolved: None,
            patches: None,
            proxies,
            kube: Some(kube),
        }
    }

    /// Whether both are equal except for timestamps.
    pub fn says_the_same(&self, other: &Status) -> bool {
        match (&self.kube, &other.kube) {
            (Some(one), Some(other_one)) => return self.observed == other.observed && one.says_the_same(other_one),
            (None, None) => {}
            _ => return false,
        }
        let pairs = self.conditions().into_iter().zip(other.conditions());
        let same = |(one, other): (Option<&Condition>, Option<&Condition>)| match (one, other) {
            (Some(one), Some(other)) => one.says_the_same(other),
            _ => one.is_none() && other.is_none(),
        };
        self.observed == other.observed && pairs.into_iter().all(same) && self.proxies.says_the_same(&other.proxies)
    }

    /// The conditions in the order of [`Status::CONDITIONS`].
    fn conditions(&self) -> [Option<&Condition>; 5] {
        [
            Some(&self.accepted),
            Some(&self.programmed),
            self.conflicted.as_ref(),
            self.resolved.as_ref(),
            self.patches.as_ref(),
        ]
    }

    /// The JSON form.
    pub fn to_json(&self) -> Value {
        if let Some(kube) = &self.kube {
            return kube.to_json(self.observed);
        }
        // Counts and texts are always serializable.
        let mut proxies = serde_json::to_value(&self.proxies.counts).unwrap_or_default();
        proxies["generation"] = self.proxies.generation.into();
        proxies["lastChanged"] = self.proxies.since.to_string().into();
        let conditions = self.conditions().into_iter().zip(Status::CONDITIONS);
        let conditions = conditions.filter_map(|(condition, name)| Some(condition?.to_json(name, self.observed)));
        json!({
            "observedGeneration": self.observed,
            "conditions": conditions.collect::<Vec<_>>(),
            "proxies": proxies,
        })
    }

    /// Reads a status that [`Status::to_json`] wrote for an object of this kind; `None` for anything else.
    pub fn from_json(kind: Kind, status: &Value) -> Option<Status> {
        if kube::is_kube(kind) {
            let (observed, read) = KubeStatus::from_json(kind, status)?;
            let proxies = Proxies { generation: observed, counts: Counts::default(), since: Timestamp::from_unix(0) };
            return Some(Status::of_parts(observed, read, proxies));
        }
        let conditions = status.get("conditions")?.as_array()?;
        let condition = |name: &str| {
            let found = conditions.iter().find(|c| c["type"] == name)?;
            Condition::from_json(found)
        };
        let proxies = status.get("proxies")?;
        Some(Status {
            observed: status.get("observedGeneration")?.as_i64()?,
            accepted: condition("Accepted")?,
            programmed: condition("Programmed")?,
            conflicted: condition("Conflicted"),
            resolved: condition("ResolvedRefs"),
            patches: condition("PatchesApplied"),
            proxies: Proxies {
                generation: proxies.get("generation")?.as_i64()?,
                counts: serde_json::from_value(proxies.clone()).ok()?,
                since: Timestamp::parse(proxies.get("lastChanged")?.as_str()?)?,
            },
            kube: None,
        })
    }

    fn keep_times(&mut self, before: &Status) {
        let conditions = [
            Some(&mut self.accepted),
            Some(&mut self.programmed),
            self.conflicted.as_mut(),
            self.resolved.as_mut(),
            self.patches.as_mut(),
        ];
        for (now, before) in conditions.into_iter().zip(before.conditions()) {
            if let (Some(now), Some(before)) = (now, before)
                && now.truth == before.truth
            {
                now.since = before.since;
            }
        }
        if self.proxies.says_the_same(&before.proxies) {
            self.proxies.since = before.proxies.since;
        }
    }
}

impl Proxies {
    fn says_the_same(&self, other: &Proxies) -> bool {
        self.generation == other.generation && self.counts == other.counts
    }
}

impl Condition {
    pub(crate) fn new(truth: Truth, reason: &str, message: &str, since: Timestamp) -> Condition {
        Condition { truth, reason: reason.to_owned(), message: cut(message), since }
    }

    /// Whether both are equal except for their timestamps.
    pub(crate) fn says_the_same(&self, other: &Condition) -> bool {
        (self.truth, &self.reason, &self.message) == (other.truth, &other.reason, &other.message)
    }

    pub(crate) fn to_json(&self, name: &str, observed: i64) -> Value {
        json!({
            "type": name,
            "status": self.truth.name(),
            "reason": self.reason,
            "message": self.message,
            "observedGeneration": observed,
            "lastTransitionTime": self.since.to_string(),
        })
    }

    pub(crate) fn from_json(condition: &Value) -> Option<Condition> {
        Some(Condition {
            truth: Truth::find(condition["status"].as_str()?)?,
            reason: text(condition, "reason"),
            message: text(condition, "message"),
            since: Timestamp::parse(condition["lastTransitionTime"].as_str()?)?,
        })
    }
}

impl Truth {
    const ALL: [Truth; 3] = [Truth::True, Truth::False, Truth::Unknown];

    /// The name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Truth::True => "True",
            Truth::False => "False",
            Truth::Unknown => "Unknown",
        }
    }

    fn find(name: &str) -> Option<Truth> {
        Truth::ALL.into_iter().find(|truth| truth.name() == name)
    }
}

impl Counts {
    /// Truncates messages to the lengths that are written.
    pub(crate) fn bounded(mut self) -> Counts {
        if let Some(nack) = &mut self.nack {
            nack.message = cut(&nack.message);
            nack.resource = cut(&nack.resource);
        }
        self.unmade.truncate(UNMADE);
        for one in &mut self.unmade {
            one.resource = cut_to(&one.resource, NAME);
            one.why = cut_to(&one.why, NAME);
        }
        self
    }
}

fn programmed(
    verdict: &Verdict,
    without_effect: &str,
    effective: Option<i64>,
    counts: &Counts,
    now: Timestamp,
) -> Condition {
    let proxies = |count: usize| format!("{count} of {} proxies", counts.total);
    let (truth, reason, message) = match (verdict.accepted, effective, &counts.nack) {
        (false, None, _) => (Truth::False, "Invalid", "nothing of the object is in effect".to_owned()),
        (false, Some(generation), _) => {
            let message = format!("generation {generation} is still in effect");
            (Truth::False, "Invalid", message)
        }
        (true, ..) if counts.rejected > 0 => {
            let words = counts.nack.as_ref();
            let words = words.map_or(String::new(), |one| format!("; {}: {}", one.proxy, one.message));
            let verb = if counts.rejected == 1 { "rejects" } else { "reject" };
            let message = format!("{} {verb} it{words}", proxies(counts.rejected));
            (Truth::False, "Rejected", message)
        }
        (true, ..) if !verdict.idle.is_empty() => (Truth::False, "NotImplemented", verdict.idle.clone()),
        (true, ..) if !without_effect.is_empty() => (Truth::False, "NoEffect", without_effect.to_owned()),
        // What protects nothing must not look as if it did.
        (true, ..) if counts.total == 0 && verdict.protects => {
            (Truth::False, "NoProxies", "no connected proxy enforces it".to_owned())
        }
        (true, ..) if counts.total == 0 => (Truth::True, "NoProxies", "no connected proxy needs it".to_owned()),
        (true, ..) if counts.pending > 0 => {
            let verb = if counts.pending == 1 { "has" } else { "have" };
            let message = format!("{} {verb} not answered yet", proxies(counts.pending));
            (Truth::Unknown, "Pending", message)
        }
        (true, ..) => (Truth::True, "Programmed", "all proxies that need it run it".to_owned()),
    };
    Condition::new(truth, reason, &message, now)
}

/// `spec.configPatches[1]: left out of 3 resources (0.0.0.0_80: …); spec.configPatches[2]: …`.
fn summary(unmade: &[SkippedPatch]) -> String {
    let one = |unmade: &SkippedPatch| {
        let SkippedPatch { index, resources, resource, why } = unmade;
        match resources {
            0 => format!(
                "spec.configPatches[{index}]: nothing that a connected proxy has is what it matches, or has the place that it \
                 names"
            ),
            1 => format!("spec.configPatches[{index}]: left out of {resource}: {why}"),
            more => format!("spec.configPatches[{index}]: left out of {more} resources, of {resource} for one: {why}"),
        }
    };
    unmade.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// A condition that is present only if there is a message.
fn condition(truth: Truth, reason: &str, message: &str, now: Timestamp) -> Option<Condition> {
    (!message.is_empty()).then(|| Condition::new(truth, reason, message, now))
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

/// Truncates to [`TEXT`] bytes.
fn cut(text: &str) -> String {
    cut_to(text, TEXT)
}

/// Truncates to `limit` bytes, which must be more than three.
fn cut_to(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(limit.saturating_sub(4))])
}
