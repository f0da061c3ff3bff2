//! Groups DestinationRules of one namespace and host into merged policies.

use std::sync::Arc;

use model::audience::PolicyKey;
use model::service::ExportTo;

use super::RuleSummary;

/// Rules that are merged. The first wins in conflicts.
pub(super) struct Group {
    /// The rules, in order of precedence; never empty.
    pub rules: Vec<Arc<RuleSummary>>,
    /// The key of the group.
    pub key: PolicyKey,
}

impl Group {
    /// The first rule.
    pub(super) fn head(&self) -> &RuleSummary {
        &self.rules[0]
    }
}

/// The groups of the rules of one namespace and host, in order of precedence of their first rules.
///
/// Rules are merged if the same clients see them, by export and by selector. A rule with wider visibility than a
/// group's first rule is merged into this group and is also a group of its own, for clients that do not see the first
/// rule.
pub(super) fn grouped(mut rules: Vec<Arc<RuleSummary>>) -> Vec<Group> {
    rules.sort_by(|a, b| a.precedence(b));
    let mut groups: Vec<Vec<Arc<RuleSummary>>> = Vec::new();
    for rule in rules {
        let mut is_separate = true;
        for group in &mut groups {
            let head = &group[0];
            let same = head.export_to == rule.export_to;
            if !same && !wider(&rule.export_to, &head.export_to) {
                continue;
            }
            if rule.selector.is_some() && rule.selector != head.selector {
                continue;
            }
            is_separate &= !(same && rule.selector == head.selector);
            group.push(rule.clone());
        }
        if is_separate {
            groups.push(vec![rule]);
        }
    }
    let unselected = groups.iter().filter(|g| g[0].selector.is_none()).count();
    let key = |head: &RuleSummary| PolicyKey {
        namespace: head.id.namespace.clone(),
        host: head.host.clone(),
        // The common case needs no name: all rules without a selector are one policy.
        selected: (head.selector.is_some() || unselected > 1).then(|| head.id.name.clone()),
    };
    groups.into_iter().map(|rules| Group { key: key(&rules[0]), rules }).collect()
}

/// The rules of each group, in order of precedence. `rules` are all of one namespace and host.
pub(crate) fn merged_together(rules: Vec<Arc<RuleSummary>>) -> impl Iterator<Item = Vec<Arc<RuleSummary>>> {
    grouped(rules).into_iter().map(|group| group.rules)
}

/// Whether `rule` is exported explicitly to more namespaces than `head`.
fn wider(rule: &ExportTo, head: &ExportTo) -> bool {
    match (rule, head) {
        (ExportTo::Namespaces(rule), ExportTo::Namespaces(head)) => !head.is_empty() && rule.is_superset(head),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use config::Timestamp;
    use model::proxy::Labels;
    use model::service::ObjectId;
    use names::Hostname;

    use super::*;

    fn rule(name: &str, created: i64, export: &[&str], selector: Option<&str>) -> Arc<RuleSummary> {
        let label = |app: &str| Labels::from([("app".into(), app.into())]);
        Arc::new(RuleSummary {
            id: ObjectId { namespace: "n".into(), name: name.into() },
            created: Some(Timestamp::from_unix(created)),
            host: Hostname::parse("a.b").unwrap(),
            export_to: match export {
                ["*"] => ExportTo::All,
                names => ExportTo::Namespaces(names.iter().map(|n| Arc::from(*n)).collect()),
            },
            selector: selector.map(label),
        })
    }

    fn names(groups: &[Group]) -> Vec<(Option<&str>, Vec<&str>)> {
        let rules = |g: &'_ Group| g.rules.iter().map(|r| r.id.name.clone()).collect::<Vec<_>>();
        groups
            .iter()
            .map(|g| {
                assert_eq!(rules(g).len(), g.rules.len());
                (g.key.selected.as_deref(), g.rules.iter().map(|r| &*r.id.name).collect())
            })
            .collect()
    }

    #[test]
    fn rules_that_the_same_clients_see_are_merged() {
        let groups = grouped(vec![rule("young", 2, &["*"], None), rule("old", 1, &["*"], None)]);
        assert_eq!(names(&groups), [(None, vec!["old", "young"])]);
    }

    #[test]
    fn selectors_and_exports_keep_rules_apart() {
        let groups = grouped(vec![
            rule("public", 1, &["*"], None),
            rule("private", 2, &["n"], None),
            rule("wider", 3, &["m", "n"], None),
            rule("x", 4, &["n"], Some("x")),
            rule("x2", 5, &["n"], Some("x")),
            rule("y", 6, &["n"], Some("y")),
        ]);
        let want = [
            (Some("x"), vec!["x", "x2", "private", "wider"]),
            (Some("y"), vec!["y", "private", "wider"]),
            (Some("public"), vec!["public"]),
            (Some("private"), vec!["private", "wider"]),
            (Some("wider"), vec!["wider"]),
        ];
        assert_eq!(names(&groups), want);
    }
}
