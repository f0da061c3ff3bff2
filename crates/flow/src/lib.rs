//! The incremental engine: keyed tables, pure rules, exact deltas. It knows nothing of meshes.
//!
//! **Inputs** are tables whose rows are committed in [`Batch`]es. **Rules** derive rows: a rule is a pure function of a
//! key and of what it reads through [`Reads`]. What it read is remembered, and it runs again when any of that changes,
//! and only then. A relation is a table with a name; the order in which relations are registered is the order in which
//! they are settled, and a rule reads only those before its own.
//!
//! - [`Builder::input`]: rows come from outside.
//! - [`Builder::index`]: groups the keys of another relation.
//! - [`Builder::world`]: a rule that holds for each key of another relation.
//! - [`Builder::view`]: a rule that holds for the keys that somebody subscribed to, or that a living cell reads. When the
//!   last of them goes, the cell and its edges go, and so does what only it needed.
//!
//! [`Engine::commit`] settles what a change reaches, each cell at most once, stops where a row comes out equal to the one
//! before, and returns the exact set of changed cells. Absence is a read like any other: a rule that looked for a key in
//! vain runs again when it comes. Cells of one relation do not depend on each other, so that many of them are derived on
//! several threads ([`Builder::threads`]); rows, deltas and the numbers of cells do not depend on how many.
//!
//! A panic in a rule is contained: the cell keeps its last good row, the panic is counted and reported in the
//! [`Delta`], and the rule runs again when anything changes that it had read until then.
//!
//! ```
//! use flow::{Batch, Engine, Index, Input, Members, Reads, Relation, Rule};
//!
//! /// The price of each item.
//! struct Price;
//! impl Relation for Price {
//!     const NAME: &'static str = "price";
//!     type Key = &'static str;
//!     type Row = u64;
//! }
//! impl Input for Price {}
//!
//! /// What each line of an order asks for: order, item and count.
//! struct Line;
//! impl Relation for Line {
//!     const NAME: &'static str = "line";
//!     type Key = u32;
//!     type Row = (u32, &'static str, u64);
//! }
//! impl Input for Line {}
//!
//! /// The lines of each order.
//! struct LinesOfOrder;
//! impl Relation for LinesOfOrder {
//!     const NAME: &'static str = "lines of order";
//!     type Key = u32;
//!     type Row = Members<u32>;
//! }
//! impl Index for LinesOfOrder {
//!     type Of = Line;
//!     fn keys(_: &u32, (order, _, _): &(u32, &'static str, u64)) -> Vec<u32> {
//!         vec![*order]
//!     }
//! }
//!
//! /// What an order costs; none as long as a price is missing.
//! struct Total;
//! impl Relation for Total {
//!     const NAME: &'static str = "total";
//!     type Key = u32;
//!     type Row = u64;
//! }
//! impl Rule for Total {
//!     fn derive(cx: &Reads<'_>, order: &u32) -> Option<u64> {
//!         let lines = cx.get::<LinesOfOrder>(order)?;
//!         let costs = lines.iter().map(|line| {
//!             let (_, item, count) = *cx.get::<Line>(line)?;
//!             Some(count * *cx.get::<Price>(&item)?)
//!         });
//!         costs.sum()
//!     }
//! }
//!
//! let mut relations = Engine::builder();
//! relations.input::<Price>();
//! relations.input::<Line>();
//! relations.index::<LinesOfOrder>();
//! relations.view::<Total>();
//! let mut engine = relations.build();
//!
//! let mut batch = Batch::new();
//! batch.put::<Price>("tea", 3);
//! batch.put::<Line>(1, (7, "tea", 2));
//! batch.put::<Line>(2, (7, "cup", 1));
//! engine.commit(batch);
//!
//! let total = engine.subscribe::<Total>(7);
//! assert_eq!(engine.row::<Total>(total), None, "the cup has no price yet");
//!
//! let mut batch = Batch::new();
//! batch.put::<Price>("cup", 4);
//! batch.put::<Price>("pot", 20);
//! let delta = engine.commit(batch);
//! let changed: Vec<_> = delta.changed::<Total>().map(|(order, total)| (order, total.map(|t| *t))).collect();
//! assert_eq!(changed, [(7, Some(10))]);
//! assert_eq!(delta.runs_of::<Total>().runs, 1);
//! assert_eq!(engine.agree(&engine.recompute()), Ok(()));
//! ```

mod audit;
mod batch;
mod compare;
mod core;
mod delta;
mod dependents;
mod edges;
mod engine;
mod fresh;
mod graph;
mod keymap;
mod members;
mod order;
mod reads;
mod relation;
mod run;
mod schema;
mod settle;
mod show;
mod slots;
mod stats;
mod table;
mod tx;
mod why;

pub use batch::Batch;
pub use compare::Mismatch;
pub use delta::{Change, Delta, Panic, Runs};
pub use dependents::{Dependents, Walk};
pub use engine::Engine;
pub use graph::CellId;
pub use members::Members;
pub use reads::Reads;
pub use relation::{Index, Input, Key, Relation, Row, Rule};
pub use schema::{Builder, Kind};
pub use stats::{Footprint, RelationStats, Stats};
pub use why::{Why, WhyState};
