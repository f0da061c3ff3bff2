//! The reasons why a patch is left out.

use protos::DecodeError;
use protos::dynamic::{Completeness, DynamicMessage, check};

/// The reason why a patch was left out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PatchError {
    #[error("the result would not be valid: {0}")]
    Invalid(String),
    #[error("the configuration is of a type that is not known, or cannot be read")]
    UnknownConfig,
    #[error("the value's typed_config is a {value}, and what is there is a {existing}")]
    OtherConfig { value: String, existing: String },
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("the filter chain {0:?} takes the same connections")]
    SameConnections(String),
    #[error("the listener would be left without filter chains")]
    NoChainLeft,
    #[error("of the filters that end a chain there must be one, and it must be the last")]
    TerminalFilter,
    #[error("the cluster's transport_socket_matches have no socket {0}")]
    NoSocket(String),
    #[error("one of the domains is another virtual host's, and the table would be refused")]
    DomainTaken,
    #[error(
        "the patches of the EnvoyFilter would add too much to one resource; match fewer parts of it, or shorten the values"
    )]
    TooMuchForOne,
    #[error(
        "the patches of the EnvoyFilter would add too much to the resources of a proxy; match fewer, or shorten the values"
    )]
    TooMuchForMany,
}

/// Checks a changed message against Envoy's validation rules.
pub(crate) fn validate(message: &DynamicMessage) -> Result<(), PatchError> {
    match check(message, Completeness::Whole, &|_| None).first() {
        Some(problem) => Err(PatchError::Invalid(problem.to_string())),
        None => Ok(()),
    }
}
