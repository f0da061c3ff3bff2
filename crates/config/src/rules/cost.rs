//! The cost limit of rules.
//!
//! The evaluator cannot be interrupted, so the cost is estimated beforehand: a rule with nested comprehensions visits at
//! most the length of the longest list to the power of the nesting depth.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{EntryExpr, Expr};
use serde_json::Value as Json;

/// Steps for all rules of an object.
const TOTAL: u64 = 4_000_000;
/// Steps for one evaluation of one rule.
const SINGLE: u64 = 1_000_000;

/// The remaining steps.
pub(super) struct Budget {
    left: u64,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { left: TOTAL }
    }
}

impl Budget {
    /// Takes the cost of a rule with this nesting depth of comprehensions; false if the budget does not cover it.
    pub(super) fn spend(&mut self, loops: u32, value: &Json) -> bool {
        let cost = if loops == 0 { 1 } else { longest(value).saturating_pow(loops) };
        match self.left.checked_sub(cost) {
            Some(left) if cost <= SINGLE => {
                self.left = left;
                true
            }
            _ => false,
        }
    }
}

/// The length of the longest list or map in a value.
fn longest(value: &Json) -> u64 {
    let (own, inner) = match value {
        Json::Array(list) => (list.len(), list.iter().map(longest).max()),
        Json::Object(object) => (object.len(), object.values().map(longest).max()),
        _ => (1, None),
    };
    u64::try_from(own).unwrap_or(u64::MAX).max(inner.unwrap_or(1))
}

/// Nesting depth of comprehensions in an expression.
pub(super) fn loops(expression: &IdedExpr) -> u32 {
    let most = |inner: &mut dyn Iterator<Item = &IdedExpr>| inner.map(loops).max().unwrap_or(0);
    match &expression.expr {
        Expr::Comprehension(inner) => {
            let body = most(&mut [&inner.loop_cond, &inner.loop_step, &inner.result].into_iter());
            (1 + body).max(loops(&inner.iter_range)).max(loops(&inner.accu_init))
        }
        Expr::Call(call) => most(&mut call.target.iter().map(|target| &**target).chain(&call.args)),
        Expr::List(list) => most(&mut list.elements.iter()),
        Expr::Map(map) => map.entries.iter().map(|entry| entry_loops(&entry.expr)).max().unwrap_or(0),
        Expr::Struct(structure) => structure.entries.iter().map(|entry| entry_loops(&entry.expr)).max().unwrap_or(0),
        Expr::Select(select) => loops(&select.operand),
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => 0,
    }
}

fn entry_loops(entry: &EntryExpr) -> u32 {
    match entry {
        EntryExpr::StructField(field) => loops(&field.value),
        EntryExpr::MapEntry(entry) => loops(&entry.key).max(loops(&entry.value)),
    }
}
