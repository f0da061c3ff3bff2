//! Priorities and weights of localities, depending on the client's locality.

use config::istio::{Distribute, Failover};
use model::audience::ClientView;
use model::proxy::Locality;
use traffic::policy::preference::{Names, Preference};

use super::select::{Group, Member};

/// The number of priorities that [`distance`] and failover distinguish.
const LEVELS: u32 = 5;

/// Sets priorities and weights. Groups without traffic are left out.
pub(super) fn apply<'a>(groups: Vec<Group<'a>>, view: &ClientView, preference: Preference<'_>) -> Vec<Group<'a>> {
    let here = view.locality.as_deref();
    match preference {
        Preference::Equal => groups,
        Preference::Distribute(shares) => match here {
            Some(here) => distribute(groups, here, shares),
            None => groups,
        },
        Preference::ByLabels(names, failover) => {
            let mut groups = by_labels(groups, view, names);
            if let Some(here) = here.filter(|_| !failover.is_empty()) {
                by_locality(&mut groups, here, failover);
            }
            dense(groups)
        }
        Preference::ByRegion(names, failover) => {
            let mut groups = by_labels(groups, view, names);
            if let Some(here) = here {
                by_region(&mut groups, here, failover);
            }
            dense(groups)
        }
        Preference::ByLocality(failover) => {
            let mut groups = groups;
            if let Some(here) = here {
                by_locality(&mut groups, here, failover);
            }
            dense(groups)
        }
    }
}

/// Sets weights by the first rule for the client's locality: each share is divided among its groups in proportion to
/// their weights. If several shares match a group, the most specific one applies.
fn distribute<'a>(groups: Vec<Group<'a>>, here: &Locality, rules: &[Distribute]) -> Vec<Group<'a>> {
    let Some(rule) = rules.iter().find(|rule| matches(here, &rule.from)) else {
        return groups;
    };
    let mut shares: Vec<(&str, u32)> = rule.to.iter().map(|(to, share)| (&**to, *share)).collect();
    shares.sort_by_key(|(to, _)| (to.contains('*'), std::cmp::Reverse(to.matches('/').count())));
    let (mut rest, mut out) = (groups, Vec::new());
    for (to, share) in shares {
        let (mut of_share, others): (Vec<Group<'a>>, Vec<Group<'a>>) =
            rest.into_iter().partition(|group| matches(group.locality, to));
        rest = others;
        let total: u64 = of_share.iter().map(|group| u64::from(group.weight)).sum();
        for group in &mut of_share {
            let weight = (u64::from(group.weight) * u64::from(share)).div_ceil(total.max(1));
            group.weight = u32::try_from(weight).unwrap_or(u32::MAX);
        }
        out.append(&mut of_share);
    }
    out.retain(|group| group.weight > 0);
    out.sort_by(|a, b| a.locality.cmp(b.locality));
    out
}

/// Whether a locality matches a rule: `region/zone/subzone`, where `*` matches anything and trailing parts are
/// optional.
fn matches(locality: &Locality, rule: &str) -> bool {
    let mut parts = rule.splitn(3, '/');
    let mut next = |own: &str| match parts.next() {
        None | Some("" | "*") => true,
        Some(part) => part == own,
    };
    next(&locality.region) && next(&locality.zone) && next(&locality.sub_zone)
}

/// Splits each group by the number of leading labels that its members share with the client.
fn by_labels<'a>(groups: Vec<Group<'a>>, view: &ClientView, names: Names<'_>) -> Vec<Group<'a>> {
    let wanted: Vec<(&str, Option<&str>)> = names
        .iter()
        .map(|(name, instead)| (name, instead.or_else(|| view.labels.get(name).map(|value| &**value))))
        .collect();
    let priority = |member: &Member<'a>| {
        // A missing label equals an empty one.
        let differs =
            |(name, value): &(&str, Option<&str>)| member.label(name).unwrap_or_default() != value.unwrap_or_default();
        let at = wanted.iter().position(differs).unwrap_or(wanted.len());
        u32::try_from(wanted.len() - at).unwrap_or(u32::MAX)
    };
    let mut out = Vec::with_capacity(groups.len());
    for group in groups {
        let mut levels: Vec<(u32, Vec<Member<'a>>)> = Vec::new();
        for member in group.members {
            let priority = priority(&member);
            match levels.iter_mut().find(|(level, _)| *level == priority) {
                Some((_, members)) => members.push(member),
                None => levels.push((priority, vec![member])),
            }
        }
        levels.sort_by_key(|(level, _)| *level);
        out.extend(
            levels.into_iter().map(|(priority, members)| Group { priority, ..Group::new(group.locality, members) }),
        );
    }
    out
}

/// Sets priorities by distance, below the groups' existing priorities.
fn by_locality(groups: &mut [Group<'_>], here: &Locality, failover: &[Failover]) {
    // Regions other than the failover region come after it.
    let next = failover.iter().find(|rule| rule.from == here.region).map(|rule| &rule.to);
    for group in groups {
        let distance = distance(here, group.locality);
        let last = distance == 3 && next.is_some_and(|next| *next != group.locality.region);
        group.priority = group.priority * LEVELS + if last { 4 } else { distance };
    }
}

/// Sets priorities by region only, below the groups' existing priorities: Envoy balances the zones of a region.
fn by_region(groups: &mut [Group<'_>], here: &Locality, failover: &[Failover]) {
    let next = failover.iter().find(|rule| rule.from == here.region).map(|rule| &rule.to);
    for group in groups {
        let distance = match &group.locality.region {
            region if *region == here.region => 0,
            region if Some(region) == next => 1,
            _ => 2,
        };
        group.priority = group.priority * LEVELS + distance;
    }
}

/// The distance: 0 for the same sub-zone, then zone, region, and other regions.
fn distance(a: &Locality, b: &Locality) -> u32 {
    match (a.region == b.region, a.zone == b.zone, a.sub_zone == b.sub_zone) {
        (true, true, true) => 0,
        (true, true, false) => 1,
        (true, false, _) => 2,
        (false, ..) => 3,
    }
}

/// Renumbers priorities from 0 without gaps, as Envoy requires.
fn dense(mut groups: Vec<Group<'_>>) -> Vec<Group<'_>> {
    let mut levels: Vec<u32> = groups.iter().map(|group| group.priority).collect();
    levels.sort_unstable();
    levels.dedup();
    for group in &mut groups {
        let at = levels.binary_search(&group.priority).unwrap_or_default();
        group.priority = u32::try_from(at).unwrap_or(u32::MAX);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn localities_match_rules() {
        let here = Locality::parse("eu/west/a");
        for (rule, holds) in [
            ("eu/west/a", true),
            ("eu/west/*", true),
            ("eu/west", true),
            ("eu", true),
            ("*", true),
            ("eu/*/a", true),
            ("eu/east/*", false),
            ("us", false),
        ] {
            assert_eq!(matches(&here, rule), holds, "{rule}");
        }
    }

    #[test]
    fn distances() {
        let here = Locality::parse("eu/west/a");
        let to = |text| distance(&here, &Locality::parse(text));
        assert_eq!([to("eu/west/a"), to("eu/west/b"), to("eu/east/a"), to("us/west/a"), to("")], [0, 1, 2, 3, 3]);
    }
}
