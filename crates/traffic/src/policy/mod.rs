//! Traffic policies: selection and merging of DestinationRules.
//!
//! The rules of one namespace for one host are merged into one policy with a [`PolicyKey`]. [`policy_for`] selects the
//! key for a client and a service. Only [`DestinationPolicies`] reads the rules' contents, so that a changed limit
//! affects the clusters of one policy and no catalogue.

mod candidates;
mod groups;
mod merged;
pub mod preference;
mod summary;

pub use candidates::{Candidates, GroupRef, HostPolicies, PolicyCandidates, policy_for};
pub(crate) use candidates::{particular_to, policies_for};
pub(crate) use groups::merged_together;
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
