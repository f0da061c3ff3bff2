//! Reviews, which are answered and not stored.

use serde_json::{Value, json};

use super::authorize::READS;
use super::{Access, Ask, Role, User};
use crate::api::Options;
use crate::error::ApiError;

/// Answers a review: the sent object with its status.
pub(crate) fn answer(
    options: &Options,
    user: &User,
    plural: &str,
    namespace: Option<&str>,
    mut review: Value,
) -> Result<Value, ApiError> {
    if !review.is_object() {
        return Err(ApiError::bad_request("a review must be an object"));
    }
    let access = &options.access;
    let read_only = options.read_only.as_deref();
    let spec = review.get("spec").cloned().unwrap_or_default();
    let status = match plural {
        "selfsubjectreviews" => json!({ "userInfo": user_info(user) }),
        "selfsubjectaccessreviews" => access_status(user, &spec, read_only)?,
        "subjectaccessreviews" | "localsubjectaccessreviews" => {
            if namespace.is_some_and(|ns| text(&spec["resourceAttributes"], "namespace") != ns) {
                return Err(ApiError::bad_request(
                    "spec.resourceAttributes.namespace must match the namespace of the request",
                ));
            }
            let groups: Vec<String> =
                spec["groups"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
            access_status(&access.named(text(&spec, "user"), &groups), &spec, read_only)?
        }
        "selfsubjectrulesreviews" => rules(user, text(&spec, "namespace"), read_only.is_some()),
        "tokenreviews" => token_status(access, text(&spec, "token")),
        _ => return Err(ApiError::no_such_path()),
    };
    review["metadata"] = json!({ "creationTimestamp": null });
    review["status"] = status;
    // The response does not repeat the token.
    if plural == "tokenreviews" {
        review["spec"] = json!({});
    }
    Ok(review)
}

fn access_status(user: &User, spec: &Value, read_only: Option<&str>) -> Result<Value, ApiError> {
    let writes = |asked: &Value| {
        let review = text(asked, "group").starts_with("auth");
        !READS.contains(&text(asked, "verb")) && !review
    };
    if let (Some(why), Some(_)) = (read_only, spec.get("resourceAttributes").filter(|asked| writes(asked))) {
        return Ok(json!({ "allowed": false, "reason": format!("the API is read-only: {why}") }));
    }
    let allowed = match (spec.get("resourceAttributes"), spec.get("nonResourceAttributes")) {
        (Some(asked), None) => user.may(&Ask {
            verb: text(asked, "verb"),
            group: text(asked, "group"),
            resource: text(asked, "resource"),
            subresource: text(asked, "subresource"),
            namespace: text(asked, "namespace"),
            name: text(asked, "name"),
        }),
        (None, Some(asked)) => text(asked, "verb") == "get" || user.roles.contains(&Role::Admin),
        _ => {
            let text = "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or \
                        resourceAttributes must be specified";
            return Err(ApiError::bad_request(text));
        }
    };
    Ok(match allowed {
        true => json!({ "allowed": true }),
        false => json!({ "allowed": false, "reason": "no role of the user allows it" }),
    })
}

fn token_status(access: &Access, token: &str) -> Value {
    match access.token(token) {
        Some(user) => json!({ "authenticated": true, "user": user_info(&user) }),
        None => json!({ "authenticated": false, "user": {}, "error": "unknown token" }),
    }
}

fn user_info(user: &User) -> Value {
    json!({ "username": user.name, "groups": user.groups })
}

fn rules(user: &User, namespace: &str, read_only: bool) -> Value {
    let mut resources = vec![
        rule(&["create"], &["authorization.k8s.io"], &["selfsubjectaccessreviews", "selfsubjectrulesreviews"]),
        rule(&["create"], &["authentication.k8s.io"], &["selfsubjectreviews"]),
    ];
    for role in user.roles.iter() {
        match role {
            Role::Admin if read_only => resources.push(rule(&READS, &["*"], &["*"])),
            Role::Admin => resources.push(rule(&["*"], &["*"], &["*"])),
            Role::ReadOnly => resources.extend(everything(&READS)),
            Role::View(ns) if ns == namespace => resources.extend(everything(&READS)),
            Role::Edit(ns) if ns == namespace && read_only => resources.extend(everything(&READS)),
            Role::Edit(ns) if ns == namespace => resources.extend(everything(&[
                "get",
                "list",
                "watch",
                "create",
                "update",
                "patch",
                "delete",
                "deletecollection",
            ])),
            _ => {}
        }
    }
    json!({
        "resourceRules": resources,
        "nonResourceRules": [{ "verbs": ["get"], "nonResourceURLs": [
            "/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/readyz", "/openapi", "/openapi/*", "/version",
        ] }],
        "incomplete": false,
    })
}

/// One rule per group for all types except Secrets.
fn everything(verbs: &[&str]) -> Vec<Value> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for kind in crate::kinds::all().filter(|kind| !(kind.group.is_empty() && kind.plural == "secrets")) {
        match groups.iter_mut().find(|(group, _)| *group == kind.group) {
            Some((_, plurals)) => plurals.push(kind.plural),
            None => groups.push((kind.group, vec![kind.plural])),
        }
    }
    groups.into_iter().map(|(group, plurals)| rule(verbs, &[group], &plurals)).collect()
}

fn rule(verbs: &[&str], groups: &[&str], resources: &[&str]) -> Value {
    json!({ "verbs": verbs, "apiGroups": groups, "resources": resources })
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}
