//! The incremental engine: keyed tables, pure rules, exact deltas. It knows nothing of meshes.
//!
//! ```text
//!  Batch ──commit──► inputs ──► indexes ──► rules ──► views ──► Delta (the changed cells)
//!                              each layer re-derives only the cells whose reads changed
//! ```
//!
//! An **input** is a table whose rows are committed in a [`Batch`]. A **rule** derives rows: it is a pure function of a
//! key and of the rows that it reads through [`Reads`]. A **cell** is one key of a relation, with its row if it has
//! one. The engine records the reads of every cell and re-derives the cell only when one of them changes. Relations are
//! settled in the order of registration; a rule reads only relations registered before its own.
//!
//! | declare | register | rows |
//! |---|---|---|
//! | [`input!`] | [`Builder::input`] | committed from outside |
//! | [`index!`] | [`Builder::index`] | the keys of another relation, grouped |
//! | [`rule!`] | [`Builder::world`] | derived for each key of another relation |
//! | [`rule!`] | [`Builder::view`] | derived for keys that are subscribed to or read by a live cell |
//!
//! # Invariants
//!
//! - [`Engine::commit`] settles each affected cell at most once, stops where a row is unchanged, and returns exactly the
//!   cells that changed.
//! - Absence is a read: a rule that looked up a missing key runs again when the key appears.
//! - Cells of one relation do not depend on each other, so they can be derived on several threads
//!   ([`Builder::threads`]). Rows, deltas and cell numbers do not depend on the number of threads.
//! - A panic in a rule is contained. The cell keeps its last good row, the [`Delta`] reports the panic, and the rule
//!   runs again when a row that it read changes.
//! - [`Engine::recompute`] derives everything from the inputs; [`Engine::agree`] compares the result.
//!
//! ```
//! use flow::{Batch, Engine, Reads};
//!
//! flow::input! {
//!     /// The price of each item.
//!     Price: &'static str => u64 = "price";
//!     /// A line of an order: order, item and count.
//!     Line: u32 => (u32, &'static str, u64) = "line";
//! }
//! flow::index! {
//!     /// The lines of each order.
//!     LinesOfOrder: u32 => members of Line = "lines of order", order_of_line;
//! }
//! flow::rule! {
//!     /// The cost of an order; absent while a price is missing.
//!     Total: u32 => u64 = "total", total;
//! }
//!
//! fn order_of_line(_: &u32, (order, _, _): &(u32, &'static str, u64)) -> Vec<u32> {
//!     vec![*order]
//! }
//!
//! fn total(cx: &Reads<'_>, order: &u32) -> Option<u64> {
//!     let lines = cx.get::<LinesOfOrder>(order)?;
//!     let costs = lines.iter().map(|line| {
//!         let (_, item, count) = *cx.get::<Line>(line)?;
//!         Some(count * *cx.get::<Price>(&item)?)
//!     });
//!     costs.sum()
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
mod declare;
mod delta;
mod dependents;
mod edges;
mod engine;
mod erased;
mod fresh;
mod graph;
mod keymap;
mod members;
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
pub use members::{Iter, Members};
pub use reads::Reads;
pub use relation::{Index, Input, Key, Relation, Row, Rule};
pub use schema::{Builder, Kind, OrderError};
pub use stats::{Footprint, RelationStats, Stats};
pub use why::{Why, WhyState};
