//! Responses with the resources of a shared ledger and of a proxy's own one, made of the responses of the two. They share the
//! lists of resources and pieces, so that a response to one proxy needs little memory even in a large mesh.

use std::ops::Range;

use crate::Name;
use crate::compose::{Composed, Derived, Envelope, count_pieces, encode_removed, head};
use crate::rope::{Rope, Slice};

impl Composed {
    /// A response with the resources and removals of two.
    pub(crate) fn joined(envelope: &Envelope<'_>, first: &Composed, second: &Composed) -> Composed {
        Composed {
            rope: Rope::new(head(envelope), first.rope.parts().chain(second.rope.parts()).cloned()),
            version: envelope.version.into(),
            nonce: envelope.nonce.into(),
            resources: first.resources + second.resources,
            removed: first.removed.iter().chain(&second.removed).cloned().collect(),
            contents: first.contents.iter().chain(&*second.contents).cloned().collect(),
            names: first.names.iter().chain(&second.names).cloned().collect(),
            fresh: first.fresh.and(&second.fresh),
            derived: Derived::default(),
        }
    }

    /// A response with the resources and removals of an own ledger, and with those of a shared one that none of these rows of the
    /// own one hides; ascending, as both and the rows are. `None` if they are in several lists.
    pub(crate) fn overlaid<'n>(
        envelope: &Envelope<'_>,
        (shared, own): (&Composed, &Composed),
        rows: impl Iterator<Item = &'n Name>,
    ) -> Option<Composed> {
        let ([below], [above]) = (&*shared.contents, &*own.contents) else { return None };
        let mut runs = Runs::default();
        let (mut next, mut own_next) = (0, 0);
        let mut removed = shared.removed.clone();
        for row in rows {
            if let Ok(at) = removed.binary_search(row) {
                removed.remove(at);
            }
            let at = next + below[next..].partition_point(|(name, _)| name < row);
            runs.add(false, next..at);
            next = at + usize::from(below.get(at).is_some_and(|(name, _)| name == row));
            if above.get(own_next).is_some_and(|(name, _)| name == row) {
                runs.add(true, own_next..own_next + 1);
                own_next += 1;
            }
        }
        runs.add(false, next..below.len());
        let mut pieces = Vec::with_capacity(runs.0.len());
        for (is_own, range) in &runs.0 {
            let composed = if *is_own { own } else { shared };
            let offsets = composed.offsets();
            let (start, end) = (*offsets.get(range.start)?, *offsets.get(range.end)?);
            pieces.push(composed.rope.parts().next()?.part(start..end));
        }
        removed.extend(own.removed.iter().cloned());
        removed.sort_unstable();
        pieces.extend(encode_removed(&removed).map(|piece| Slice::from(vec![piece])));
        let contents: Vec<Slice<_>> =
            runs.0.iter().map(|(is_own, range)| if *is_own { above } else { below }.part(range.clone())).collect();
        let names = || contents.iter().flat_map(|some| some.iter()).map(|(name, _)| name.clone());
        Some(Composed {
            rope: Rope::new(head(envelope), pieces),
            version: envelope.version.into(),
            nonce: envelope.nonce.into(),
            resources: contents.iter().map(|some| some.len()).sum(),
            removed,
            names: if shared.names.is_empty() && own.names.is_empty() { Vec::new() } else { names().collect() },
            fresh: shared.fresh.and(&own.fresh),
            derived: Derived::default(),
            contents: contents.into(),
        })
    }

    /// For each of its resources, and for the end, the number of pieces before it. They are counted once, since as many
    /// responses as there are own ledgers are made of a shared one.
    fn offsets(&self) -> &[usize] {
        self.derived.offsets.get_or_init(|| {
            let resources = self.contents.iter().flat_map(|some| some.iter());
            let counts = resources.map(|(_, resource)| count_pieces(resource));
            let ends = counts.scan(0, |end, count| {
                *end += count;
                Some(*end)
            });
            std::iter::once(0).chain(ends).collect()
        })
    }
}

/// Ranges of the lists of a shared and of an own ledger, in the order of a response. `true`: of the own one.
#[derive(Default)]
struct Runs(Vec<(bool, Range<usize>)>);

impl Runs {
    fn add(&mut self, is_own: bool, range: Range<usize>) {
        match self.0.last_mut() {
            _ if range.is_empty() => {}
            Some((last, before)) if *last == is_own && before.end == range.start => before.end = range.end,
            _ => self.0.push((is_own, range)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use envoy::types::CLUSTER;
    use model::xds::Resource;

    use super::*;
    use crate::compose::{Content, Fresh, encode};

    const ENVELOPE: Envelope<'static> =
        Envelope { kind: CLUSTER, delta: true, version: "v", nonce: "n", identifier: "me" };

    fn list(of: &[(&str, usize)]) -> Vec<(Name, Resource)> {
        of.iter().map(|(name, len)| (Name::from(*name), Resource::new(*name, vec![7; *len]))).collect()
    }

    fn composed(resources: Vec<(Name, Resource)>) -> Composed {
        let content = Content { resources, removed: Vec::new() };
        Composed {
            rope: encode(&ENVELOPE, &content),
            version: "v".into(),
            nonce: "n".into(),
            resources: content.resources.len(),
            removed: Vec::new(),
            names: Vec::new(),
            fresh: Fresh::All,
            derived: Derived::default(),
            contents: Arc::new([content.resources.into()]),
        }
    }

    #[test]
    fn rows_of_an_own_ledger_replace_and_hide_shared_resources() {
        // Large bodies are pieces of their own.
        let shared = composed(list(&[("a", 9), ("b", 5000), ("c", 9), ("d", 6000), ("e", 9)]));
        let own = [("a0", 20), ("a1", 7000), ("d", 30), ("f", 9)];
        /// Rows of the own ledger, its resources, and what is expected.
        type Case<'a> = (&'a [&'a str], &'a [(&'a str, usize)], &'a [(&'a str, usize)]);
        let cases: [Case<'_>; 4] = [
            (&[], &[], &[("a", 9), ("b", 5000), ("c", 9), ("d", 6000), ("e", 9)]),
            (&["0", "b", "x"], &[], &[("a", 9), ("c", 9), ("d", 6000), ("e", 9)]),
            (&["a", "b", "c", "d", "e"], &[("c", 3)], &[("c", 3)]),
            (
                &["a0", "a1", "c", "d", "f"],
                &own,
                &[("a", 9), ("a0", 20), ("a1", 7000), ("b", 5000), ("d", 30), ("e", 9), ("f", 9)],
            ),
        ];
        for (rows, own, expected) in cases {
            let rows: Vec<Name> = rows.iter().map(|row| Name::from(*row)).collect();
            let own = composed(list(own));
            let joined = Composed::overlaid(&ENVELOPE, (&shared, &own), rows.iter()).expect("nothing is removed");
            let whole = composed(list(expected));
            assert!(joined.rope.pieces().eq(whole.rope.pieces()), "{rows:?}");
            assert_eq!((joined.rope.len(), joined.resources), (whole.rope.len(), whole.resources));
            let names = |one: &Composed| -> Vec<Name> {
                one.contents.iter().flat_map(|some| some.iter()).map(|(name, _)| name.clone()).collect()
            };
            assert_eq!(names(&joined), names(&whole));
        }
    }
}
