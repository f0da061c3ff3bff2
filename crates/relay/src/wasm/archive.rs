//! Modules in archives.

use std::fs::File;
use std::io::{self, Read, Seek as _};

use flate2::read::GzDecoder;
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use super::error::FetchError;
use super::{MAGIC, hex};

/// The maximum number of archives in one another.
const MAX_DEPTH: usize = 4;
/// The file of the module in an image.
const PLUGIN: &str = "plugin.wasm";

/// Unpacks a downloaded file as long as it is compressed or an archive. Returns the module and its checksum.
pub(super) fn open(file: Draft) -> Result<(NamedTempFile, String), FetchError> {
    let mut file = file;
    for _ in 0..MAX_DEPTH {
        let mut start = Vec::new();
        file.reader()?.take(263).read_to_end(&mut start)?;
        let next = if start.starts_with(MAGIC) {
            break;
        } else if start.starts_with(&[0x1f, 0x8b]) {
            file.unpacked(|reader, limit, write| write(&mut GzDecoder::new(reader).take(limit + 1)))
        } else if start.get(257..262) == Some(b"ustar") {
            file.unpacked(|reader, _, write| {
                let mut archive = tar::Archive::new(reader);
                let first = archive.entries()?.next().ok_or(io::ErrorKind::UnexpectedEof)?;
                write(&mut first?)
            })
        } else {
            break;
        };
        file = next.map_err(FetchError::Archive)?;
    }
    let mut hash = Sha256::new();
    io::copy(&mut file.reader()?, &mut hash)?;
    Ok((file.file, hex(&hash.finalize())))
}

/// Takes the module out of the layer of an image.
pub(super) fn plugin(file: Draft) -> Result<NamedTempFile, FetchError> {
    let unpacked = file.unpacked(|reader, limit, write| {
        let mut archive = tar::Archive::new(GzDecoder::new(reader).take(limit));
        for entry in archive.entries()? {
            let mut entry = entry?;
            if entry.path()?.file_name().is_some_and(|name| name == PLUGIN) {
                return write(&mut entry);
            }
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "the layer has no plugin.wasm"))
    });
    Ok(unpacked.map_err(FetchError::Archive)?.file)
}

/// A file beside the modules, which is removed unless it becomes one.
pub(super) struct Draft {
    pub(super) file: NamedTempFile,
    /// The maximum size of a module, in bytes.
    pub(super) limit: u64,
}

type Write<'a> = &'a mut dyn FnMut(&mut dyn Read) -> io::Result<()>;

impl Draft {
    fn reader(&self) -> io::Result<io::BufReader<File>> {
        let mut file = self.file.reopen()?;
        file.rewind()?;
        Ok(io::BufReader::new(file))
    }

    /// The part of this file that `unpack` writes.
    fn unpacked(
        &self,
        unpack: impl FnOnce(io::BufReader<File>, u64, Write<'_>) -> io::Result<()>,
    ) -> io::Result<Draft> {
        let directory = self.file.path().parent().ok_or(io::ErrorKind::InvalidInput)?;
        let mut file = NamedTempFile::new_in(directory)?;
        unpack(self.reader()?, self.limit, &mut |part| {
            let copied = io::copy(&mut part.take(self.limit + 1), &mut file)?;
            if copied > self.limit {
                return Err(io::Error::other(format!("the module is larger than {} bytes", self.limit)));
            }
            Ok(())
        })?;
        Ok(Draft { file, limit: self.limit })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use super::*;

    const MODULE: &[u8] = b"\0asm\x01\0\0\0";

    fn draft(bytes: &[u8]) -> Draft {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        Draft { file, limit: 10_000 }
    }

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut writer = GzEncoder::new(vec![], Compression::fast());
        writer.write_all(bytes).unwrap();
        writer.finish().unwrap()
    }

    fn archived(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut archive = tar::Builder::new(vec![]);
        for (name, content) in files {
            let mut header = tar::Header::new_ustar();
            header.set_size(content.len() as u64);
            header.set_cksum();
            archive.append_data(&mut header, name, *content).unwrap();
        }
        archive.into_inner().unwrap()
    }

    fn content(file: &NamedTempFile) -> Vec<u8> {
        std::fs::read(file.path()).unwrap()
    }

    #[test]
    fn archives_are_opened() {
        let sum = hex(&Sha256::digest(MODULE));
        let archive = archived(&[("a.wasm", MODULE), ("b", b"b")]);
        for bytes in [MODULE, &packed(MODULE), &archive, &packed(&archive)] {
            let (file, found) = open(draft(bytes)).unwrap();
            assert_eq!((&*content(&file), &*found), (MODULE, &*sum));
        }
        assert_eq!(content(&open(draft(b"text")).unwrap().0), b"text");
        let error = open(draft(&packed(&[0; 20_000]))).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.contains("larger than 10000 bytes")));
    }

    #[test]
    fn the_plugin_of_a_layer_is_found() {
        let layer = packed(&archived(&[("readme", b"x"), ("./plugin.wasm", MODULE)]));
        assert_eq!(content(&plugin(draft(&layer)).unwrap()), MODULE);
        for (wrong, text) in
            [(packed(&archived(&[("a", b"x")])), "no plugin.wasm"), (b"not an archive".to_vec(), "gzip")]
        {
            let error = plugin(draft(&wrong)).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..600), kind in 0..3u8) {
            match kind {
                0 if bytes.len() > 262 => bytes[257..262].copy_from_slice(b"ustar"),
                1 => bytes = packed(&bytes),
                _ => {}
            }
            let _ = (open(draft(&bytes)), plugin(draft(&bytes)));
        }
    }
}
