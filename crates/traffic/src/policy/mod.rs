//! DestinationRules: which of them apply to a service for a client, and what they come to together.
//!
//! The rules of one namespace for one host are merged into one policy, which a [`PolicyKey`] names. Which key a client
//! uses for a service is found by [`policy_for`]; only the policy itself ([`DestinationPolicies`]) reads what the rules
//! say, so that a changed limit reaches the clusters of one policy and no table.

mod candidates;
mod groups;
mod merged;
pub mod preference;
mod summary;

pub(crate) use candidates::particular_to;
pub use candidates::{Candidates, GroupRef, HostPolicies, PolicyCandidates, policy_for};
pub(crate) use groups::merged_before;
pub use merged::{
    ClusterRules, DestinationPolicies, DestinationPolicy, EffectivePolicy, effective, effective_in, merged,
};
pub use summary::{DestinationRuleSummaries, DestinationRulesByHost, RuleSummary};

use registry::inputs::DestinationRules;

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.world::<DestinationRuleSummaries, DestinationRules>();
    b.index::<DestinationRulesByHost>();
    b.view::<PolicyCandidates>();
    b.view::<DestinationPolicies>();
}
