//! Where objects lie in etcd.
//!
//! An object is at `PREFIX/GROUP/PLURAL/NAMESPACE!NAME`: `/rutter/networking.istio.io/virtualservices/default!reviews`,
//! `/rutter/core/namespaces/!default`. The mark before the name sorts before everything that names are made of, so that
//! etcd's order is the order of lists (with a slash `a-b/x` would come before `a/x`). Below `PREFIX/.deleted/` there is
//! one key of the same form per deleted object, written with the deletion, from which its history is read.

use std::sync::Arc;

use bytes::Bytes;

use crate::{GroupResource, Key, Scope};

/// Between namespace and name; sorts before everything that they may have.
const MARK: char = '!';
/// Begins what stands for a blank, the mark and itself; sorts next.
const ESCAPE: char = '"';
/// What the core group, whose name is empty, is called.
const CORE: &str = "core";

/// The names of keys below one prefix.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    prefix: Arc<str>,
}

/// Keys from the first up to, and without, the second; where that is empty only the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Range {
    pub(super) from: Bytes,
    pub(super) end: Bytes,
}

impl Layout {
    /// Keys below this prefix; slashes at its end do not matter.
    pub(super) fn new(prefix: &str) -> Layout {
        Layout {
            prefix: prefix.trim_end_matches('/').into(),
        }
    }

    /// Where an object is.
    pub(super) fn key(&self, key: &Key) -> Bytes {
        format!("{}{}", self.folder(&key.resource), place(key)).into()
    }

    /// Where it is written that an object was deleted.
    pub(super) fn grave(&self, key: &Key) -> Bytes {
        let prefix = &self.prefix;
        format!("{prefix}/.deleted/{}/{}", kind(&key.resource), place(key)).into()
    }

    /// Where all deletions are.
    pub(super) fn graves(&self) -> Range {
        Range::below(format!("{}/.deleted/", self.prefix))
    }

    /// Where a lock of this name is.
    pub(super) fn lock(&self, name: &str) -> Bytes {
        format!("{}/.lock/{name}", self.prefix).into()
    }

    /// A key at which nothing ever is.
    pub(super) fn nowhere(&self) -> Bytes {
        format!("{}/.nowhere", self.prefix).into()
    }

    /// The least range that holds a scope.
    pub(super) fn range(&self, scope: &Scope) -> Range {
        let Some(resource) = &scope.resource else {
            return Range::below(format!("{}/", self.prefix));
        };
        let folder = self.folder(resource);
        match (&scope.namespace, &scope.name) {
            (None, _) => Range::below(folder),
            (Some(namespace), None) => Range::below(format!("{folder}{}{MARK}", escaped(namespace))),
            (Some(namespace), Some(name)) => Range {
                from: format!("{folder}{}{MARK}{}", escaped(namespace), escaped(name)).into(),
                end: Bytes::new(),
            },
        }
    }

    /// The object that lies at a key; none: no object does.
    pub(super) fn parse(&self, key: &[u8]) -> Option<Key> {
        let key = std::str::from_utf8(key).ok()?;
        let rest = key.strip_prefix(&*self.prefix)?.strip_prefix('/')?;
        let mut parts = rest.splitn(3, '/');
        let (group, plural, place) = (parts.next()?, parts.next()?, parts.next()?);
        let (namespace, name) = place.split_once(MARK)?;
        if group.starts_with('.') || plural.is_empty() || name.is_empty() {
            return None;
        }
        let group = if group == CORE { String::new() } else { plain(group)? };
        let resource = GroupResource::new(group, plain(plural)?);
        Some(Key::new(resource, unescaped(namespace)?, unescaped(name)?))
    }

    fn folder(&self, resource: &GroupResource) -> String {
        format!("{}/{}/", self.prefix, kind(resource))
    }
}

impl Range {
    /// All keys that begin so.
    fn below(prefix: String) -> Range {
        let mut end = prefix.clone().into_bytes();
        // The last byte is a slash or a mark, which have a successor.
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        Range {
            from: prefix.into(),
            end: end.into(),
        }
    }

    /// What of it comes after a key.
    pub(super) fn after(&self, key: &[u8]) -> Range {
        let mut from = key.to_vec();
        from.push(0);
        Range {
            from: from.into(),
            end: self.end.clone(),
        }
    }
}

fn kind(resource: &GroupResource) -> String {
    let group = match &*resource.group {
        "" => CORE.to_owned(),
        // Nobody has such a group, but it must not become another.
        CORE => "%63ore".to_owned(),
        group => coded(group),
    };
    format!("{group}/{}", coded(&resource.plural))
}

fn place(key: &Key) -> String {
    format!("{}{MARK}{}", escaped(&key.namespace), escaped(&key.name))
}

/// A group or plural: what would look like structure is in per cent form.
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

/// A namespace or name with the characters that may not be there as pairs; keeps the order.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            ' ' => escaped.extend([ESCAPE, '0']),
            MARK => escaped.extend([ESCAPE, '1']),
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
                '1' => MARK,
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
        assert_eq!(
            layout.key(&reviews),
            "/rutter/networking.istio.io/virtualservices/default!reviews"
        );
        assert_eq!(
            layout.key(&key("", "namespaces", "", "default")),
            "/rutter/core/namespaces/!default"
        );
        let grave = layout.grave(&reviews);
        assert_eq!(
            grave,
            "/rutter/.deleted/networking.istio.io/virtualservices/default!reviews"
        );
        assert_eq!(layout.parse(&grave), None);
        assert_eq!(layout.parse(&layout.nowhere()), None);
        assert_eq!(layout.parse(b"/other/core/pods/a!b"), None);
        assert_eq!(layout.parse(b"\xff"), None);
    }

    fn inside(range: &Range, key: &Bytes) -> bool {
        match range.end.is_empty() {
            true => *key == range.from,
            false => *key >= range.from && *key < range.end,
        }
    }

    /// Texts of what matters here: letters, the marks of the layout, others around them.
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
        fn every_key_comes_back_in_order_and_in_its_ranges(a in any_key(), b in any_key()) {
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
        fn no_key_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let layout = Layout::new("");
            let _ = layout.parse(&bytes);
            let _ = layout.parse(&[b"/core/", &bytes[..]].concat());
        }
    }
}
