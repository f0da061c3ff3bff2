//! The served kinds: those of `config`, their CRDs as objects, and reviews.

use std::sync::LazyLock;

use config::schema::{Column, Definition, Schema, Served, Shape, definitions};

/// The group of the kind CustomResourceDefinition.
pub(crate) const CRD_GROUP: &str = "apiextensions.k8s.io";

/// A review type, whose objects are answered and not stored.
#[derive(Debug)]
pub(crate) struct Review {
    pub group: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
}

const fn review(group: &'static str, plural: &'static str, singular: &'static str, kind: &'static str) -> Review {
    Review { group, plural, singular, kind, namespaced: false }
}

/// All reviews; their version is `v1`.
pub(crate) static REVIEWS: [Review; 6] = [
    review("authentication.k8s.io", "selfsubjectreviews", "selfsubjectreview", "SelfSubjectReview"),
    review("authentication.k8s.io", "tokenreviews", "tokenreview", "TokenReview"),
    Review {
        namespaced: true,
        ..review(
            "authorization.k8s.io",
            "localsubjectaccessreviews",
            "localsubjectaccessreview",
            "LocalSubjectAccessReview",
        )
    },
    review("authorization.k8s.io", "selfsubjectaccessreviews", "selfsubjectaccessreview", "SelfSubjectAccessReview"),
    review("authorization.k8s.io", "selfsubjectrulesreviews", "selfsubjectrulesreview", "SelfSubjectRulesReview"),
    review("authorization.k8s.io", "subjectaccessreviews", "subjectaccessreview", "SubjectAccessReview"),
];

static CRD: LazyLock<Definition> = LazyLock::new(|| Definition {
    group: CRD_GROUP,
    versions: &[Served { version: "v1", deprecated: None }],
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
    singular: "customresourcedefinition",
    short_names: &["crd", "crds"],
    categories: &["api-extensions"],
    namespaced: false,
    status: true,
    builtin: true,
    columns: CRD_COLUMNS,
    selectable: &[],
    mesh: None,
    schema: Schema::new(Shape::Any).into(),
});

const CRD_COLUMNS: &[Column] = &[Column {
    name: "Created At",
    kind: "date",
    path: ".metadata.creationTimestamp",
    priority: 0,
    description: "Creation time: the server creates its CRDs at startup.",
}];

/// The kind CustomResourceDefinition, which is read-only.
pub(crate) fn crd() -> &'static Definition {
    &CRD
}

/// All kinds of objects.
pub(crate) fn all() -> impl Iterator<Item = &'static Definition> {
    definitions().iter().chain([crd()])
}

/// A kind by its plural name and served version.
pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<(&'static Definition, &'static Served)> {
    let kind = all().find(|kind| kind.group == group && kind.plural == plural)?;
    Some((kind, kind.served(version)?))
}

/// A review by its plural name.
pub(crate) fn find_review(group: &str, version: &str, plural: &str) -> Option<&'static Review> {
    REVIEWS.iter().find(|review| review.group == group && review.plural == plural && version == "v1")
}

/// Whether it is the kind CustomResourceDefinition.
pub(crate) fn is_crd(kind: &Definition) -> bool {
    kind.group == CRD_GROUP
}
