//! Scopes, queries and lists.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::{Change, Error, FieldSelector, GroupResource, Key, LabelSelector, Revision, Stored};

/// A set of objects: all, those of a type, of a type and namespace, or one.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Scope {
    /// The type; `None` for all.
    pub resource: Option<GroupResource>,
    /// The namespace; `None` for all.
    pub namespace: Option<Arc<str>>,
    /// The name; `None` for all.
    pub name: Option<Arc<str>>,
}

impl Scope {
    /// Whether an object is in the scope.
    pub fn contains(&self, key: &Key) -> bool {
        self.resource.as_ref().is_none_or(|resource| *resource == key.resource)
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == key.namespace)
            && self.name.as_ref().is_none_or(|name| *name == key.name)
    }
}

/// The revision at which a query is answered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum At {
    /// The newest revision: includes everything acknowledged before the call.
    #[default]
    Latest,
    /// This revision or any later one.
    NotOlderThan(Revision),
    /// Exactly this revision.
    Exactly(Revision),
}

/// A query for objects of one type.
#[derive(Clone, Debug)]
pub struct Query {
    /// The type.
    pub resource: GroupResource,
    /// The namespace; `None` for all.
    pub namespace: Option<Arc<str>>,
    /// The label selector.
    pub labels: LabelSelector,
    /// The field selector.
    pub fields: FieldSelector,
    /// The maximum number of objects; 0 for no limit.
    pub limit: usize,
    /// The revision. Ignored if `after` is set, because the token has one.
    pub at: At,
    /// Continues after an earlier page.
    pub after: Option<Continue>,
}

impl Query {
    /// A query for all current objects of a type.
    pub fn of(resource: GroupResource) -> Query {
        Query {
            resource,
            namespace: None,
            labels: LabelSelector::default(),
            fields: FieldSelector::default(),
            limit: 0,
            at: At::Latest,
            after: None,
        }
    }

    /// Whether the selectors match an object of the type and namespace.
    pub fn selects(&self, object: &Stored) -> bool {
        self.labels.matches(&object.labels) && self.fields.matches(object)
    }

    /// The scope without the selectors.
    pub fn scope(&self) -> Scope {
        Scope { resource: Some(self.resource.clone()), namespace: self.namespace.clone(), name: None }
    }

    /// The change as seen by a watch with these selectors: an object that starts to match is added, one that stops
    /// matching is deleted. `None` if the watch does not see it.
    pub fn sees<'a>(&self, change: &'a Change) -> Option<Seen<'a>> {
        let key = &change.key;
        if key.resource != self.resource || self.namespace.as_ref().is_some_and(|namespace| *namespace != key.namespace)
        {
            return None;
        }
        let was = change.before.as_ref().filter(|object| self.selects(object));
        let is = change.after.as_ref().filter(|object| self.selects(object));
        match (was, is) {
            (None, Some(object)) => Some(Seen::Added(object)),
            (Some(_), Some(object)) => Some(Seen::Modified(object)),
            (Some(_), None) => change.gone().map(Seen::Deleted),
            (None, None) => None,
        }
    }
}

/// A change as seen by a watch with selectors.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// The object starts to match.
    Added(&'a Stored),
    /// The object matched before and still does.
    Modified(&'a Stored),
    /// The object was deleted or stops matching: its last matching version, with the revision of the change.
    Deleted(&'a Stored),
}

/// The result of a [`Query`].
#[derive(Clone, Debug)]
pub struct List {
    /// The objects, ordered by namespace and name.
    pub items: Vec<Stored>,
    /// The revision of the list.
    pub revision: Revision,
    /// Where to continue; `None` if the list is complete.
    pub next: Option<Continue>,
    /// The number of remaining objects, if known. Unknown with selectors.
    pub remaining: Option<u64>,
}

/// A continue token: the revision of the list and the last object of the page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Continue {
    /// The revision of all pages.
    pub revision: Revision,
    /// The namespace of the last object.
    pub namespace: Arc<str>,
    /// The name of the last object.
    pub name: Arc<str>,
}

impl Continue {
    /// The maximum length of a token, in bytes.
    const LIMIT: usize = 2048;

    /// Encodes the token for clients.
    pub fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(format!("v1\n{}\n{}\n{}", self.revision, self.namespace, self.name))
    }

    /// Decodes a token.
    ///
    /// # Errors
    /// [`Error::InvalidContinue`].
    pub fn decode(token: &str) -> Result<Continue, Error> {
        if token.len() > Continue::LIMIT {
            return Err(Error::InvalidContinue);
        }
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| Error::InvalidContinue)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| Error::InvalidContinue)?;
        let parts: Vec<&str> = text.split('\n').collect();
        let ["v1", revision, namespace, name] = parts[..] else {
            return Err(Error::InvalidContinue);
        };
        let token = Continue {
            revision: revision.parse().map_err(|_| Error::InvalidContinue)?,
            namespace: namespace.into(),
            name: name.into(),
        };
        // Numbers have several spellings, but a valid token has only one.
        let same = token.revision.to_string() == *revision && !token.name.is_empty();
        if same { Ok(token) } else { Err(Error::InvalidContinue) }
    }
}
