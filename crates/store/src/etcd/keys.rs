//! The key layout in etcd.
//!
//! The key of an object is `PREFIX/GROUP/PLURAL/NAMESPACE!NAME`:
//! `/rutter/networking.istio.io/virtualservices/default!reviews`, `/rutter/core/namespaces/!default`. The separator
//! before the name sorts before all characters of names, so etcd's order is the order of lists (with a slash, `a-b/x`
//! would sort before `a/x`). Below `PREFIX/.deleted/` there is one tombstone of the same form per deleted object,
//! written with the deletion. Histories are read from it.

use std::sync::Arc;

use bytes::Bytes;

use crate::{GroupResource, Key, Scope};

/// Separates namespace and name; sorts before all their characters.
const SEPARATOR: char = '!';
/// Starts an escape sequence for a blank, the separator and itself; sorts next.
const ESCAPE: char = '"';
/// The name of the core group, which is empty in keys.
const CORE_GROUP: &str = "core";

/// The keys below one prefix.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    prefix: Arc<str>,
}

/// A key range: inclusive start, exclusive end. If the end is empty, a single key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Range {
    pub(super) from: Bytes,
    pub(super) end: Bytes,
}

impl Layout {
    /// Keys below this prefix. Trailing slashes are ignored.
    pub(super) fn new(prefix: &str) -> Layout {
        Layout { prefix: prefix.trim_end_matches('/').into() }
    }

    /// The key of an object.
    pub(super) fn key(&self, key: &Key) -> Bytes {
        format!("{}{}", self.folder(&key.resource), place(key)).into()
    }

    /// The tombstone key of a deleted object.
    pub(super) fn tombstone(&self, key: &Key) -> Bytes {
        let prefix = &self.prefix;
        format!("{prefix}/.deleted/{}/{}", kind(&key.resource), place(key)).into()
    }

    /// The range of all tombstones.
    pub(super) fn tombstones(&self) -> Range {
        Range::below(format!("{}/.deleted/", self.prefix))
    }

    /// A key that never exists.
    pub(super) fn unused(&self) -> Bytes {
        format!("{}/.nowhere", self.prefix).into()
    }

    /// The smallest range that contains a scope.
    pub(super) fn range(&self, scope: &Scope) -> Range {
        let Some(resource) = &scope.resource else {
            return Range::below(format!("{}/", self.prefix));
        };
        let folder = self.folder(resource);
        match (&scope.namespace, &scope.name) {
            (None, _) => Range::below(folder),
            (Some(namespace), None) => Range::below(format!("{folder}{}{SEPARATOR}", escaped(namespace))),
            (Some(namespace), Some(name)) => Range {
                from: format!("{folder}{}{SEPARATOR}{}", escaped(namespace), escaped(name)).into(),
                end: Bytes::new(),
            },
        }
    }

    /// Parses the key of an object. `None` for other keys.
    pub(super) fn parse(&self, key: &[u8]) -> Option<Key> {
        let key = std::str::from_utf8(key).ok()?;
        let rest = key.strip_prefix(&*self.prefix)?.strip_prefix('/')?;
        let mut parts = rest.splitn(3, '/');
        let (group, plural, place) = (parts.next()?, parts.next()?, parts.next()?);
        let (namespace, name) = place.split_once(SEPARATOR)?;
        if group.starts_with('.') || plural.is_empty() || name.is_empty() {
            return None;
        }
        let group = if group == CORE_GROUP { String::new() } else { plain(group)? };
        let resource = GroupResource::new(group, plain(plural)?);
        Some(Key::new(resource, unescaped(namespace)?, unescaped(name)?))
    }

    fn folder(&self, resource: &GroupResource) -> String {
        format!("{}/{}/", self.prefix, kind(resource))
    }
}

impl Range {
    /// All keys with this prefix.
    fn below(prefix: String) -> Range {
        let mut end = prefix.clone().into_bytes();
        // The last byte is a slash or a separator, which have a successor.
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        Range { from: prefix.into(), end: end.into() }
    }

    /// The part of the range after a key.
    pub(super) fn after(&self, key: &[u8]) -> Range {
        let mut from = key.to_vec();
        from.push(0);
        Range { from: from.into(), end: self.end.clone() }
    }
}

fn kind(resource: &GroupResource) -> String {
    let group = match &*resource.group {
        "" => CORE_GROUP.to_owned(),
        // No such group exists, but it must not be mapped to another.
        CORE_GROUP => "%63ore".to_owned(),
        group => coded(group),
    };
    format!("{group}/{}", coded(&resource.plural))
}

fn place(key: &Key) -> String {
    format!("{}{SEPARATOR}{}", escaped(&key.namespace), escaped(&key.name))
}

/// Percent-encodes the structural characters of a group or plural.
fn coded(text: &str) -> String {
    let mut coded = String::with_capacity(text.len());
    for (index, letter) in text.char_indices() {
        match letter {
            '%' => coded.push_str("%25"),
            '/' => coded.push_str("%2f"),
            '.' if index == 0 => coded.push_str("%2e"),
            other => coded.push(other),
        }
    }
    coded
}

fn plain(coded: &str) -> Option<String> {
    let mut plain = String::with_capacity(coded.len());
    let mut pieces = coded.split('%');
    plain.push_str(pieces.next()?);
    for piece in pieces {
        let letter = u8::from_str_radix(piece.get(..2)?, 16).ok()?;
        plain.push(char::from(letter));
        plain.push_str(&piece[2..]);
    }
    Some(plain)
}

/// Escapes a namespace or name. Preserves the order.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            ' ' => escaped.extend([ESCAPE, '0']),
            SEPARATOR => escaped.extend([ESCAPE, '1']),
            ESCAPE => escaped.extend([ESCAPE, '2']),
            other => escaped.push(other),
        }
    }
    escaped
}

fn unescaped(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        plain.push(match letter {
            ESCAPE => match letters.next()? {
                '0' => ' ',
                '1' => SEPARATOR,
                '2' => ESCAPE,
                _ => return None,
            },
            other => other,
        });
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(group: &str, plural: &str, namespace: &str, name: &str) -> Key {
        Key::new(GroupResource::new(group, plural), namespace, name)
    }

    #[test]
    fn keys_are_readable() {
        let layout = Layout::new("/rutter/");
        let reviews = key("networking.istio.io", "virtualservices", "default", "reviews");
        assert_eq!(layout.key(&reviews), "/rutter/networking.istio.io/virtualservices/default!reviews");
        assert_eq!(layout.key(&key("", "namespaces", "", "default")), "/rutter/core/namespaces/!default");
        let tombstone = layout.tombstone(&reviews);
        assert_eq!(tombstone, "/rutter/.deleted/networking.istio.io/virtualservices/default!reviews");
        assert_eq!(layout.parse(&tombstone), None);
        assert_eq!(layout.parse(&layout.unused()), None);
        assert_eq!(layout.parse(b"/other/core/pods/a!b"), None);
        assert_eq!(layout.parse(b"\xff"), None);
    }

    fn inside(range: &Range, key: &Bytes) -> bool {
        match range.end.is_empty() {
            true => *key == range.from,
            false => *key >= range.from && *key < range.end,
        }
    }

    /// Texts of relevant characters: letters, the separators of the layout, and their neighbors.
    fn word() -> impl Strategy<Value = String> {
        proptest::collection::vec(
            prop_oneof![
                Just('a'),
                Just('b'),
                Just('-'),
                Just('/'),
                Just('.'),
                Just('!'),
                Just('"'),
                Just(' '),
                Just('%'),
                Just('é')
            ],
            0..5,
        )
        .prop_map(|letters| letters.into_iter().collect())
    }

    fn any_key() -> impl Strategy<Value = Key> {
        let group = prop_oneof![Just(String::new()), Just("core".to_owned()), word()];
        (group, word(), word(), word()).prop_map(|(g, p, ns, n)| key(&g, &format!("p{p}"), &ns, &format!("n{n}")))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn keys_survive_a_round_trip_in_order_and_in_their_ranges(a in any_key(), b in any_key()) {
            let layout = Layout::new("/x");
            let (at, bt) = (layout.key(&a), layout.key(&b));
            prop_assert_eq!(layout.parse(&at), Some(a.clone()));
            if a.resource == b.resource {
                prop_assert_eq!(a.cmp(&b), at.cmp(&bt));
            }
            let resource = Some(a.resource.clone());
            let namespace = Some(a.namespace.clone());
            let scopes = [
                Scope::default(),
                Scope { resource: resource.clone(), ..Scope::default() },
                Scope { resource: resource.clone(), namespace: namespace.clone(), name: None },
                Scope { resource, namespace, name: Some(a.name.clone()) },
            ];
            for scope in scopes {
                prop_assert!(inside(&layout.range(&scope), &at));
                prop_assert_eq!(inside(&layout.range(&scope), &bt), scope.contains(&b), "{:?}", scope);
            }
        }

        #[test]
        fn no_key_causes_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let layout = Layout::new("");
            let _ = layout.parse(&bytes);
            let _ = layout.parse(&[b"/core/", &bytes[..]].concat());
        }
    }
}
