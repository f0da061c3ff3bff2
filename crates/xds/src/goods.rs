//! The last acknowledged versions of resources that changed, for a time: what clients are sent if they reject the change.

use std::collections::VecDeque;
use std::hash::Hash;

use model::xds::Resource;
use rustc_hash::FxHashMap;

use crate::Moment;

/// The time for which a version is kept.
const KEPT: Moment = Moment::from_secs(600);
/// The maximum size of all versions in bytes; the oldest are dropped.
const BYTES: usize = 16 << 20;

/// The versions, by the cell of the resource.
pub(crate) struct Goods<C> {
    by_cell: FxHashMap<C, (Resource, u64)>,
    order: VecDeque<(Moment, C, u64)>,
    bytes: usize,
    serial: u64,
}

impl<C: Copy + Eq + Hash> Goods<C> {
    pub(crate) fn new() -> Goods<C> {
        Goods { by_cell: FxHashMap::default(), order: VecDeque::new(), bytes: 0, serial: 0 }
    }

    pub(crate) fn get(&self, cell: C) -> Option<&Resource> {
        self.by_cell.get(&cell).map(|(resource, _)| resource)
    }

    /// Keeps a version, in place of an older one of the same cell.
    pub(crate) fn keep(&mut self, cell: C, resource: Resource, now: Moment) {
        self.serial += 1;
        self.bytes += resource.len();
        if let Some((old, _)) = self.by_cell.insert(cell, (resource, self.serial)) {
            self.bytes -= old.len();
        }
        self.order.push_back((now, cell, self.serial));
        while let Some((at, cell, serial)) = self.order.front().copied()
            && (at + KEPT < now || self.bytes > BYTES || !self.is_current(cell, serial))
        {
            self.order.pop_front();
            if self.is_current(cell, serial)
                && let Some((old, _)) = self.by_cell.remove(&cell)
            {
                self.bytes -= old.len();
            }
        }
        // Cells that change all the time leave a place in the order each time.
        if self.order.len() > 2 * self.by_cell.len() + 64 {
            let by_cell = &self.by_cell;
            self.order.retain(|(_, cell, serial)| by_cell.get(cell).is_some_and(|(_, current)| current == serial));
        }
    }

    /// Drops the version of a cell that is closed: the origin may use its number for another resource.
    pub(crate) fn forget(&mut self, cell: C) {
        if let Some((old, _)) = self.by_cell.remove(&cell) {
            self.bytes -= old.len();
        }
    }

    fn is_current(&self, cell: C, serial: u64) -> bool {
        self.by_cell.get(&cell).is_some_and(|(_, current)| *current == serial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_kept_for_a_time_and_within_a_limit() {
        let mut goods = Goods::new();
        let of = |len: usize| Resource::new("a", vec![0; len]);
        goods.keep(1, of(1), Moment::ZERO);
        goods.keep(2, of(1), Moment::ZERO);
        goods.keep(1, of(2), Moment::from_secs(300));
        assert_eq!(goods.get(1).map(Resource::len), Some(2));
        goods.keep(3, of(1), KEPT + Moment::from_secs(1));
        assert!(goods.get(1).is_some() && goods.get(2).is_none(), "it is too old");
        goods.keep(4, of(BYTES - 2), KEPT + Moment::from_secs(1));
        assert!(goods.get(1).is_none() && goods.get(3).is_some() && goods.get(4).is_some(), "they are too large");
        goods.forget(4);
        assert!(goods.get(4).is_none() && goods.bytes == 1, "another resource may be there");
        (0..1000).for_each(|_| goods.keep(3, of(1), KEPT + Moment::from_secs(1)));
        assert!(goods.order.len() < 200);
    }
}
