//! The storage backend of redb. It can be retired: after a failure, the failed handle no longer modifies the file.
//! Tests inject faults.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::StorageBackend;

/// An access to the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(test), allow(dead_code, reason = "only tests look into it"))]
pub(super) enum Access<'a> {
    Read,
    Resize(u64),
    Write(u64, &'a [u8]),
    Sync,
}

/// Decides whether an access fails; for tests.
pub(super) type Fault = Arc<dyn Fn(Access<'_>) -> io::Result<()> + Send + Sync>;

/// A file with fault injection.
pub(super) struct Backend {
    file: File,
    fault: Option<Fault>,
    retired: Arc<AtomicBool>,
}

impl Backend {
    pub(super) fn new(file: File, fault: Option<Fault>) -> Backend {
        Backend { file, fault, retired: Arc::default() }
    }

    /// A flag that stops all writes when set.
    pub(super) fn retirement(&self) -> Arc<AtomicBool> {
        self.retired.clone()
    }

    fn check(&self, access: Access<'_>) -> io::Result<()> {
        if access != Access::Read && self.retired.load(Ordering::Acquire) {
            return Err(io::Error::other("the file was closed after an error"));
        }
        self.fault.as_ref().map_or(Ok(()), |fault| fault(access))
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.check(Access::Read)?;
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check(Access::Resize(len))?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check(Access::Sync)?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(Access::Write(offset, data))?;
        self.file.write_all_at(data, offset)
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend").field("file", &self.file).finish_non_exhaustive()
    }
}
