//! Finds which of the resources, or parts of resources, in a rejected response a client rejects.
//!
//! The client is sent responses in which some candidates are replaced ([`Substitute`]): first those that its error suggests,
//! then all. When it accepts one, candidates are put back group by group; a group that is rejected is halved. While a
//! response is rejected, the client uses the last one that it accepted. If no candidate suggests itself, this takes about
//! two responses for each halving of their number.

use std::collections::VecDeque;
use std::sync::Arc;

use model::xds::{ResourceType, Version};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::Name;
use crate::quarantine::{Culprit, Substitute, Target, targets_of};

/// The maximum number of responses.
const STEPS: usize = 256;

/// A candidate.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    /// The resource.
    pub(crate) name: Name,
    /// The part of it.
    pub(crate) part: Option<Name>,
    pub(crate) target: Target,
    /// Replacements, the best first.
    pub(crate) options: Vec<Substitute>,
}

/// The state of a search.
pub(crate) struct Hunt {
    units: Vec<Unit>,
    /// The resources of the units, if the units are parts.
    whole: Vec<Unit>,
    /// Units that may be the culprits, the best guess first.
    guesses: VecDeque<Vec<usize>>,
    /// The option by which units are replaced.
    level: usize,
    /// The units that are replaced; like all groups ascending.
    suspended: Vec<usize>,
    /// Groups of these that may be innocent.
    untested: Vec<Vec<usize>>,
    /// The group that is put back.
    testing: Option<Vec<usize>>,
    /// All bytes that the search accounts for: units and replacements.
    pub(crate) seen: FxHashSet<Target>,
    messages: FxHashMap<Target, Arc<str>>,
    message: Arc<str>,
    steps: usize,
}

/// A search, and what its current step replaces.
pub(crate) struct Search {
    /// The number of the step.
    pub(crate) id: u64,
    pub(crate) hunt: Hunt,
    pub(crate) suspended: Arc<Suspended>,
}

/// The replacements of a step.
pub(crate) type Suspended = FxHashMap<Target, Substitute>;

/// The result of a step.
pub(crate) enum Found {
    /// Send the next response.
    Continue,
    /// The resources and parts that are rejected.
    Culprits(Vec<Culprit>),
    /// The rejection has another cause.
    Nothing,
}

impl Hunt {
    /// A search among these units of a type, or the resources that they are parts of. `guesses` are indices of units.
    pub(crate) fn new(
        kind: ResourceType,
        (units, whole): (Vec<Unit>, Vec<Unit>),
        guesses: Vec<Vec<usize>>,
        message: Arc<str>,
    ) -> Hunt {
        let count = units.len();
        let distinct = |mut guess: Vec<usize>| {
            guess.sort_unstable();
            guess.dedup();
            guess
        };
        let guesses = guesses.into_iter().map(distinct).filter(|guess| !guess.is_empty() && guess.len() < count);
        let mut hunt = Hunt {
            guesses: guesses.collect(),
            seen: accounted(kind, &units, &whole),
            units,
            whole,
            level: 0,
            suspended: Vec::new(),
            untested: Vec::new(),
            testing: None,
            messages: FxHashMap::default(),
            message,
            steps: 0,
        };
        hunt.suspended = hunt.guesses.pop_front().unwrap_or_else(|| (0..count).collect());
        hunt
    }

    /// Begins again with further units.
    pub(crate) fn widened(
        mut self,
        kind: ResourceType,
        (units, whole): (Vec<Unit>, Vec<Unit>),
        message: Arc<str>,
    ) -> Hunt {
        self.units.extend(units);
        self.whole.extend(whole);
        let mut hunt = Hunt::new(kind, (self.units, self.whole), Vec::new(), message);
        hunt.seen.extend(self.seen);
        hunt.steps = self.steps + 1;
        hunt
    }

    /// The units that are replaced now.
    pub(crate) fn suspended(&self) -> Suspended {
        let tested = self.testing.as_deref().unwrap_or_default();
        let suspended = self.suspended.iter().filter(|at| !is_in(tested, **at));
        suspended.map(|at| (self.units[*at].target, self.substitute(*at))).collect()
    }

    fn substitute(&self, at: usize) -> Substitute {
        let options = &self.units[at].options;
        options.get(self.level).or(options.last()).cloned().unwrap_or(Substitute::Nothing)
    }

    /// Whether a unit's replacement differs from it.
    fn is_replaced(&self, at: usize) -> bool {
        match (self.substitute(at), self.units[at].target) {
            (Substitute::Part(body), Target::Part(version)) => Version::of(&body) != version,
            (Substitute::Resource(resource), Target::Resource(version)) => resource.version() != version,
            _ => true,
        }
    }

    /// The client accepted the response.
    pub(crate) fn accepted(&mut self) -> Found {
        match self.testing.take() {
            Some(innocent) => self.suspended.retain(|at| !is_in(&innocent, *at)),
            None if self.suspended.len() > 1 => self.untested = halves(&self.suspended),
            None => {}
        }
        self.next()
    }

    /// The client rejected the response.
    pub(crate) fn rejected(&mut self, message: &Arc<str>) -> Found {
        if let Some(tested) = self.testing.take() {
            match tested.as_slice() {
                [culprit] => drop(self.messages.insert(self.units[*culprit].target, message.clone())),
                tested => self.untested.extend(halves(tested)),
            }
            return self.next();
        }
        let options = self.units.iter().map(|unit| unit.options.len()).max().unwrap_or_default();
        if let Some(guess) = self.guesses.pop_front() {
            self.suspended = guess;
        } else if self.suspended.len() < self.units.len() {
            self.suspended = (0..self.units.len()).collect();
        } else if self.level + 1 < options {
            self.level += 1;
        } else if !self.whole.is_empty() {
            self.units = std::mem::take(&mut self.whole);
            self.seen.extend(self.units.iter().map(|unit| unit.target));
            self.suspended = (0..self.units.len()).collect();
            self.level = 0;
        } else {
            return Found::Nothing;
        }
        self.step()
    }

    fn next(&mut self) -> Found {
        while let Some(group) = self.untested.pop() {
            if group.iter().any(|at| self.is_replaced(*at)) {
                self.testing = Some(group);
                return self.step();
            }
            // The client has accepted these bytes.
            self.suspended.retain(|at| !is_in(&group, *at));
        }
        let culprit = |at: &usize| {
            let Unit { name, part, target, .. } = self.units[*at].clone();
            let message = self.messages.get(&target).unwrap_or(&self.message).clone();
            Culprit { name, part, target, substitute: self.substitute(*at), message }
        };
        Found::Culprits(self.suspended.iter().map(culprit).collect())
    }

    fn step(&mut self) -> Found {
        self.steps += 1;
        if self.steps > STEPS { Found::Nothing } else { Found::Continue }
    }
}

/// The bytes of units, and of all replacements that a search may make.
fn accounted(kind: ResourceType, units: &[Unit], whole: &[Unit]) -> FxHashSet<Target> {
    let mut seen: FxHashSet<Target> = units.iter().map(|unit| unit.target).collect();
    for option in units.iter().chain(whole).flat_map(|unit| &unit.options) {
        match option {
            Substitute::Part(body) => drop(seen.insert(Target::Part(Version::of(body)))),
            Substitute::Resource(resource) => seen.extend(targets_of(kind, resource)),
            Substitute::Nothing => {}
        }
    }
    seen
}

fn is_in(group: &[usize], unit: usize) -> bool {
    group.binary_search(&unit).is_ok()
}

fn halves(group: &[usize]) -> Vec<Vec<usize>> {
    let (one, other) = group.split_at(group.len() / 2);
    vec![one.to_vec(), other.to_vec()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use envoy::types::ROUTE;
    use proptest::prelude::*;

    fn unit(number: u64) -> Unit {
        let options =
            vec![Substitute::Part("good".into()), Substitute::Part("stub".into()), Substitute::Part(Bytes::new())];
        Unit {
            name: "80".into(),
            part: Some(number.to_string().into()),
            target: Target::Part(Version(number)),
            options,
        }
    }

    /// The culprits that a client's answers lead to, and the number of responses.
    fn found(count: u64, bad: &[u64], guess: Vec<usize>) -> (Vec<u64>, usize) {
        let text: Arc<str> = "no".into();
        let mut hunt = Hunt::new(ROUTE, ((0..count).map(unit).collect(), Vec::new()), vec![guess], text.clone());
        for steps in 1.. {
            let suspended = hunt.suspended();
            let is_suspended = |number: &u64| suspended.contains_key(&Target::Part(Version(*number)));
            let result = if bad.iter().all(is_suspended) { hunt.accepted() } else { hunt.rejected(&text) };
            match result {
                Found::Continue => {}
                Found::Culprits(culprits) => {
                    let part = |culprit: Culprit| culprit.part.unwrap().parse().unwrap();
                    return (culprits.into_iter().map(part).collect(), steps);
                }
                Found::Nothing => panic!("lost"),
            }
        }
        unreachable!()
    }

    #[test]
    fn a_right_guess_takes_one_response() {
        assert_eq!(found(50, &[7], vec![7]), (vec![7], 1));
        assert_eq!(found(50, &[7], vec![8]).0, [7], "a wrong one blames nobody");
        assert_eq!(found(1, &[0], vec![]), (vec![0], 1));
        assert_eq!(found(3, &[2], vec![2, 2]), (vec![2], 1), "a unit that is guessed twice is blamed once");
    }

    #[test]
    fn a_rejection_with_another_cause_blames_nobody() {
        let text: Arc<str> = "no".into();
        let mut hunt = Hunt::new(ROUTE, ((0..3).map(unit).collect(), Vec::new()), Vec::new(), text.clone());
        for _ in 0..2 {
            assert!(matches!(hunt.rejected(&text), Found::Continue), "stubs and absence are tried");
        }
        assert!(matches!(hunt.rejected(&text), Found::Nothing));
    }

    proptest! {
        #[test]
        fn all_culprits_and_no_others_are_found(
            count in 1u64..60,
            bad in proptest::collection::btree_set(0u64..60, 1..4),
            guess in proptest::collection::btree_set(0usize..60, 0..3),
        ) {
            let bad: Vec<u64> = bad.into_iter().map(|at| at % count).collect::<std::collections::BTreeSet<_>>().into_iter().collect();
            let guess = guess.into_iter().map(|at| at % count as usize).collect();
            let (mut culprits, steps) = found(count, &bad, guess);
            culprits.sort_unstable();
            prop_assert_eq!(&culprits, &bad);
            prop_assert!(steps <= 3 + 14 * bad.len());
        }
    }
}
