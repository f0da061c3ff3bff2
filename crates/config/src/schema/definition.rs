//! Definitions of kinds: names, versions, scope, columns, schema.

use std::sync::Arc;

use crate::object::Kind;
use crate::schema::Schema;

/// A version of a kind. All versions have one schema: only `apiVersion` differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// `v1`, `v1beta1`, …
    pub version: &'static str,
    /// The warning for clients that use it (`deprecationWarning`), if it is deprecated.
    pub deprecated: Option<&'static str>,
}

/// A printer column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// The heading.
    pub name: &'static str,
    /// OpenAPI type: `string`, `integer`, `number`, `boolean`, `date`.
    pub kind: &'static str,
    /// The JSON path of the value, such as `.spec.hosts`. Empty for columns of core kinds that the table printer
    /// computes.
    pub path: &'static str,
    /// 0: always shown; 1: with `-o wide`.
    pub priority: u8,
    /// The description.
    pub description: &'static str,
}

/// The definition of a kind.
#[derive(Clone, Debug)]
pub struct Definition {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The versions that are served, the preferred and stored one first.
    pub versions: &'static [Served],
    /// The name in the field `kind`.
    pub kind: &'static str,
    /// The plural name, as in URL paths.
    pub plural: &'static str,
    /// The singular name.
    pub singular: &'static str,
    /// Short names for the command line.
    pub short_names: &'static [&'static str],
    /// Categories, by which clients request several kinds at once: `istio-io`, `gateway-api`, `all`.
    pub categories: &'static [&'static str],
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Whether `status` is a subresource, which the main resource cannot write.
    pub status: bool,
    /// Whether it is a core kind of Kubernetes and not defined by a CRD.
    pub builtin: bool,
    /// Columns after the name. The age is not in the list for kinds with CRDs.
    pub columns: &'static [Column],
    /// Fields that field selectors support, besides `metadata.name` and `metadata.namespace`.
    pub selectable: &'static [&'static str],
    /// The kind, if the mesh reads it.
    pub mesh: Option<Kind>,
    /// The schema of the whole object with `apiVersion`, `kind` and `metadata`.
    pub schema: Arc<Schema>,
}

impl Definition {
    /// `GROUP/VERSION` of the preferred version, or `VERSION` for the core group.
    pub fn api_version(&self) -> String {
        self.api_version_of(self.versions[0].version)
    }

    /// `GROUP/VERSION`, or `VERSION` for the core group.
    pub fn api_version_of(&self, version: &str) -> String {
        match self.group {
            "" => version.to_owned(),
            group => format!("{group}/{version}"),
        }
    }

    /// The kind of lists of these objects.
    pub fn list_kind(&self) -> String {
        format!("{}List", self.kind)
    }

    /// The served version with this name.
    pub fn served(&self, version: &str) -> Option<&Served> {
        self.versions.iter().find(|served| served.version == version)
    }
}

/// All kinds, by group and plural.
pub fn definitions() -> &'static [Definition] {
    super::all()
}

/// The definition with this plural name.
pub fn find(group: &str, plural: &str) -> Option<&'static Definition> {
    definitions().iter().find(|d| d.group == group && d.plural == plural)
}

/// The definition with this kind.
pub fn find_kind(group: &str, kind: &str) -> Option<&'static Definition> {
    definitions().iter().find(|d| d.group == group && d.kind == kind)
}
