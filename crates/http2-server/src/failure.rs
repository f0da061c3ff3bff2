//! Errors of streams and connections (RFC 9113, sections 5.4 and 7).

use std::io;

/// The error code of RST_STREAM and GOAWAY frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Code {
    NoError = 0,
    Protocol = 1,
    Internal = 2,
    FlowControl = 3,
    StreamClosed = 5,
    FrameSize = 6,
    RefusedStream = 7,
    Compression = 9,
    EnhanceYourCalm = 11,
}

/// An error in a received frame.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The stream is reset.
    Stream(u32, Code),
    /// The connection is closed. The text is for the client's log.
    Connection(Code, &'static str),
    /// The connection broke.
    Broken(io::Error),
}

impl Failure {
    pub(crate) const FRAME_SIZE: Failure = Failure::Connection(Code::FrameSize, "a frame has a wrong length");

    pub(crate) fn protocol(text: &'static str) -> Failure {
        Failure::Connection(Code::Protocol, text)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Broken(error)
    }
}

/// Why no more of a request can be received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// The client has reset the stream, or violated the protocol.
    Reset,
    /// The connection ended.
    Closed,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Broken::Reset => "the stream was reset",
            Broken::Closed => "the connection ended within a request",
        })
    }
}

impl std::error::Error for Broken {}
