//! Bearer tokens.

use std::fmt;

use sha2::{Digest as _, Sha256};

use super::Role;

/// A bearer token and whose it is. Only a hash of the token is kept.
#[derive(Clone)]
pub struct Token {
    hash: [u8; 32],
    pub(super) user: String,
    pub(super) groups: Vec<String>,
    pub(super) roles: Vec<Role>,
}

impl Token {
    /// A token of this user.
    pub fn new<'a>(
        token: &str,
        user: impl Into<String>,
        groups: impl IntoIterator<Item = &'a str>,
        roles: impl IntoIterator<Item = Role>,
    ) -> Token {
        Token {
            hash: Sha256::digest(token).into(),
            user: user.into(),
            groups: groups.into_iter().map(str::to_owned).collect(),
            roles: roles.into_iter().collect(),
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token of {:?}", self.user)
    }
}

/// Looks at every token, so that the time says nothing about which one it is.
pub(super) fn find<'a>(tokens: &'a [Token], token: &str) -> Option<&'a Token> {
    if token.is_empty() {
        return None;
    }
    let hash: [u8; 32] = Sha256::digest(token).into();
    let mut found = None;
    for candidate in tokens {
        let differs = candidate
            .hash
            .iter()
            .zip(&hash)
            .fold(0, |differs, (a, b)| differs | (a ^ b));
        if std::hint::black_box(differs) == 0 {
            found = Some(candidate);
        }
    }
    found
}
