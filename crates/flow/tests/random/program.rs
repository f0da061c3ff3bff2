//! A family of rules that is general enough to represent all rules. Each interprets a program that is itself an input
//! row, so that its reads, their order and whether it has a row depend on data. A second evaluator, without cells and
//! edges, computes the same rows from the inputs alone.

use std::cell::Cell;
use std::collections::BTreeMap;

use flow::{Engine, Members, Reads, Relation};

use crate::common::*;

/// The exclusive upper bound of keys.
pub(crate) const KEYS: u8 = 6;
/// The number of groups in which the keys of a rule share a program.
pub(crate) const PROGRAMS: u8 = 3;

/// A step of a program.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Op {
    /// Reads a row at a distance that depends on previous reads.
    Get(u8, u8),
    /// Tests whether there is a row.
    Contains(u8, u8),
    /// Reads the key set of a relation.
    Keys(u8),
    /// Returns no row if the accumulated value is odd.
    StopIfOdd,
    /// Discards most of the accumulated value, so that rows are often equal.
    Coarsen(u8),
}

input!(Value, "value", u8, i64);
input!(Program, "program", (u8, u8), Vec<Op>);
index!(ByValue, "by value", u8, Value, |key, row| value_keys(*key, *row));
rule!(First, "first", u8, i64, |cx, key| interpret(cx, 3, *key));
rule!(Early, "early", u8, i64, |cx, key| interpret(cx, 4, *key));
index!(ByFirst, "by first", u8, First, |_key, row| first_keys(*row));
rule!(Second, "second", u8, i64, |cx, key| interpret(cx, 6, *key));
index!(BySize, "by size", u8, ByValue, |_key, row| vec![row.len() as u8 % KEYS]);
rule!(Third, "third", u8, i64, |cx, key| interpret(cx, 8, *key));
rule!(Middle, "middle", u8, i64, |cx, key| interpret(cx, 9, *key));
rule!(Late, "late", u8, i64, |cx, key| interpret(cx, 10, *key));

/// The number of relations that programs can name; a relation's number is its position below.
pub(crate) const RELATIONS: u8 = 11;
/// The relations that are not views.
pub(crate) const WORLD: [u8; 7] = [0, 2, 3, 5, 6, 7, 8];

pub(crate) fn engine(threads: usize) -> Engine {
    let mut builder = Engine::builder();
    builder.threads(threads).parallel_from(2);
    builder.input::<Value>().input::<Program>().index::<ByValue>().world::<First, Value>().view::<Early>();
    builder.index::<ByFirst>().world::<Second, First>().index::<BySize>().world::<Third, BySize>();
    builder.view::<Middle>().view::<Late>();
    builder.build()
}

fn value_keys(key: u8, row: i64) -> Vec<u8> {
    let group = row.unsigned_abs() as u8 % KEYS;
    if row % 3 == 0 { vec![group, key] } else { vec![group] }
}

fn first_keys(row: i64) -> Vec<u8> {
    if row == 1 { Vec::new() } else { vec![row.unsigned_abs() as u8 % KEYS] }
}

/// The source of a program's reads: the engine or the evaluator.
trait Source {
    fn row(&self, relation: u8, key: u8) -> Option<i64>;
    fn keys(&self, relation: u8) -> Vec<u8>;
    fn program(&self, rule: u8, group: u8) -> Option<Vec<Op>>;
}

fn interpret(source: &impl Source, rule: u8, key: u8) -> Option<i64> {
    let program = source.program(rule, key % PROGRAMS)?;
    let mut sum = i64::from(key);
    for op in program {
        let place = |offset: u8| (key.wrapping_add(offset).wrapping_add(sum as u8)) % KEYS;
        match op {
            Op::Get(of, offset) if of < rule => match source.row(of, place(offset)) {
                Some(row) => sum = sum.wrapping_mul(5).wrapping_add(row),
                None => sum ^= 0x2A,
            },
            Op::Contains(of, offset) if of < rule => sum += i64::from(source.row(of, place(offset)).is_some()),
            Op::Keys(of) if of < rule => sum += source.keys(of).iter().map(|key| i64::from(*key) + 1).sum::<i64>(),
            Op::StopIfOdd if sum % 2 != 0 => return None,
            Op::Coarsen(rest) => sum %= i64::from(rest) + 1,
            _ => {}
        }
    }
    Some(sum % 7)
}

/// A number that is unique to the list.
fn list<'a>(members: impl IntoIterator<Item = &'a u8>) -> i64 {
    members.into_iter().fold(0, |sum, key| sum * i64::from(KEYS + 1) + i64::from(*key) + 1)
}

impl Source for Reads<'_> {
    fn row(&self, relation: u8, key: u8) -> Option<i64> {
        fn number<R: Relation<Key = u8, Row = i64>>(cx: &Reads<'_>, key: u8) -> Option<i64> {
            cx.get::<R>(&key).map(|row| *row)
        }
        fn group<R: Relation<Key = u8, Row = Members<u8>>>(cx: &Reads<'_>, key: u8) -> Option<i64> {
            cx.with::<R, _>(&key, |row| row.map(list))
        }
        match relation {
            0 => number::<Value>(self, key),
            2 => group::<ByValue>(self, key),
            3 => number::<First>(self, key),
            4 => number::<Early>(self, key),
            5 => group::<ByFirst>(self, key),
            6 => number::<Second>(self, key),
            7 => group::<BySize>(self, key),
            8 => number::<Third>(self, key),
            9 => number::<Middle>(self, key),
            _ => None,
        }
    }

    fn keys(&self, relation: u8) -> Vec<u8> {
        match relation {
            0 => self.keys::<Value>().to_vec(),
            2 => self.keys::<ByValue>().to_vec(),
            3 => self.keys::<First>().to_vec(),
            5 => self.keys::<ByFirst>().to_vec(),
            6 => self.keys::<Second>().to_vec(),
            7 => self.keys::<BySize>().to_vec(),
            8 => self.keys::<Third>().to_vec(),
            _ => Vec::new(),
        }
    }

    fn program(&self, rule: u8, group: u8) -> Option<Vec<Op>> {
        self.get::<Program>(&(rule, group)).map(|program| (*program).clone())
    }
}

/// The inputs, and the rows that follow from them by definition.
#[derive(Default)]
pub(crate) struct Plain {
    pub(crate) values: BTreeMap<u8, i64>,
    pub(crate) programs: BTreeMap<(u8, u8), Vec<Op>>,
    /// The rows computed so far, by relation and key.
    known: Cell<[[Option<Option<i64>>; KEYS as usize]; RELATIONS as usize]>,
}

impl Plain {
    /// Drops computed rows. Call this when inputs change.
    pub(crate) fn forget(&mut self) {
        self.known.take();
    }

    /// The row of a key; for indexes, the number of the list.
    pub(crate) fn get(&self, relation: u8, key: u8) -> Option<i64> {
        let (of, at) = (relation as usize, key as usize);
        if let Some(known) = self.known.get()[of][at] {
            return known;
        }
        let row = self.work_out(relation, key);
        let mut known = self.known.get();
        known[of][at] = Some(row);
        self.known.set(known);
        row
    }

    fn work_out(&self, relation: u8, key: u8) -> Option<i64> {
        let over = match relation {
            0 => return self.values.get(&key).copied(),
            2 | 5 | 7 => {
                let members = self.members(relation, key);
                return (!members.is_empty()).then(|| list(&members));
            }
            3 => Some(0),
            6 => Some(3),
            8 => Some(7),
            _ => None,
        };
        if over.is_some_and(|over| self.get(over, key).is_none()) {
            return None;
        }
        interpret(self, relation, key)
    }

    fn members(&self, index: u8, key: u8) -> Vec<u8> {
        let groups = |member: u8| match index {
            2 => self.get(0, member).map(|row| value_keys(member, row)),
            5 => self.get(3, member).map(first_keys),
            _ => {
                Some(self.members(2, member)).filter(|list| !list.is_empty()).map(|list| vec![list.len() as u8 % KEYS])
            }
        };
        (0..KEYS).filter(|member| groups(*member).is_some_and(|groups| groups.contains(&key))).collect()
    }
}

impl Source for Plain {
    fn row(&self, relation: u8, key: u8) -> Option<i64> {
        self.get(relation, key)
    }

    fn keys(&self, relation: u8) -> Vec<u8> {
        let keys = if WORLD.contains(&relation) { 0..KEYS } else { 0..0 };
        keys.filter(|key| self.get(relation, *key).is_some()).collect()
    }

    fn program(&self, rule: u8, group: u8) -> Option<Vec<Op>> {
        self.programs.get(&(rule, group)).cloned()
    }
}

/// The rows of all relations except for programs, by relation and key; for indexes, the numbers of the lists.
pub(crate) type Rows = [[Option<i64>; KEYS as usize]; RELATIONS as usize];

/// All rows of an engine.
pub(crate) fn rows(engine: &Engine) -> Rows {
    fn number<R: Relation<Key = u8, Row = i64>>(engine: &Engine) -> [Option<i64>; KEYS as usize] {
        std::array::from_fn(|key| engine.get::<R>(&(key as u8)).map(|row| *row))
    }
    fn group<R: Relation<Key = u8, Row = Members<u8>>>(engine: &Engine) -> [Option<i64>; KEYS as usize] {
        std::array::from_fn(|key| engine.get::<R>(&(key as u8)).map(|row| list(&*row)))
    }
    [
        number::<Value>(engine),
        [None; KEYS as usize],
        group::<ByValue>(engine),
        number::<First>(engine),
        number::<Early>(engine),
        group::<ByFirst>(engine),
        number::<Second>(engine),
        group::<BySize>(engine),
        number::<Third>(engine),
        number::<Middle>(engine),
        number::<Late>(engine),
    ]
}
