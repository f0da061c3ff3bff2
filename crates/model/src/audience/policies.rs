//! Security policies that select a workload.

use std::sync::Arc;

use crate::service::ObjectId;

/// Policies of one kind, ascending. Workloads with equal sets share everything that is derived from them.
pub type PolicyIds = Arc<[ObjectId]>;

/// The security policies that select a workload. Their content is not part of it, so that an audience changes only when
/// another set of policies selects the workload.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Policies {
    /// The AuthorizationPolicies.
    pub authorization: PolicyIds,
    /// The RequestAuthentications.
    pub authentication: PolicyIds,
}
