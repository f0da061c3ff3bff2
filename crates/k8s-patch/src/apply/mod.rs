//! Server-side apply and field ownership.
//!
//! `metadata.managedFields` lists managers. An `Apply` manager owns the fields of its last applied configuration; an
//! `Update` manager owns the fields that it changed by other writes. A field may have several owners if they agree on the
//! value.

mod before;
mod declared;
mod entries;
mod ignored;
mod prune;
mod server_side;
mod update;

use config::Timestamp;
use config::schema::Definition;
use serde_json::Value as Json;

use crate::Error;

pub use declared::check_declared;
pub use server_side::apply;
pub use update::{differ, track};

/// The writer of an object: manager, version, subresource and time.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// The kind of object.
    pub definition: &'a Definition,
    /// The version of the request, for example `v1`.
    pub version: &'a str,
    /// The manager's name; see [`manager_name`].
    pub manager: &'a str,
    /// The subresource, for example `status`; none for the object itself.
    pub subresource: Option<&'a str>,
    /// The time of the request.
    pub now: Timestamp,
}

impl Writer<'_> {
    /// `GROUP/VERSION` of the request.
    fn api_version(&self) -> String {
        self.definition.api_version_of(self.version)
    }
}

/// Maximum length of a manager's name, in bytes.
const MAX_MANAGER: usize = 128;

/// The manager of a request: the parameter `?fieldManager=`, or the program in the user agent.
///
/// # Errors
/// The parameter is longer than 128 bytes or not printable.
pub fn manager_name(field_manager: Option<&str>, user_agent: Option<&str>) -> Result<String, Error> {
    let Some(name) = field_manager.filter(|name| !name.is_empty()) else {
        let program = user_agent.and_then(|agent| agent.split('/').next()).unwrap_or_default();
        let mut name = String::new();
        for letter in program.chars().filter(|letter| !letter.is_control()) {
            if name.len() + letter.len_utf8() > MAX_MANAGER {
                break;
            }
            name.push(letter);
        }
        return Ok(if name.is_empty() { "unknown".to_owned() } else { name });
    };
    let refuse = |why: &str| {
        let text = format!("PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: {why}");
        Err(Error::Unprocessable(text))
    };
    if name.len() > MAX_MANAGER {
        return refuse("Too long: may not be more than 128 bytes");
    }
    if name.chars().any(char::is_control) {
        return refuse(&format!("Invalid value: {name:?}: should only contain printable characters"));
    }
    Ok(name.to_owned())
}

/// The object without its managers.
fn without_managers(object: &Json) -> Json {
    let mut out = object.clone();
    set_managers(&mut out, None);
    out
}

/// Sets or removes the managers.
fn set_managers(object: &mut Json, managers: Option<Json>) {
    let Some(meta) = object.get_mut("metadata").and_then(Json::as_object_mut) else {
        return;
    };
    match managers {
        Some(managers) => meta.insert("managedFields".into(), managers),
        None => meta.remove("managedFields"),
    };
}

/// The managers as written in an object.
fn managers_of(object: &Json) -> Option<&Json> {
    object.get("metadata")?.get("managedFields").filter(|list| !list.is_null())
}
