//! Authorization by roles.

use super::{Role, User};
use crate::error::{About, ApiError};

/// An action to authorize.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ask<'a> {
    /// `get`, `list`, …
    pub verb: &'a str,
    /// The API group.
    pub group: &'a str,
    /// The plural name.
    pub resource: &'a str,
    /// The subresource, or empty.
    pub subresource: &'a str,
    /// The namespace; empty for all namespaces and for cluster-scoped types.
    pub namespace: &'a str,
    /// The object; empty for all objects.
    pub name: &'a str,
}

pub(super) const READS: [&str; 3] = ["get", "list", "watch"];

impl User {
    /// Whether the user may do this.
    pub fn may(&self, ask: &Ask<'_>) -> bool {
        is_about_self(ask) || self.roles.iter().any(|role| role.permits(ask))
    }

    /// Checks that the user may do this.
    ///
    /// # Errors
    /// 403 if not.
    pub fn authorize(&self, ask: &Ask<'_>) -> Result<(), ApiError> {
        if self.may(ask) {
            return Ok(());
        }
        let resource = match ask.subresource {
            "" => ask.resource.to_owned(),
            subresource => format!("{}/{subresource}", ask.resource),
        };
        let place = match ask.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        let why = format!(
            "User {:?} cannot {} resource {resource:?} in API group {:?} {place}",
            self.name, ask.verb, ask.group
        );
        let about = About { group: ask.group, kind: ask.resource, name: ask.name };
        Err(ApiError::forbidden(about, &why))
    }
}

impl Role {
    fn permits(&self, ask: &Ask<'_>) -> bool {
        let secret = ask.group.is_empty() && ask.resource == "secrets" || ask.resource == "*";
        let reads = READS.contains(&ask.verb);
        match self {
            Role::Admin => true,
            // Only administrators may ask for permissions of others.
            Role::ReadOnly => reads && !secret,
            Role::View(namespace) => reads && !secret && in_namespace(ask, namespace),
            Role::Edit(namespace) => {
                let itself = ask.group.is_empty() && ask.resource == "namespaces";
                let writes = !itself && ask.subresource != "status" && ask.verb != "*";
                !secret && in_namespace(ask, namespace) && (reads || writes)
            }
        }
    }
}

/// Whether the action concerns objects in the namespace, or reads the namespace itself.
fn in_namespace(ask: &Ask<'_>, namespace: &str) -> bool {
    match (ask.group, ask.resource) {
        ("", "namespaces") => ask.name == namespace && ask.verb == "get",
        ("authorization.k8s.io", _) => false,
        _ => ask.namespace == namespace,
    }
}

/// Every user may ask for their own identity and permissions.
fn is_about_self(ask: &Ask<'_>) -> bool {
    ask.verb == "create"
        && matches!(
            (ask.group, ask.resource),
            ("authorization.k8s.io", "selfsubjectaccessreviews" | "selfsubjectrulesreviews")
                | ("authentication.k8s.io", "selfsubjectreviews")
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_permit_what_they_say() {
        let ask = |text: &'static str| {
            let mut words = text.split(' ');
            let mut next = || words.next().unwrap_or_default();
            let (verb, resource, namespace, name) = (next(), next(), next(), next());
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            Ask { verb, group: "", resource, subresource, namespace, name }
        };
        let users = [Role::Admin, Role::ReadOnly, Role::Edit("a".into()), Role::View("a".into())];
        for (text, allowed) in [
            ("get services a x", [true, true, true, true]),
            ("list services", [true, true, false, false]),
            ("list services b", [true, true, false, false]),
            ("create services a", [true, false, true, false]),
            ("create services b", [true, false, false, false]),
            ("patch services/status a x", [true, false, false, false]),
            ("get services/status a x", [true, true, true, true]),
            ("get secrets a x", [true, false, false, false]),
            ("create secrets a", [true, false, false, false]),
            ("get namespaces a a", [true, true, true, true]),
            ("list namespaces", [true, true, false, false]),
            ("delete namespaces a a", [true, false, false, false]),
            ("get nodes  x", [true, true, false, false]),
            ("get * a", [true, false, false, false]),
        ] {
            let got = users.clone().map(|role| User::new("u", [], [role]).may(&ask(text)));
            assert_eq!(got, allowed, "{text}");
        }
    }

    #[test]
    fn the_refusal_says_who_and_what() {
        let user = User::new("ada", [], [Role::View("a".into())]);
        let ask =
            Ask { verb: "list", group: "networking.istio.io", resource: "gateways", namespace: "n", ..Ask::default() };
        let failure = user.authorize(&ask).unwrap_err();
        assert_eq!(
            failure.message,
            "gateways.networking.istio.io is forbidden: User \"ada\" cannot list resource \"gateways\" in API group \
             \"networking.istio.io\" in the namespace \"n\""
        );
        assert_eq!(failure.status()["details"]["kind"], "gateways");
    }
}
