//! Problems of AuthorizationPolicies that depend on other objects, and remarks about what they mean for connections that
//! are not HTTP.

use config::istio::AuthorizationPolicy;
use config::istio::authorization_policy::AuthorizationAction;
use config::{Diagnostic, FieldPath, Kind, Severity};
use flow::Reads;
use model::authorization::ExternalSettings;
use model::service::ObjectId;
use registry::inputs::AuthorizationPolicies;
use security::authorization::{ExternalServices, Translation, Translations};

use super::{Conflicts, diagnostic, row, targets};

flow::rule! {
    /// The problems of each AuthorizationPolicy.
    pub AuthorizationPolicyConflicts: ObjectId => Conflicts = "conflicts on authorization policies", derive_authorization_policy_conflicts;
}

fn derive_authorization_policy_conflicts(cx: &Reads<'_>, key: &ObjectId) -> Option<Conflicts> {
    let policy = cx.get::<AuthorizationPolicies>(key)?;
    let translation = cx.get::<Translations>(key)?;
    let mut found = targets::problems::<AuthorizationPolicy>(cx, Kind::AuthorizationPolicy, key, &policy.spec);
    found.extend(ineffective(key, &translation));
    let knows_connections = provider(cx, key, &translation, &mut found);
    found.extend(differences(key, &translation, knows_connections));
    row(found)
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<AuthorizationPolicyConflicts>();
}

fn problem(key: &ObjectId, code: &'static str, path: FieldPath, message: String, hint: &str) -> Diagnostic {
    diagnostic(Kind::AuthorizationPolicy, key, code, path, message, hint)
}

/// Reports a policy that does nothing whatever it selects.
fn ineffective(key: &ObjectId, policy: &Translation) -> Option<Diagnostic> {
    let (path, message, hint) = match policy.action {
        AuthorizationAction::Allow => return None,
        _ if policy.http.is_empty() && policy.tcp.is_empty() => {
            let message = "without rules, nothing matches the policy, and it has no effect";
            (FieldPath::spec().field("rules"), message, "use the rule {} to match all requests")
        }
        AuthorizationAction::Audit | AuthorizationAction::Custom if policy.dry_run => {
            let message = "a dry run of this action is not supported: the policy has no effect";
            (
                FieldPath::root().field("metadata").field("annotations"),
                message,
                "remove the annotation istio.io/dry-run",
            )
        }
        _ => return None,
    };
    Some(problem(key, Diagnostic::WITHOUT_EFFECT, path, message.to_owned(), hint))
}

/// Reports a provider that cannot be used. Whether the provider also decides about connections that are not HTTP.
fn provider(cx: &Reads<'_>, key: &ObjectId, policy: &Translation, out: &mut Vec<Diagnostic>) -> bool {
    if policy.action != AuthorizationAction::Custom {
        return true;
    }
    let path = FieldPath::spec().field("provider").field("name");
    let name = &policy.provider;
    match cx.get::<ExternalServices>(name).as_deref().map(|found| (**found).as_ref()) {
        Some(Ok(found)) => {
            let doubt = found.doubt.iter().map(|flaw| {
                let message = format!("extension provider {name:?}{}: {}", flaw.place(), flaw.message);
                problem(key, flaw.code, path.clone(), message, flaw.hint)
            });
            out.extend(doubt);
            matches!(found.service.settings, ExternalSettings::Grpc(_))
        }
        Some(Err(flaw)) => {
            let (place, why) = (flaw.place(), &flaw.message);
            let message =
                format!("extension provider {name:?}{place}: {why}: requests that match the policy are denied");
            out.push(problem(key, flaw.code, path, message, flaw.hint));
            true
        }
        None => true,
    }
}

/// Remarks about rules that mean something else for connections that are not HTTP.
fn differences(key: &ObjectId, policy: &Translation, knows_connections: bool) -> Vec<Diagnostic> {
    let remark = |path: FieldPath, message: &str| Diagnostic {
        severity: Severity::Info,
        hint: None,
        ..problem(key, "http-only", path, message.to_owned(), "")
    };
    if !knows_connections {
        let message =
            "the provider is asked about HTTP requests only: connections of other protocols are not subject to it";
        return vec![remark(FieldPath::spec().field("provider"), message)];
    }
    let message = match policy.action {
        AuthorizationAction::Allow => {
            "the rule has HTTP conditions: it allows no connections of other protocols, which have no HTTP requests"
        }
        AuthorizationAction::Deny => {
            "the HTTP conditions of the rule do not count for connections of other protocols: it denies all that match its \
             other conditions"
        }
        AuthorizationAction::Audit | AuthorizationAction::Custom => {
            "the HTTP conditions of the rule do not count for connections of other protocols"
        }
    };
    let rules = policy.differs.iter().map(|index| FieldPath::spec().field("rules").index(*index));
    rules.map(|path| remark(path, message)).collect()
}
