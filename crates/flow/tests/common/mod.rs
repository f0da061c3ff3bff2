//! Helpers of several tests.
#![allow(dead_code, unused_macros, unused_imports)]

/// Declares a relation: `relation!(Name, "name", Key, Row)`.
macro_rules! relation {
    ($name:ident, $text:literal, $key:ty, $row:ty) => {
        #[doc = $text]
        pub(crate) struct $name;
        impl flow::Relation for $name {
            const NAME: &'static str = $text;
            type Key = $key;
            type Row = $row;
        }
    };
}

/// Declares an input: `input!(Name, "name", Key, Row)`.
macro_rules! input {
    ($name:ident, $text:literal, $key:ty, $row:ty) => {
        relation!($name, $text, $key, $row);
        impl flow::Input for $name {}
    };
}

/// Declares a rule: `rule!(Name, "name", Key, Row, |cx, key| ...)`.
macro_rules! rule {
    ($name:ident, $text:literal, $key:ty, $row:ty, |$cx:ident, $of:ident| $body:expr) => {
        relation!($name, $text, $key, $row);
        impl flow::Rule for $name {
            fn derive($cx: &flow::Reads<'_>, $of: &$key) -> Option<$row> {
                $body
            }
        }
    };
}

/// Declares an index: `index!(Name, "name", Key, Of, |key, row| ...)`.
macro_rules! index {
    ($name:ident, $text:literal, $key:ty, $of:ty, |$member:ident, $row:ident| $body:expr) => {
        relation!($name, $text, $key, flow::Members<<$of as flow::Relation>::Key>);
        impl flow::Index for $name {
            type Of = $of;
            fn keys($member: &<$of as flow::Relation>::Key, $row: &<$of as flow::Relation>::Row) -> Vec<$key> {
                $body
            }
        }
    };
}

pub(crate) use {index, input, relation, rule};

/// A batch of writes to one input; `None` removes.
pub(crate) fn batch<T: flow::Input>(writes: impl IntoIterator<Item = (T::Key, Option<T::Row>)>) -> flow::Batch {
    let mut batch = flow::Batch::new();
    for (key, row) in writes {
        match row {
            Some(row) => batch.put::<T>(key, row),
            None => batch.remove::<T>(key),
        }
    }
    batch
}

/// Commits one write.
pub(crate) fn put<T: flow::Input>(engine: &mut flow::Engine, key: T::Key, row: T::Row) -> flow::Delta {
    engine.commit(batch::<T>([(key, Some(row))]))
}

/// Commits one removal.
pub(crate) fn remove<T: flow::Input>(engine: &mut flow::Engine, key: T::Key) -> flow::Delta {
    engine.commit(batch::<T>([(key, None)]))
}

/// Checks the engine's bookkeeping, and compares it with a recomputation.
pub(crate) fn sound(engine: &flow::Engine) {
    assert_eq!(engine.audit(), Ok(()));
    assert_eq!(engine.agree(&engine.recompute()), Ok(()));
}

/// Reproducible random numbers (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize) % end
    }

    /// True with a probability of one in `times`.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}
