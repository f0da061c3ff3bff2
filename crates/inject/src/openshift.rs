//! User and group ids from the ranges that OpenShift assigns to a namespace.

use serde_json::Value;

use crate::{INIT, PROXY, VALIDATION, pod};

/// The user and the group of the sidecar where nothing else is assigned.
const DEFAULT: i64 = 1337;
const USERS: &str = "openshift.io/sa.scc.uid-range";
const GROUPS: &str = "openshift.io/sa.scc.supplemental-groups";

/// The user and group ids of the sidecar: the last ones of the ranges of the namespace.
pub(crate) fn ids(namespace: Option<&Value>) -> (i64, i64) {
    let annotation = |name: &str| namespace?["metadata"]["annotations"].get(name)?.as_str();
    let user = annotation(USERS).and_then(last).unwrap_or(DEFAULT);
    // The first range of a list decides, if all of them are valid.
    let all = annotation(GROUPS).or_else(|| annotation(USERS)).map(|groups| groups.split(',').map(last).collect());
    let groups: Option<Vec<i64>> = all.unwrap_or_default();
    (user, groups.and_then(|groups| groups.first().copied()).unwrap_or(DEFAULT))
}

/// The last id of `START/SIZE` or `START-END`.
fn last(range: &str) -> Option<i64> {
    if let Some((start, size)) = range.split_once('/') {
        let (start, size): (u32, u32) = (start.trim().parse().ok()?, size.trim().parse().ok()?);
        return Some(i64::from(start) + i64::from(size) - 1);
    }
    let (start, end) = range.split_once('-')?;
    start.trim().parse::<u32>().ok()?;
    end.trim().parse::<u32>().ok().map(i64::from)
}

/// Removes the user of a sidecar that the pod defines, if it is that of the application: OpenShift gives all containers the
/// same one, and interception could not tell them apart.
pub(crate) fn forget_shared_user(pod: &mut Value) {
    let user = |container: &Value| container["securityContext"]["runAsUser"].as_i64();
    let (mut sidecar, mut application) = (0, 0);
    for container in ["containers", "initContainers"].into_iter().flat_map(|list| pod::containers(pod, list)) {
        match (pod::name(container), user(container)) {
            (PROXY, Some(user)) => sidecar = user,
            (INIT | VALIDATION, _) | (_, None) => {}
            (_, Some(user)) => application = user,
        }
    }
    if sidecar != application {
        return;
    }
    let context = pod::find_mut(pod, PROXY).and_then(|container| container.get_mut("securityContext"));
    if let Some(context) = context.and_then(Value::as_object_mut) {
        context.remove("runAsUser");
        context.remove("runAsGroup");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ranges_of_a_namespace() {
        let with = |annotations: Value| ids(Some(&json!({"metadata": {"annotations": annotations}})));
        assert_eq!(ids(None), (1337, 1337));
        assert_eq!(with(json!({})), (1337, 1337));
        assert_eq!(with(json!({USERS: "1000620000/10000"})), (1_000_629_999, 1_000_629_999));
        assert_eq!(with(json!({USERS: "1000-2000", GROUPS: "5/3,9-10"})), (2000, 7));
        assert_eq!(with(json!({USERS: "many", GROUPS: ""})), (1337, 1337));
    }
}
