//! Keeps the authority of this control plane: finds it, and decides when it is created, rotated, reloaded or kept.
//!
//! ```text
//! directory, Secrets, store ─observe─► Keeper ─step─► Issuer (who signs now), Save (what to write), Notices (what to log)
//! ```
//!
//! | place | content | precedence |
//! |---|---|---|
//! | [`Place::Directory`] | the files of `ROOT_CA_DIR` | first |
//! | [`Place::Cacerts`] | the Secret `cacerts` | second |
//! | [`Place::SelfSigned`] | the Secret `istio-ca-secret`, or the record of the store | last; created if there is nothing else |
//!
//! Invariants:
//!
//! - Nothing is decided, and above all nothing is created, before every place was read once.
//! - A set that cannot be used never replaces one that is in use, and never leads to a new root.
//! - A root that is in use is only replaced as [`plugged_in::check_root_change`] allows. A self-signed authority is replaced by
//!   what its Secret contains, because all replicas must sign with the same key.
//! - A new authority is used once it is stored. The write is refused if another replica wrote first; the keeper then uses
//!   what that replica wrote.

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use crate::authority::Authority;
use crate::plugged_in::{self, Loaded, check_root_change};
use crate::self_signed::{self, CACERTS, Rotation, SECRET, Settings};

/// The key of revocation lists in a set.
const REVOCATION: &str = "ca-crl.pem";

/// A place that may hold an authority.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
    /// The files of `ROOT_CA_DIR`.
    Directory,
    /// The Secret `cacerts`.
    Cacerts,
    /// The Secret `istio-ca-secret`, or the record of the store.
    SelfSigned,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Place::Directory => "the directory ROOT_CA_DIR",
            Place::Cacerts => "the Secret cacerts",
            Place::SelfSigned => "the self-signed authority",
        })
    }
}

/// A set of certificates and its key, by the names of the Secret's keys or files. Debug output has the names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// The values.
    pub data: BTreeMap<String, Vec<u8>>,
    /// The version, which a write must name; empty for files.
    pub version: String,
}

impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Found").field("keys", &self.data.keys()).field("version", &self.version).finish()
    }
}

/// The content of a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// There is nothing.
    Absent,
    /// There is a set.
    Present(Found),
    /// There is something that cannot be read, for this reason.
    Unreadable(String),
}

/// The settings of a keeper.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The settings of a self-signed authority.
    pub self_signed: Settings,
    /// Whether it is rotated (`CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL` is not zero).
    pub rotates: bool,
    /// Whether roots may be added and removed while proxies run (`ISTIO_MULTIROOT_MESH`).
    pub multiple_roots: bool,
    /// Whether a new self-signed authority is stored in `cacerts` (`USE_CACERTS_FOR_SELF_SIGNED_CA`).
    pub in_cacerts: bool,
    /// Whether revocation lists are used (`PILOT_ENABLE_CA_CRL`).
    pub revocation: bool,
}

/// Who signs certificates.
#[derive(Clone, PartialEq, Debug)]
pub enum Issuer {
    /// An authority with its key.
    Own(Authority),
    /// Nobody, for this reason.
    Unavailable(String),
}

/// The reason of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// There was no authority.
    Created,
    /// The root is about to expire.
    Rotated,
    /// The root had expired.
    Recovered,
    /// The Secret was deleted while its authority was in use.
    Restored,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Created => "created a self-signed certificate authority",
            Reason::Rotated => "rotated the root of the self-signed certificate authority before it expires",
            Reason::Recovered => "renewed the root of the self-signed certificate authority, which had expired",
            Reason::Restored => "stored the self-signed certificate authority again, which was deleted",
        })
    }
}

/// A write, after which the place has this content. Its data contains the private key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Save {
    /// [`SECRET`] or [`CACERTS`].
    pub name: &'static str,
    /// The new content, without a version.
    pub found: Found,
    /// The version that is replaced; `None` if the object must not exist.
    pub replaces: Option<String>,
    /// The reason.
    pub reason: Reason,
}

impl Save {
    /// The place that is written.
    pub fn place(&self) -> Place {
        if self.name == CACERTS { Place::Cacerts } else { Place::SelfSigned }
    }
}

/// An event to log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// An authority is used from now on.
    Used {
        /// Its place.
        place: Place,
        /// The subject of its certificate.
        subject: String,
        /// The number of its roots.
        roots: usize,
        /// Whether it has another key than the one before.
        replaces_key: bool,
    },
    /// A set is not used; the last good one stays in use if there is one.
    Refused {
        /// The reason, with the place and the remedy.
        reason: String,
        /// Whether there is a last good one.
        has_last: bool,
    },
    /// What was refused is good again.
    Resolved,
}

/// The result of [`Keeper::step`].
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    /// Who signs now; `None` until every place was read.
    pub issuer: Option<Issuer>,
    /// The write that is needed now. It is returned again until its place has another content.
    pub save: Option<Save>,
    /// The events to log.
    pub notices: Vec<Notice>,
}

/// The machine. Debug output contains no key.
#[derive(Debug)]
pub struct Keeper {
    options: Options,
    places: BTreeMap<Place, Content>,
    used: Option<Used>,
    pending: Option<Save>,
    refused: Option<String>,
}

#[derive(Clone, PartialEq, Debug)]
struct Used {
    origin: Origin,
    authority: Authority,
}

/// The source of an authority.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Origin {
    PluggedIn(Place),
    /// A self-signed one, in this Secret.
    SelfSigned(&'static str),
}

impl Origin {
    fn place(self) -> Place {
        match self {
            Origin::PluggedIn(place) => place,
            Origin::SelfSigned(CACERTS) => Place::Cacerts,
            Origin::SelfSigned(_) => Place::SelfSigned,
        }
    }
}

enum Candidate {
    Loaded(Used),
    /// There is nothing; a self-signed authority is needed.
    Nothing,
}

impl Keeper {
    /// A keeper that has read nothing yet.
    pub fn new(options: Options) -> Keeper {
        Keeper { options, places: BTreeMap::new(), used: None, pending: None, refused: None }
    }

    /// Sets the organization of roots that are created from now on: the trust domain.
    pub fn set_organization(&mut self, organization: &str) {
        organization.clone_into(&mut self.options.self_signed.organization);
    }

    /// Sets the content of a place.
    pub fn observe(&mut self, place: Place, content: Content) {
        self.places.insert(place, content);
    }

    /// The reason for which a set is not used, if there is one.
    pub fn problem(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Decides. `due` is true when the time has come to look at the root's expiry; a root that has expired is always renewed.
    pub fn step(&mut self, now: SystemTime, due: bool) -> Step {
        let mut notices = Vec::new();
        let Some(candidate) = self.candidate(now) else {
            return Step { issuer: None, save: None, notices };
        };
        let mut wanted = None;
        let outcome = match candidate {
            Ok(Candidate::Loaded(found)) => self.adopt(found, &mut notices),
            Ok(Candidate::Nothing) => self.without(now).map(|save| wanted = Some(save)),
            Err(reason) => Err(reason),
        };
        self.refuse(outcome.err(), &mut notices);
        let wanted = wanted.or_else(|| self.rotation(now, due));
        self.pending = wanted;
        let issuer = match (&self.used, &self.refused) {
            (Some(used), _) => Some(Issuer::Own(used.authority.clone())),
            (None, Some(reason)) => Some(Issuer::Unavailable(reason.clone())),
            (None, None) => None,
        };
        Step { issuer, save: self.pending.clone(), notices }
    }

    /// The authority that should be used; `None` while a place was not read.
    fn candidate(&self, now: SystemTime) -> Option<Result<Candidate, String>> {
        let content = |place| self.places.get(&place);
        let (directory, cacerts) = (content(Place::Directory)?, content(Place::Cacerts)?);
        let own = content(Place::SelfSigned)?;
        let mut generated = None;
        for (place, content) in [(Place::Directory, directory), (Place::Cacerts, cacerts)] {
            match content {
                Content::Absent => {}
                Content::Unreadable(reason) => return Some(Err(format!("{place} cannot be read: {reason}"))),
                Content::Present(found) => match self.plugged_in(place, found, now) {
                    Ok(Loaded::Absent) => {}
                    Ok(Loaded::PluggedIn(authority)) => {
                        let origin = Origin::PluggedIn(place);
                        return Some(Ok(Candidate::Loaded(Used { origin, authority })));
                    }
                    // A mounted copy of the Secret says nothing about its version.
                    Ok(Loaded::SelfSigned) if place == Place::Directory => {}
                    Ok(Loaded::SelfSigned) => generated = Some(found),
                    Err(reason) => return Some(Err(reason)),
                },
            }
        }
        let (name, found) = match (own, generated) {
            (Content::Present(found), _) => (SECRET, found),
            (Content::Unreadable(reason), _) => {
                return Some(Err(format!("{} cannot be read: {reason}", Place::SelfSigned)));
            }
            (Content::Absent, Some(found)) => (CACERTS, found),
            (Content::Absent, None) => return Some(Ok(Candidate::Nothing)),
        };
        let authority = self_signed::from_secret(&found.data, now);
        let used = authority.map(|authority| Used { origin: Origin::SelfSigned(name), authority });
        Some(used.map(Candidate::Loaded).map_err(|error| format!("{} in {name}: {error}", Place::SelfSigned)))
    }

    fn plugged_in(&self, place: Place, found: &Found, now: SystemTime) -> Result<Loaded, String> {
        let loaded = match self.options.revocation {
            true => plugged_in::load(&found.data, now),
            false => {
                let mut data = found.data.clone();
                data.remove(REVOCATION);
                plugged_in::load(&data, now)
            }
        };
        loaded.map_err(|error| format!("{place}: {error}"))
    }

    /// Uses an authority instead of the current one, if that is allowed.
    fn adopt(&mut self, new: Used, notices: &mut Vec<Notice>) -> Result<(), String> {
        let mut replaces_key = false;
        if let Some(used) = &self.used {
            if *used == new {
                return Ok(());
            }
            replaces_key = used.authority.issuer().public_key() != new.authority.issuer().public_key();
            let is_same_secret = used.origin == new.origin && matches!(new.origin, Origin::SelfSigned(_));
            if !is_same_secret {
                check_root_change(&used.authority, &new.authority, self.options.multiple_roots)
                    .map_err(|error| format!("{}: {error}", new.origin.place()))?;
            }
        }
        notices.push(Notice::Used {
            place: new.origin.place(),
            subject: new.authority.issuer().subject().to_owned(),
            roots: new.authority.roots().len(),
            replaces_key,
        });
        self.used = Some(new);
        Ok(())
    }

    /// There is no authority anywhere: creates one, or stores the current one again.
    fn without(&mut self, now: SystemTime) -> Result<Save, String> {
        let name = if self.options.in_cacerts { CACERTS } else { SECRET };
        if let Some(save) = self.pending.take().filter(|save| save.replaces.is_none()) {
            return Ok(save);
        }
        let (name, authority, reason) = match &self.used {
            None => {
                let created = self_signed::create(&self.options.self_signed, now);
                let created = created.map_err(|error| format!("the self-signed authority: {error}"))?;
                (name, created, Reason::Created)
            }
            Some(Used { origin: Origin::SelfSigned(name), authority }) => (*name, authority.clone(), Reason::Restored),
            Some(Used { origin, .. }) => {
                return Err(format!(
                    "{}: the certificates were removed; those that were read last stay in use until this control plane is \
                     started again",
                    origin.place()
                ));
            }
        };
        Ok(save(name, &authority, None, reason))
    }

    /// The write that rotates the root, if it is time.
    fn rotation(&mut self, now: SystemTime, due: bool) -> Option<Save> {
        let Some(Used { origin: Origin::SelfSigned(name), authority }) = &self.used else {
            return None;
        };
        let Some(Content::Present(found)) = self.places.get(&self.used.as_ref()?.origin.place()) else {
            return None;
        };
        if !self.options.rotates {
            return None;
        }
        let version = Some(found.version.clone());
        if let Some(save) = self.pending.take().filter(|save| save.name == *name && save.replaces == version) {
            return Some(save);
        }
        let settings = &self.options.self_signed;
        let reason = match self_signed::decide(authority, settings, now) {
            Rotation::Expired => Reason::Recovered,
            Rotation::Due if due => Reason::Rotated,
            Rotation::Due | Rotation::Keep { .. } => return None,
        };
        match self_signed::rotate(authority, settings, now) {
            Ok(rotated) => Some(save(name, &rotated, version, reason)),
            Err(error) => {
                self.refused = Some(format!("the root of the self-signed authority cannot be rotated: {error}"));
                None
            }
        }
    }

    fn refuse(&mut self, reason: Option<String>, notices: &mut Vec<Notice>) {
        if self.refused == reason {
            return;
        }
        match &reason {
            Some(reason) => {
                notices.push(Notice::Refused { reason: reason.clone(), has_last: self.used.is_some() });
            }
            None => notices.push(Notice::Resolved),
        }
        self.refused = reason;
    }
}

fn save(name: &'static str, authority: &Authority, replaces: Option<String>, reason: Reason) -> Save {
    let found = Found { data: self_signed::to_secret(authority, name), version: String::new() };
    Save { name, found, replaces, reason }
}

#[cfg(test)]
mod tests;
