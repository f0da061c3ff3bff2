//! Kinds as clients see them.

use std::sync::Arc;

use crate::object::Kind;
use crate::schema::Schema;

/// A version of a kind. All versions have one schema: only `apiVersion` differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// `v1`, `v1beta1`, …
    pub version: &'static str,
    /// What clients are told when they use it (`deprecationWarning`); none: it is not deprecated.
    pub deprecated: Option<&'static str>,
}

/// A column of the table that clients print.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// The heading.
    pub name: &'static str,
    /// OpenAPI type: `string`, `integer`, `number`, `boolean`, `date`.
    pub kind: &'static str,
    /// Where the value is: a JSON path such as `.spec.hosts`. Core kinds may have columns that no path leads to: empty then,
    /// and whoever prints tables knows the kind.
    pub path: &'static str,
    /// 0: always shown; 1: with `-o wide`.
    pub priority: u8,
    /// What it means.
    pub description: &'static str,
}

/// A kind as clients see it.
#[derive(Clone, Debug)]
pub struct Definition {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The versions that are served, the preferred and stored one first.
    pub versions: &'static [Served],
    /// The name in the field `kind`.
    pub kind: &'static str,
    /// The name in paths.
    pub plural: &'static str,
    /// The name in the singular.
    pub singular: &'static str,
    /// What people type instead.
    pub short_names: &'static [&'static str],
    /// Groups of kinds that clients ask for at once: `istio-io`, `gateway-api`, `all`.
    pub categories: &'static [&'static str],
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Whether `status` is a subresource, which the main resource cannot write.
    pub status: bool,
    /// Whether it is one of the kinds that every Kubernetes has, and not one that a CRD brings.
    pub builtin: bool,
    /// Columns after the name (and before the age, which every kind has).
    pub columns: &'static [Column],
    /// Fields that field selectors may ask for, besides `metadata.name` and `metadata.namespace`.
    pub selectable: &'static [&'static str],
    /// The kind as the mesh reads it, if it does.
    pub mesh: Option<Kind>,
    /// The whole object: `apiVersion`, `kind`, `metadata`, `spec`, `status` and what else the kind has at its top.
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

    /// The kind of its lists.
    pub fn list_kind(&self) -> String {
        format!("{}List", self.kind)
    }

    /// A version that is served.
    pub fn served(&self, version: &str) -> Option<&Served> {
        self.versions.iter().find(|served| served.version == version)
    }
}

/// All kinds, by group and plural.
pub fn definitions() -> &'static [Definition] {
    // One place lists them; see there.
    super::all()
}

/// The kind with this name in paths.
pub fn find(group: &str, plural: &str) -> Option<&'static Definition> {
    definitions().iter().find(|d| d.group == group && d.plural == plural)
}

/// The kind with this name in objects.
pub fn find_kind(group: &str, kind: &str) -> Option<&'static Definition> {
    definitions().iter().find(|d| d.group == group && d.kind == kind)
}
