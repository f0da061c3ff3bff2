//! A writer of tar archives (ustar), with the features that images need.

use std::io::{self, Read, Write};

/// The block size of headers and contents.
const BLOCK: usize = 512;

/// The type of an entry.
#[derive(Clone, Copy)]
pub(super) enum Kind<'a> {
    /// A file of this many bytes.
    File(u64),
    Directory,
    /// A symbolic link to this path.
    Link(&'a str),
}

/// An archive that is being written.
pub(super) struct Archive<W> {
    out: W,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(out: W) -> Archive<W> {
        Archive { out }
    }

    /// Adds an entry. Reads exactly the number of bytes in `kind` from `content`.
    pub(super) fn add(&mut self, name: &str, mode: u32, kind: Kind<'_>, content: &mut dyn Read) -> io::Result<()> {
        self.out.write_all(&header(name, mode, kind)?)?;
        if let Kind::File(size) = kind {
            let copied = io::copy(&mut content.take(size), &mut self.out)?;
            if copied != size {
                return Err(io::Error::other(format!("{name} became shorter while it was read")));
            }
            let rest = (BLOCK - (size % BLOCK as u64) as usize) % BLOCK;
            self.out.write_all(&[0; BLOCK][..rest])?;
        }
        Ok(())
    }

    /// Finishes the archive.
    pub(super) fn end(mut self) -> io::Result<W> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.flush()?;
        Ok(self.out)
    }
}

fn header(name: &str, mode: u32, kind: Kind<'_>) -> io::Result<[u8; BLOCK]> {
    let mut header = [0; BLOCK];
    let (prefix, name) = split(name).ok_or_else(|| io::Error::other(format!("{name} is too long for an archive")))?;
    let (flag, size, link) = match kind {
        Kind::File(size) => (b'0', size, ""),
        Kind::Directory => (b'5', 0, ""),
        Kind::Link(to) => (b'2', 0, to),
    };
    if link.len() > 100 {
        return Err(io::Error::other(format!("{link} is too long for a link in an archive")));
    }
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, format!("{mode:07o}\0").as_bytes());
    // Owner and group are root.
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    // The time is always zero, so that equal images have equal digests.
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, &[flag]);
    put(157, link.as_bytes());
    put(257, b"ustar\x0000");
    put(345, prefix.as_bytes());
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(header)
}

/// Splits a long name at a slash into prefix and name.
fn split(name: &str) -> Option<(&str, &str)> {
    if name.len() <= 100 {
        return Some(("", name));
    }
    let mut parts = name.match_indices('/').map(|(at, _)| (&name[..at], &name[at + 1..]));
    parts.find(|(prefix, rest)| prefix.len() <= 155 && rest.len() <= 100)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::process::Command;

    use super::*;

    #[test]
    fn archives_can_be_read_by_tar() {
        let dir = tempfile::tempdir().unwrap();
        let mut archive = Archive::new(Vec::new());
        let long = format!("{}/{}", "a".repeat(90), "b".repeat(90));
        archive.add("d", 0o755, Kind::Directory, &mut io::empty()).unwrap();
        archive.add("d/f", 0o640, Kind::File(700), &mut io::repeat(b'x')).unwrap();
        archive.add(&long, 0o600, Kind::File(1), &mut io::repeat(b'y')).unwrap();
        archive.add("l", 0o777, Kind::Link("d/f"), &mut io::empty()).unwrap();
        let file = dir.path().join("a.tar");
        std::fs::write(&file, archive.end().unwrap()).unwrap();
        let status = Command::new("tar").arg("-xf").arg(&file).arg("-C").arg(dir.path()).status();
        assert!(status.unwrap().success());
        assert_eq!(std::fs::read_to_string(dir.path().join("l")).unwrap(), "x".repeat(700));
        assert_eq!(std::fs::read_to_string(dir.path().join(long)).unwrap(), "y");
    }

    #[test]
    fn names_that_are_too_long_are_errors() {
        let mut archive = Archive::new(Vec::new());
        let none = &mut io::empty();
        archive.add(&"a".repeat(101), 0o600, Kind::File(0), none).unwrap_err();
        archive.add("l", 0o777, Kind::Link(&"a".repeat(101)), none).unwrap_err();
        archive.add("f", 0o600, Kind::File(1), none).unwrap_err();
    }
}
