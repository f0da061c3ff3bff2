//! Where the self-signed authority and join tokens are stored.

use std::collections::BTreeMap;
use std::future::Future;

use ca::keeper::{Content, Found, Save};

/// The storage cannot be read or written. The text contains no secret.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct StorageError(pub(crate) String);

/// Objects with secret values. A write names the version that it replaces, so that of several replicas only one succeeds.
pub(crate) trait Secrets: Send + Sync + 'static {
    /// Reads an object; `None` if it does not exist.
    fn read(&self, name: &str) -> impl Future<Output = Result<Option<Found>, StorageError>> + Send;

    /// Writes an object if it has this version (`None`: if it does not exist). Returns the new version; `None` on a conflict.
    fn write(
        &self,
        name: &str,
        data: &BTreeMap<String, Vec<u8>>,
        replaces: Option<&str>,
    ) -> impl Future<Output = Result<Option<String>, StorageError>> + Send;
}

/// Stores an authority. Returns the content of its place, which is another replica's after a conflict, and whether this write
/// succeeded.
pub(super) async fn store(secrets: &impl Secrets, save: &Save) -> Result<(Content, bool), StorageError> {
    let written = secrets.write(save.name, &save.found.data, save.replaces.as_deref()).await?;
    if let Some(version) = written {
        return Ok((Content::Present(Found { version, ..save.found.clone() }), true));
    }
    let found = secrets.read(save.name).await?;
    Ok((found.map_or(Content::Absent, Content::Present), false))
}
