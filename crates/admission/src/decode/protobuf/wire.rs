//! The protobuf wire format: iterates over the fields of a message without copying.

/// Maximum nesting of (deprecated) groups.
const GROUPS: usize = 32;

/// The value of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wire<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// Fixed32, fixed64 or a group, which Kubernetes does not use.
    Other(u8),
}

impl Wire<'_> {
    /// The wire type number, for messages.
    pub(super) fn number(&self) -> u8 {
        match self {
            Wire::Varint(_) => 0,
            Wire::Bytes(_) => 2,
            Wire::Other(number) => *number,
        }
    }
}

/// The error of invalid wire data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error("unexpected end of the bytes")]
    End,
    #[error("a number has more than 64 bits")]
    Varint,
    #[error("invalid field number")]
    Number,
    #[error("a field has the unknown wire type {0}")]
    Type(u8),
    /// A group end has no start, or groups are nested too deeply.
    #[error("groups do not match")]
    Group,
}

/// Iterates over the fields of a message.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    /// The number and value of the next field; none at the end.
    pub(super) fn field(&mut self) -> Result<Option<(u32, Wire<'a>)>, Broken> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let (number, wire_type) = self.key()?;
        let wire = match wire_type {
            3 => {
                self.skip_group(number)?;
                Wire::Other(3)
            }
            4 => return Err(Broken::Group),
            other => self.value(other)?,
        };
        Ok(Some((number, wire)))
    }

    /// Reads a varint.
    pub(super) fn varint(&mut self) -> Result<u64, Broken> {
        let mut value = 0_u64;
        for (at, byte) in self.0.iter().enumerate().take(10) {
            let bits = u64::from(byte & 0x7f);
            // The tenth byte holds only one bit.
            if at == 9 && bits > 1 {
                return Err(Broken::Varint);
            }
            value |= bits << (7 * at);
            if byte & 0x80 == 0 {
                self.0 = &self.0[at + 1..];
                return Ok(value);
            }
        }
        Err(if self.0.len() < 10 { Broken::End } else { Broken::Varint })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn key(&mut self) -> Result<(u32, u8), Broken> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).map_err(|_| Broken::Number)?;
        if number == 0 || number > 0x1fff_ffff {
            return Err(Broken::Number);
        }
        // Three bits.
        Ok((number, (key & 7) as u8))
    }

    fn value(&mut self, wire_type: u8) -> Result<Wire<'a>, Broken> {
        match wire_type {
            0 => Ok(Wire::Varint(self.varint()?)),
            1 => self.take(8).map(|_| Wire::Other(1)),
            2 => {
                let length = self.varint()?;
                let length = usize::try_from(length).map_err(|_| Broken::End)?;
                self.take(length).map(Wire::Bytes)
            }
            5 => self.take(4).map(|_| Wire::Other(5)),
            other => Err(Broken::Type(other)),
        }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Broken> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Broken::End)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Skips to the end of the current group.
    fn skip_group(&mut self, number: u32) -> Result<(), Broken> {
        let mut open = vec![number];
        while let Some(innermost) = open.last().copied() {
            match self.key()? {
                (number, 3) if open.len() < GROUPS => open.push(number),
                (number, 4) if number == innermost => drop(open.pop()),
                (_, 3 | 4) => return Err(Broken::Group),
                (_, other) => drop(self.value(other)?),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<(u32, Wire<'_>)>, Broken> {
        let mut reader = Reader::new(bytes);
        let mut fields = Vec::new();
        while let Some(field) = reader.field()? {
            fields.push(field);
        }
        Ok(fields)
    }

    #[test]
    fn fields_are_read() {
        assert_eq!(all(&[]), Ok(vec![]));
        assert_eq!(all(&[0x08, 0x96, 0x01]), Ok(vec![(1, Wire::Varint(150))]));
        assert_eq!(all(&[0x12, 0x02, b'h', b'i']), Ok(vec![(2, Wire::Bytes(b"hi"))]));
        let minus_one = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(all(&minus_one), Ok(vec![(1, Wire::Varint(u64::MAX))]));
        // A group with a nested group and a fixed number, then a field.
        let grouped = [0x1b, 0x23, 0x24, 0x0d, 1, 2, 3, 4, 0x1c, 0x08, 0x01];
        assert_eq!(all(&grouped), Ok(vec![(3, Wire::Other(3)), (1, Wire::Varint(1))]));
    }

    #[test]
    fn broken_bytes_are_refused() {
        let deep = [0x0b; 40];
        for (bytes, why) in [
            (&[0x08][..], Broken::End),
            (&[0x08, 0x80], Broken::End),
            (&[0x12, 0x05, b'h'], Broken::End),
            (&[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], Broken::End),
            (&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], Broken::Varint),
            (&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], Broken::Varint),
            (&[0x00, 0x01], Broken::Number),
            (&[0x0e], Broken::Type(6)),
            (&[0x0c], Broken::Group),
            (&[0x0b, 0x14], Broken::Group),
            (&deep, Broken::Group),
        ] {
            assert_eq!(all(bytes), Err(why), "{bytes:x?}");
        }
    }
}
