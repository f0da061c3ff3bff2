//! Authentication and authorization.
//!
//! Users authenticate with bearer tokens (stored as hashes) or client certificates. Authorization is by one or several
//! [`Role`]s. There are no RBAC objects; use a Kubernetes API server for them.

mod authorize;
pub(crate) mod reviews;
mod tokens;

pub use authorize::Ask;
pub use tokens::Token;

use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::error::ApiError;

/// A set of permissions. Only [`Role::Admin`] may read Secrets.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Everything.
    Admin,
    /// Read everything.
    ReadOnly,
    /// Read and write the objects of one namespace, except their status.
    Edit(String),
    /// Read the objects of one namespace.
    View(String),
}

/// An authenticated user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    /// The name.
    pub name: String,
    /// The groups; `system:authenticated` or `system:unauthenticated` is one of them.
    pub groups: Vec<String>,
    /// The roles.
    pub roles: Arc<[Role]>,
}

impl User {
    /// A user with these groups and roles.
    pub fn new(
        name: impl Into<String>,
        groups: impl IntoIterator<Item = String>,
        roles: impl Into<Arc<[Role]>>,
    ) -> User {
        let mut groups: Vec<String> = groups.into_iter().collect();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.into());
        }
        User { name: name.into(), groups, roles: roles.into() }
    }

    /// Rutter itself, with all permissions.
    pub fn system() -> User {
        User::new("system:rutter", [MASTERS.to_owned()], [Role::Admin])
    }

    /// A user without credentials, on the plaintext port.
    fn anonymous_admin() -> User {
        User {
            name: "system:anonymous".into(),
            groups: vec!["system:unauthenticated".into()],
            roles: [Role::Admin].into(),
        }
    }
}

/// The group of administrators.
pub const MASTERS: &str = "system:masters";
const AUTHENTICATED: &str = "system:authenticated";

/// The subject of a role assignment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Subject {
    /// A user of a token, or the common name of a certificate.
    User(String),
    /// A group of a token, or an organization of a certificate.
    Group(String),
}

/// Tokens and role assignments.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Bearer tokens.
    pub tokens: Vec<Token>,
    /// Roles by subject. Members of [`MASTERS`] are always administrators.
    pub roles: Vec<(Subject, Role)>,
}

/// The credentials of a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Peer {
    /// Common name and organizations of a verified client certificate.
    pub certificate: Option<(String, Vec<String>)>,
    /// The reason for which a client certificate was not accepted.
    pub rejected: Option<String>,
    /// Whether the connection uses the plaintext port, which grants administrator permissions.
    pub trusted: bool,
}

impl Access {
    /// Authenticates a request.
    ///
    /// # Errors
    /// 401 for an unknown token or missing credentials.
    pub fn authenticate(&self, headers: &HeaderMap, peer: &Peer) -> Result<User, ApiError> {
        if let Some(header) = headers.get(AUTHORIZATION) {
            let token = header.to_str().ok().and_then(bearer).ok_or_else(ApiError::unauthorized)?;
            return self.token(token).ok_or_else(ApiError::unauthorized);
        }
        if let Some((name, groups)) = &peer.certificate {
            return Ok(self.user(name, groups, &[]));
        }
        if let Some(reason) = &peer.rejected {
            let message = format!("the client certificate is not accepted: {reason}");
            return Err(ApiError::new(401, "Unauthorized", message));
        }
        match peer.trusted {
            true => Ok(User::anonymous_admin()),
            false => Err(ApiError::unauthorized()),
        }
    }

    /// The user of a token. Takes constant time.
    pub fn token(&self, token: &str) -> Option<User> {
        let found = tokens::find(&self.tokens, token)?;
        Some(self.user(&found.user, &found.groups, &found.roles))
    }

    /// The user to impersonate (`Impersonate-User`, as sent by `kubectl --as`).
    ///
    /// # Errors
    /// 403 if the caller is not an administrator.
    pub fn impersonate(&self, user: User, headers: &HeaderMap) -> Result<User, ApiError> {
        let text = |value: &http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let groups: Vec<String> = headers.get_all("impersonate-group").iter().map(text).collect();
        let Some(name) = headers.get("impersonate-user").map(text) else {
            return match groups.is_empty() && !headers.contains_key("impersonate-uid") {
                true => Ok(user),
                false => Err(ApiError::bad_request("who is to be impersonated must be named (Impersonate-User)")),
            };
        };
        user.authorize(&Ask { verb: "impersonate", resource: "users", name: &name, ..Ask::default() })?;
        Ok(self.named(&name, &groups))
    }

    /// The user of this name, with the roles of the name, its groups and its tokens.
    pub(crate) fn named(&self, name: &str, groups: &[String]) -> User {
        let tokens = self.tokens.iter().filter(|token| token.user == name);
        let roles: Vec<Role> = tokens.flat_map(|token| token.roles.iter().cloned()).collect();
        self.user(name, groups, &roles)
    }

    /// A user with the roles of the name and the groups.
    pub(crate) fn user(&self, name: &str, groups: &[String], roles: &[Role]) -> User {
        let named = self.roles.iter().filter(|(subject, _)| match subject {
            Subject::User(user) => user == name,
            Subject::Group(group) => groups.contains(group) || group == AUTHENTICATED,
        });
        let master = groups.iter().any(|group| group == MASTERS).then_some(Role::Admin);
        let roles: Vec<Role> = roles.iter().cloned().chain(named.map(|(_, role)| role.clone())).chain(master).collect();
        User::new(name, groups.iter().cloned(), roles)
    }
}

fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_known_by_token_or_certificate() {
        let access = Access {
            tokens: vec![Token::new("s3cret", "ada", ["devs"], [Role::View("a".into())])],
            roles: vec![(Subject::Group("devs".into()), Role::ReadOnly)],
        };
        let headers = |text: &str| HeaderMap::from_iter([(AUTHORIZATION, text.parse().unwrap())]);
        let ada = access.authenticate(&headers("bearer s3cret"), &Peer::default()).unwrap();
        assert_eq!((ada.name.as_str(), ada.roles.len()), ("ada", 2));
        assert_eq!(ada.groups, ["devs", "system:authenticated"]);
        let trusted = Peer { trusted: true, ..Peer::default() };
        for forged in ["Bearer s3cre", "Bearer ", "Bearer", "Basic s3cret", "Bearer s3cret2"] {
            assert_eq!(access.authenticate(&headers(forged), &trusted).unwrap_err().code, 401, "{forged}");
        }
        assert_eq!(access.authenticate(&HeaderMap::new(), &Peer::default()).unwrap_err().code, 401);
        assert_eq!(access.authenticate(&HeaderMap::new(), &trusted).unwrap().name, "system:anonymous");
        let certificate = Peer { certificate: Some(("root".into(), vec![MASTERS.into()])), ..Peer::default() };
        assert_eq!(*access.authenticate(&HeaderMap::new(), &certificate).unwrap().roles, [Role::Admin]);
    }
}
