//! OCSP responses that a server sends with its certificate (stapling).
//!
//! Envoy rejects a certificate together with a response that it cannot read or that is for another certificate. Such a
//! response is left out instead.

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
const ENUMERATED: u8 = 0x0a;
const TIME: u8 = 0x18;
const FIRST: u8 = 0xa0;
/// `id-pkix-ocsp-basic`, 1.3.6.1.5.5.7.48.1.1.
const BASIC: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01, 0x01];

/// Checks that Envoy accepts a response for the certificate with this serial number. The response is for one certificate, and
/// successful; its signature and its time are not checked, because clients do.
pub(super) fn check(response: &[u8], serial: &[u8]) -> Result<(), &'static str> {
    let mut fields = Der(response).enter(SEQUENCE).ok_or(MALFORMED)?;
    if fields.take(ENUMERATED).ok_or(MALFORMED)? != [0] {
        return Err("the OCSP response is an error of the responder");
    }
    let mut singles = responses(&mut fields).ok_or(MALFORMED)?;
    let own = serial_of(&mut singles).ok_or(MALFORMED)?;
    if !singles.0.is_empty() {
        return Err("the OCSP response is for several certificates");
    }
    match magnitude(own) == magnitude(serial) {
        true => Ok(()),
        false => Err("the OCSP response is for another certificate"),
    }
}

const MALFORMED: &str = "the value is no OCSP response in DER";

/// The responses for single certificates, after the status.
fn responses<'a>(fields: &mut Der<'a>) -> Option<Der<'a>> {
    let mut bytes = fields.enter(FIRST)?.enter(SEQUENCE)?;
    if bytes.take(OBJECT_ID)? != BASIC {
        return None;
    }
    let mut data = bytes.enter(OCTETS)?.enter(SEQUENCE)?.enter(SEQUENCE)?;
    // The version is optional; the responder is identified by name or by key.
    let (mut tag, _) = data.next()?;
    if tag == FIRST {
        (tag, _) = data.next()?;
    }
    if !matches!(tag, 0xa1 | 0xa2) {
        return None;
    }
    data.take(TIME)?;
    data.enter(SEQUENCE)
}

/// The serial number of the certificate that the next response is for.
fn serial_of<'a>(singles: &mut Der<'a>) -> Option<&'a [u8]> {
    let mut single = singles.enter(SEQUENCE)?;
    let mut id = single.enter(SEQUENCE)?;
    id.take(SEQUENCE)?;
    id.take(OCTETS)?;
    id.take(OCTETS)?;
    let serial = id.take(INTEGER)?;
    let (status, _) = single.next()?;
    single.take(TIME)?;
    matches!(status, 0x80 | 0xa1 | 0x82).then_some(serial)
}

/// A number without leading zeros.
fn magnitude(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

/// The rest of a DER encoding.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next value: its tag and content.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (tag, rest) = self.0.split_first()?;
        let (first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(*first), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, content))
    }

    /// The content of the next value, which must have this tag.
    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, content)| content)
    }

    /// The values in the next value, which must have this tag.
    fn enter(&mut self, tag: u8) -> Option<Der<'a>> {
        self.take(tag).map(Der)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        let length = content.len();
        let mut out = vec![tag];
        match length {
            0..=0x7f => out.push(length as u8),
            _ => out.extend([0x82, (length >> 8) as u8, length as u8]),
        }
        out.extend(content);
        out
    }

    fn single(serial: &[u8]) -> Vec<u8> {
        let (algorithm, hash) = (value(SEQUENCE, &[]), value(OCTETS, &[&[7; 32]]));
        let id = value(SEQUENCE, &[&algorithm, &hash, &hash, &value(INTEGER, &[serial])]);
        value(SEQUENCE, &[&id, &[0x80, 0], &value(TIME, &[b"20261125000000Z"])])
    }

    fn response(status: u8, singles: &[&[u8]]) -> Vec<u8> {
        let list = value(SEQUENCE, singles);
        let data = value(SEQUENCE, &[&value(0xa1, &[b"name"]), &value(TIME, &[b"20261125000000Z"]), &list]);
        let basic = value(OCTETS, &[&value(SEQUENCE, &[&data])]);
        let bytes = value(FIRST, &[&value(SEQUENCE, &[&value(OBJECT_ID, &[BASIC]), &basic])]);
        value(SEQUENCE, &[&[ENUMERATED, 1, status], &bytes])
    }

    #[test]
    fn a_response_fits_its_certificate() {
        let good = response(0, &[&single(&[0, 0x9a, 1])]);
        assert_eq!(check(&good, &[0x9a, 1]), Ok(()));
        let problem = |response: &[u8]| check(response, &[0x9a, 1]).unwrap_err();
        assert!(problem(&response(0, &[&single(&[5])])).contains("another certificate"));
        let two = response(0, &[&single(&[0x9a, 1]), &single(&[5])]);
        assert!(problem(&two).contains("several certificates"));
        assert!(problem(&response(3, &[&single(&[0x9a, 1])])).contains("an error of the responder"));
        assert_eq!(problem(&good[..good.len() - 1]), MALFORMED);
        assert_eq!(problem(b""), MALFORMED);
        assert_eq!(problem(&response(0, &[])), MALFORMED);
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_without_a_panic(bytes in any::<Vec<u8>>(), cut in 0usize..200, flip in 0usize..200) {
            prop_assert!(check(&bytes, &[1]).is_err());
            let mut near = response(0, &[&single(&[1])]);
            if let Some(byte) = near.get_mut(flip) {
                *byte ^= 0x41;
            }
            near.truncate(cut);
            let _ = check(&near, &[1]);
        }
    }
}
