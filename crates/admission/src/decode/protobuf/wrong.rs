//! Errors of protobuf decoding, with field paths.

use protos::wire::Malformed;

use crate::decode::DecodeError;

/// An error with its path: names and indexes, innermost first.
pub(super) struct Wrong {
    path: Vec<String>,
    what: What,
}

enum What {
    Malformed(String),
    TooLarge(String),
}

impl Wrong {
    pub(super) fn new(what: impl Into<String>) -> Wrong {
        let what = What::Malformed(what.into());
        Wrong { path: Vec::new(), what }
    }

    pub(super) fn too_large(what: &str) -> Wrong {
        let what = What::TooLarge(what.to_owned());
        Wrong { path: Vec::new(), what }
    }

    pub(super) fn at(mut self, step: impl Into<String>) -> Wrong {
        self.path.push(step.into());
        self
    }

    /// The message for the client.
    pub(super) fn error(mut self) -> DecodeError {
        self.path.reverse();
        let place = match self.path.join(".") {
            path if path.is_empty() => String::new(),
            path => format!("{}: ", path.replace(".[", "[")),
        };
        match self.what {
            What::Malformed(what) => DecodeError::Malformed(format!("protobuf: {place}{what}")),
            What::TooLarge(what) => DecodeError::TooLarge(what),
        }
    }
}

impl From<Malformed> for Wrong {
    fn from(malformed: Malformed) -> Wrong {
        Wrong::new(malformed.to_string())
    }
}
