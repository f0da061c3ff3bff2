//! What may be asked for.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::{Change, Error, FieldSelector, GroupResource, Key, LabelSelector, Revision, Stored};

/// Which objects are meant: all, those of a type, of a type and namespace, or one.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Scope {
    /// The type; none: all.
    pub resource: Option<GroupResource>,
    /// The namespace; none: all.
    pub namespace: Option<Arc<str>>,
    /// The name; none: all.
    pub name: Option<Arc<str>>,
}

impl Scope {
    /// Whether an object belongs to it.
    pub fn contains(&self, key: &Key) -> bool {
        self.resource.as_ref().is_none_or(|resource| *resource == key.resource)
            && self
                .namespace
                .as_ref()
                .is_none_or(|namespace| *namespace == key.namespace)
            && self.name.as_ref().is_none_or(|name| *name == key.name)
    }
}

/// As of when.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum At {
    /// Now: everything that was answered before the question is seen.
    #[default]
    Latest,
    /// This revision or any later one.
    NotOlderThan(Revision),
    /// This revision.
    Exactly(Revision),
}

/// A question for a list of objects of one type.
#[derive(Clone, Debug)]
pub struct Query {
    /// The type.
    pub resource: GroupResource,
    /// The namespace; none: all.
    pub namespace: Option<Arc<str>>,
    /// Which labels they must have.
    pub labels: LabelSelector,
    /// Which values their fields must have.
    pub fields: FieldSelector,
    /// How many at most; 0: all.
    pub limit: usize,
    /// As of when. With `after` it is what the token says.
    pub at: At,
    /// Where an earlier answer ended.
    pub after: Option<Continue>,
}

impl Query {
    /// All objects of a type, now.
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

    /// Whether an object of the type and namespace is selected.
    pub fn selects(&self, object: &Stored) -> bool {
        self.labels.matches(&object.labels) && self.fields.matches(object)
    }

    /// The objects that it is about before selecting.
    pub fn scope(&self) -> Scope {
        Scope {
            resource: Some(self.resource.clone()),
            namespace: self.namespace.clone(),
            name: None,
        }
    }

    /// What somebody who follows the selected objects sees of a change: an object that enters the selection is added, one
    /// that leaves it is deleted. None: nothing.
    pub fn sees<'a>(&self, change: &'a Change) -> Option<Seen<'a>> {
        let key = &change.key;
        if key.resource != self.resource
            || self
                .namespace
                .as_ref()
                .is_some_and(|namespace| *namespace != key.namespace)
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

/// What a follower of a selection sees of one change.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// The object is new in the selection.
    Added(&'a Stored),
    /// It was selected and still is.
    Modified(&'a Stored),
    /// It is deleted or not selected any more: what it was, with the revision of the change.
    Deleted(&'a Stored),
}

/// The answer to a [`Query`].
#[derive(Clone, Debug)]
pub struct List {
    /// The objects, ascending by namespace and name.
    pub items: Vec<Stored>,
    /// As of when.
    pub revision: Revision,
    /// Where to go on; none: that is all.
    pub next: Option<Continue>,
    /// How many are left, where that is known (it is not with selectors).
    pub remaining: Option<u64>,
}

/// Where an answer ended: the revision that it was as of and the last object in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Continue {
    /// The revision that all answers of the list are as of.
    pub revision: Revision,
    /// The namespace of the last object.
    pub namespace: Arc<str>,
    /// The name of the last object.
    pub name: Arc<str>,
}

impl Continue {
    /// No token is longer.
    const LIMIT: usize = 2048;

    /// The token as text for clients.
    pub fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(format!("v1\n{}\n{}\n{}", self.revision, self.namespace, self.name))
    }

    /// Reads a token.
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
        // Numbers have several spellings; a token has one.
        let same = token.revision.to_string() == *revision && !token.name.is_empty();
        if same { Ok(token) } else { Err(Error::InvalidContinue) }
    }
}
