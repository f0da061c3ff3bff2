//! The changed objects of a change set, for the log.

use std::collections::BTreeMap;
use std::fmt;

use config::{ChangeSet, Kind, ObjectKey};

/// The number of names of one kind; further ones are counted.
const LISTED: usize = 3;

/// Shows what changed: `Service shop/web; VirtualService shop/a, shop/b, shop/c and 4 more`.
pub(crate) struct Changed<'a>(pub(crate) &'a ChangeSet);

impl fmt::Display for Changed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kinds: BTreeMap<Kind, Vec<&ObjectKey>> = BTreeMap::new();
        for key in self.0.upserts.keys().chain(&self.0.deletes) {
            kinds.entry(key.kind).or_default().push(key);
        }
        for (at, (kind, keys)) in kinds.iter().enumerate() {
            write!(f, "{}{kind}", if at > 0 { "; " } else { "" })?;
            for (at, key) in keys.iter().take(LISTED).enumerate() {
                let separator = if at > 0 { ", " } else { " " };
                match key.namespace.is_empty() {
                    true => write!(f, "{separator}{}", key.name)?,
                    false => write!(f, "{separator}{}/{}", key.namespace, key.name)?,
                }
            }
            if keys.len() > LISTED {
                write!(f, " and {} more", keys.len() - LISTED)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_the_first_names_are_shown() {
        let mut change = ChangeSet::default();
        for name in ["a", "b", "c", "d", "e"] {
            change.delete(ObjectKey::new(Kind::VirtualService, "shop", name));
        }
        change.delete(ObjectKey::new(Kind::Service, "shop", "web"));
        let text = Changed(&change).to_string();
        let mut parts: Vec<&str> = text.split("; ").collect();
        parts.sort_unstable();
        assert_eq!(parts, ["Service shop/web", "VirtualService shop/a, shop/b, shop/c and 2 more"]);
        assert_eq!(Changed(&ChangeSet::default()).to_string(), "");
    }
}
