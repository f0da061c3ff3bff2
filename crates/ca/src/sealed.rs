//! Private keys encrypted at rest, for the embedded store.
//!
//! The key of the encryption is derived from the bytes of a key file outside of the store. Format, version 1:
//!
//! | bytes | content |
//! |---|---|
//! | 4 | `RTSK` |
//! | 1 | version: 1 |
//! | 32 | salt of HKDF-SHA256 |
//! | 12 | nonce |
//! | rest | AES-256-GCM ciphertext and tag |
//!
//! The first 37 bytes and the purpose are authenticated, so that a sealed key cannot be used for another purpose.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, RandomizedNonceKey};
use aws_lc_rs::{hkdf, rand};

/// The shortest key file, in bytes. Its content must be random: `head -c 32 /dev/urandom`.
pub const MIN_KEY_FILE: usize = 32;
/// The longest text that can be sealed, in bytes.
pub const MAX_PLAIN: usize = 64 * 1024;

const MAGIC: &[u8; 5] = b"RTSK\x01";
const SALT: usize = 32;
const HEADER: usize = MAGIC.len() + SALT;
const TAG: usize = 16;

/// A text that cannot be sealed or opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The key file is too short.
    #[error("the key file has fewer than {MIN_KEY_FILE} bytes; create it with `head -c 32 /dev/urandom`")]
    KeyFile,
    /// The text is too long.
    #[error("the text has more than {MAX_PLAIN} bytes")]
    TooLong,
    /// The bytes are not of this format, or of a later version.
    #[error("this is not a sealed key, or one of a later version of Rutter")]
    Format,
    /// The key file is another one, or the bytes were changed.
    #[error("the sealed key cannot be opened: the key file is not the one that sealed it, or the store is damaged")]
    Opening,
    /// The cryptographic library failed.
    #[error("the cryptographic library failed")]
    Library,
}

/// The content of a key file. Debug output does not show it.
pub struct KeyFile(Vec<u8>);

/// The content of a new key file.
///
/// # Errors
/// The cryptographic library fails.
pub fn random_bytes() -> Result<Vec<u8>, SealError> {
    let mut bytes = vec![0; MIN_KEY_FILE];
    rand::fill(&mut bytes).map_err(|_| SealError::Library)?;
    Ok(bytes)
}

impl KeyFile {
    /// Takes the bytes of a key file.
    ///
    /// # Errors
    /// There are too few.
    pub fn new(bytes: &[u8]) -> Result<KeyFile, SealError> {
        if bytes.len() < MIN_KEY_FILE {
            return Err(SealError::KeyFile);
        }
        Ok(KeyFile(bytes.to_vec()))
    }

    /// Seals a text for a purpose, such as `ca-key`.
    ///
    /// # Errors
    /// The text is too long.
    pub fn seal(&self, plain: &[u8], purpose: &str) -> Result<Vec<u8>, SealError> {
        if plain.len() > MAX_PLAIN {
            return Err(SealError::TooLong);
        }
        let mut salt = [0; SALT];
        rand::fill(&mut salt).map_err(|_| SealError::Library)?;
        let mut out = [&MAGIC[..], &salt].concat();
        let mut body = plain.to_vec();
        let key = self.derive(&salt)?;
        let nonce = key.seal_in_place_append_tag(authenticated(&out, purpose), &mut body);
        out.extend_from_slice(nonce.map_err(|_| SealError::Library)?.as_ref());
        out.append(&mut body);
        Ok(out)
    }

    /// Opens a sealed text.
    ///
    /// # Errors
    /// The bytes have another format, another purpose, were changed, or were sealed with another key file.
    pub fn open(&self, sealed: &[u8], purpose: &str) -> Result<Vec<u8>, SealError> {
        let is_sealed = sealed.starts_with(MAGIC)
            && (HEADER + NONCE_LEN + TAG..=HEADER + NONCE_LEN + TAG + MAX_PLAIN).contains(&sealed.len());
        if !is_sealed {
            return Err(SealError::Format);
        }
        let (header, rest) = sealed.split_at(HEADER);
        let (nonce, body) = rest.split_at(NONCE_LEN);
        let nonce = aws_lc_rs::aead::Nonce::try_assume_unique_for_key(nonce).map_err(|_| SealError::Format)?;
        let mut body = body.to_vec();
        let key = self.derive(&header[MAGIC.len()..])?;
        let plain =
            key.open_in_place(nonce, authenticated(header, purpose), &mut body).map_err(|_| SealError::Opening)?;
        Ok(plain.to_vec())
    }

    fn derive(&self, salt: &[u8]) -> Result<RandomizedNonceKey, SealError> {
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(&self.0);
        let mut key = [0; 32];
        let expanded = secret.expand(&[b"rutter sealed key"], hkdf::HKDF_SHA256).and_then(|okm| okm.fill(&mut key));
        expanded.map_err(|_| SealError::Library)?;
        RandomizedNonceKey::new(&AES_256_GCM, &key).map_err(|_| SealError::Library)
    }
}

impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyFile")
    }
}

fn authenticated(header: &[u8], purpose: &str) -> Aad<Vec<u8>> {
    Aad::from([header, purpose.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(byte: u8) -> KeyFile {
        KeyFile::new(&[byte; MIN_KEY_FILE]).unwrap()
    }

    #[test]
    fn a_sealed_key_opens_with_the_same_file_and_purpose_only() {
        let sealed = file(1).seal(b"secret", "ca-key").unwrap();
        assert_eq!(file(1).open(&sealed, "ca-key").unwrap(), b"secret");
        assert_eq!(file(2).open(&sealed, "ca-key"), Err(SealError::Opening));
        assert_eq!(file(1).open(&sealed, "other"), Err(SealError::Opening));
        assert!(!sealed.windows(6).any(|part| part == b"secret"));
        assert_ne!(file(1).seal(b"secret", "ca-key").unwrap(), sealed, "salt and nonce are new");
        assert_eq!(format!("{:?}", file(1)), "KeyFile");
    }

    #[test]
    fn other_formats_and_short_key_files_are_refused() {
        assert_eq!(KeyFile::new(&[0; 31]).unwrap_err(), SealError::KeyFile);
        assert_eq!(file(1).seal(&[0; MAX_PLAIN + 1], ""), Err(SealError::TooLong));
        let mut later = file(1).seal(b"secret", "").unwrap();
        later[4] = 2;
        assert_eq!(file(1).open(&later, ""), Err(SealError::Format));
        assert_eq!(file(1).open(b"RTSK\x01", ""), Err(SealError::Format));
    }

    proptest! {
        #[test]
        fn what_was_changed_does_not_open(
            plain in proptest::collection::vec(any::<u8>(), 0..100),
            at in any::<prop::sample::Index>(),
            flip in 1u8..,
        ) {
            let mut sealed = file(1).seal(&plain, "p").unwrap();
            prop_assert_eq!(file(1).open(&sealed, "p").unwrap(), plain);
            let at = at.index(sealed.len());
            sealed[at] ^= flip;
            prop_assert!(file(1).open(&sealed, "p").is_err());
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = file(1).open(&bytes, "p");
            let _ = file(1).open(&[&MAGIC[..], &bytes].concat(), "p");
        }
    }
}
