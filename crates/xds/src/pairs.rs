//! Compares two ascending lists.

use std::cmp::Ordering;

use crate::Name;

/// The rows of two lists, each ascending by name with no name twice. Rows with the same name make a pair.
pub(crate) fn pairs<'a, A, B>(
    first: impl Iterator<Item = (&'a Name, A)>,
    second: impl Iterator<Item = (&'a Name, B)>,
) -> impl Iterator<Item = (&'a Name, Option<A>, Option<B>)> {
    let (mut first, mut second) = (first.peekable(), second.peekable());
    std::iter::from_fn(move || {
        let order = match (first.peek(), second.peek()) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((name, _)), Some((other, _))) => name.cmp(other),
        };
        let one = if order.is_le() { first.next() } else { None };
        let other = if order.is_ge() { second.next() } else { None };
        let name = one.as_ref().map(|(name, _)| *name).or(other.as_ref().map(|(name, _)| *name))?;
        Some((name, one.map(|(_, row)| row), other.map(|(_, row)| row)))
    })
}
