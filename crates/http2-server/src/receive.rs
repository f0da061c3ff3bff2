//! Handles the frames of the client.

use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::body::RequestBody;
use crate::connection::{Connection, Phase, SHUTDOWN};
use crate::failure::{Code, Failure};
use crate::fields::{Fields, MAX_BYTES, Refused};
use crate::frame::{FIRST_WINDOW, Head, MAX_FRAME, MAX_WINDOW, flag, kind, number, setting};
use crate::stream::Stream;

/// The size of a header block that is decoded. Compressed fields are not longer than the fields.
const MAX_BLOCK: usize = MAX_BYTES + MAX_FRAME;
/// The most frames of a header block.
const MAX_PARTS: usize = 16;

/// A header block that is not complete.
pub(crate) struct Block {
    stream: u32,
    ends_stream: bool,
    bytes: Vec<u8>,
    parts: usize,
}

impl<I, S, F, B> Connection<I, S, F, B>
where
    I: AsyncRead + AsyncWrite + Unpin,
    S: Fn(Request<RequestBody>) -> F,
    F: Future<Output = Response<B>>,
    B: Body + Unpin,
{
    /// Handles received bytes.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let mut bytes = bytes;
        while let Some(frame) = self.reader.next(&mut bytes)? {
            match self.frame(frame.head, frame.payload()) {
                Err(Failure::Stream(id, code)) => {
                    self.count_reset(id)?;
                    self.remove(id);
                    self.reset(id, code);
                }
                handled => handled?,
            }
        }
        Ok(())
    }

    fn frame(&mut self, head: Head, payload: &[u8]) -> Result<(), Failure> {
        if !self.has_settings && (head.kind != kind::SETTINGS || head.has(flag::ACK)) {
            return Err(Failure::protocol("the first frame is not SETTINGS"));
        }
        if self.block.is_some() != (head.kind == kind::CONTINUATION) {
            return Err(Failure::protocol("CONTINUATION frames must follow HEADERS, and nothing may be between them"));
        }
        let is_of_connection = matches!(head.kind, kind::SETTINGS | kind::PING | kind::GOAWAY);
        let is_of_any = head.kind == kind::WINDOW_UPDATE || head.kind > kind::CONTINUATION;
        if !is_of_any && is_of_connection != (head.stream == 0) {
            return Err(Failure::protocol("a frame has a wrong stream"));
        }
        match head.kind {
            kind::DATA => self.data(head, payload),
            kind::HEADERS => {
                let bytes = head.unpadded(payload)?.to_vec();
                let ends_stream = head.has(flag::END_STREAM);
                self.block(head, Block { stream: head.stream, ends_stream, bytes, parts: 1 })
            }
            kind::CONTINUATION => {
                let block = self.block.take().filter(|block| block.stream == head.stream);
                let Some(mut block) = block else { return Err(Failure::protocol("a frame has a wrong stream")) };
                block.bytes.extend_from_slice(payload);
                block.parts += 1;
                self.block(head, block)
            }
            kind::PRIORITY if payload.len() != 5 => match self.open(head.stream) {
                Some(stream) => Err(Failure::Stream(stream.id, Code::FrameSize)),
                None => Err(Failure::FRAME_SIZE),
            },
            kind::RST_STREAM => self.reset_by_client(head.stream, payload),
            kind::SETTINGS => self.settings(head, payload),
            kind::PUSH_PROMISE => Err(Failure::protocol("clients cannot push")),
            kind::PING => self.ping(head, payload),
            kind::GOAWAY => self.go_away(payload),
            kind::WINDOW_UPDATE => self.window_update(head.stream, payload),
            // Extensions are ignored.
            _ => Ok(()),
        }
    }

    /// Whether the client has never used this stream.
    fn is_idle(&self, id: u32) -> bool {
        id > self.last_stream || id.is_multiple_of(2)
    }

    fn open(&mut self, id: u32) -> Option<&mut Stream<F, B>> {
        self.streams.iter_mut().find(|stream| stream.id == id)
    }

    fn data(&mut self, head: Head, payload: &[u8]) -> Result<(), Failure> {
        let (id, length) = (head.stream, payload.len());
        if self.is_idle(id) {
            return Err(Failure::protocol("DATA of a stream without HEADERS"));
        }
        let bytes = head.unpadded(payload)?;
        self.receive_window -= length as i64;
        if self.receive_window < 0 {
            return Err(Failure::Connection(Code::FlowControl, "more data than the window allows"));
        }
        let accepted = self.accept(id, length, bytes.len());
        // Whatever happens, the window of the connection must grow again.
        self.bodies.receive(id, if accepted.is_ok() { bytes } else { &[] }, length);
        match accepted {
            Ok(()) if head.has(flag::END_STREAM) => self.end_request(id),
            Ok(()) => Ok(()),
            Err(_) if self.is_ignored(id) => Ok(()),
            Err(code) => Err(Failure::Stream(id, code)),
        }
    }

    /// Whether a stream may receive a frame with so many bytes, of which some are padding.
    fn accept(&mut self, id: u32, length: usize, bytes: usize) -> Result<(), Code> {
        let stream = self.open(id).filter(|stream| !stream.has_ended).ok_or(Code::StreamClosed)?;
        stream.receive_window -= length as i64;
        if stream.receive_window < 0 {
            return Err(Code::FlowControl);
        }
        if let Some(missing) = &mut stream.missing {
            *missing = missing.checked_sub(bytes as u64).ok_or(Code::Protocol)?;
        }
        Ok(())
    }

    /// The client has sent the whole request.
    fn end_request(&mut self, id: u32) -> Result<(), Failure> {
        if let Some(stream) = self.open(id) {
            if stream.missing.is_some_and(|missing| missing > 0) {
                return Err(Failure::Stream(id, Code::Protocol));
            }
            stream.has_ended = true;
        }
        self.bodies.end(id, Ok(()));
        Ok(())
    }

    /// Handles a header block if it is complete.
    fn block(&mut self, head: Head, block: Block) -> Result<(), Failure> {
        if block.bytes.len() > MAX_BLOCK || block.parts > MAX_PARTS {
            return Err(Failure::Connection(Code::EnhanceYourCalm, "the header fields of a request are too long"));
        }
        if !head.has(flag::END_HEADERS) {
            self.block = Some(block);
            return Ok(());
        }
        let mut fields = Fields::default();
        let decoded = self.decoder.decode(&block.bytes, |name, value| fields.add(name, value));
        decoded.map_err(|_| Failure::Connection(Code::Compression, "invalid header fields"))?;
        let id = block.stream;
        match self.open(id).map(|stream| stream.has_ended) {
            Some(true) => Err(Failure::Stream(id, Code::StreamClosed)),
            Some(false) if block.ends_stream && fields.are_trailers() => self.end_request(id),
            Some(false) => Err(Failure::Stream(id, Code::Protocol)),
            None if id > self.last_stream && !id.is_multiple_of(2) => {
                self.last_stream = id;
                self.request(id, fields, block.ends_stream)
            }
            None if self.is_ignored(id) => Ok(()),
            None if self.is_idle(id) => Err(Failure::protocol("clients use odd numbers for streams")),
            None => Err(Failure::Connection(Code::StreamClosed, "HEADERS of a stream that has ended")),
        }
    }

    /// Passes a request to the service.
    fn request(&mut self, id: u32, fields: Fields, ends_stream: bool) -> Result<(), Failure> {
        if matches!(self.phase, Phase::Last(_)) {
            self.ignore(id);
            return Ok(());
        }
        if self.streams.len() >= self.settings.max_streams as usize {
            self.check_resets()?;
            return Err(Failure::Stream(id, Code::RefusedStream));
        }
        let (request, missing) = match fields.into_request() {
            Ok(request) => request,
            Err(Refused::Malformed) => {
                self.check_resets()?;
                return Err(Failure::Stream(id, Code::Protocol));
            }
            Err(Refused::TooLarge) => {
                self.check_resets()?;
                let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
                self.output.headers(id, Some(status), &HeaderMap::new(), true);
                return if ends_stream { Ok(()) } else { Err(Failure::Stream(id, Code::NoError)) };
            }
        };
        let body = self.bodies.open(id);
        let answer = (self.service)(request.map(|()| body));
        // Until it knows the settings, a client may send what the protocol allows.
        let windows = (self.first_window, self.settings.window.max(FIRST_WINDOW));
        // Most connections have one.
        self.streams.reserve_exact(usize::from(self.streams.is_empty()));
        self.streams.push(Stream::new(id, windows, missing, answer));
        if ends_stream { self.end_request(id) } else { Ok(()) }
    }

    fn reset_by_client(&mut self, id: u32, payload: &[u8]) -> Result<(), Failure> {
        if payload.len() != 4 {
            return Err(Failure::FRAME_SIZE);
        }
        if self.is_idle(id) {
            return Err(Failure::protocol("RST_STREAM of a stream without HEADERS"));
        }
        self.count_reset(id)?;
        self.remove(id);
        Ok(())
    }

    /// Counts the reset of a stream that is open, by the client or because of what it has sent. Others cost nothing.
    fn count_reset(&mut self, id: u32) -> Result<(), Failure> {
        if self.open(id).is_some() { self.check_resets() } else { Ok(()) }
    }

    fn check_resets(&mut self) -> Result<(), Failure> {
        match self.resets.take() {
            true => Ok(()),
            false => Err(Failure::Connection(Code::EnhanceYourCalm, "too many streams were reset or refused")),
        }
    }

    fn settings(&mut self, head: Head, payload: &[u8]) -> Result<(), Failure> {
        if !payload.len().is_multiple_of(6) || (head.has(flag::ACK) && !payload.is_empty()) {
            return Err(Failure::FRAME_SIZE);
        }
        if head.has(flag::ACK) {
            return Ok(());
        }
        for entry in payload.chunks_exact(6) {
            let (name, value) = (u16::from_be_bytes([entry[0], entry[1]]), number(&entry[2..])?);
            match name {
                setting::ENABLE_PUSH if value > 1 => return Err(Failure::protocol("ENABLE_PUSH is not 0 or 1")),
                setting::INITIAL_WINDOW_SIZE => self.set_first_window(value)?,
                setting::MAX_FRAME_SIZE if !(MAX_FRAME as u32..1 << 24).contains(&value) => {
                    return Err(Failure::protocol("MAX_FRAME_SIZE is out of range"));
                }
                // Frames have the length that every client accepts, and no table is used.
                _ => {}
            }
        }
        self.has_settings = true;
        self.output.frame(kind::SETTINGS, flag::ACK, 0, &[]);
        Ok(())
    }

    fn set_first_window(&mut self, value: u32) -> Result<(), Failure> {
        let added = i64::from(value) - i64::from(self.first_window);
        self.first_window = value;
        self.streams.iter_mut().for_each(|stream| stream.send_window += added);
        let is_valid = self.streams.iter().all(|stream| stream.send_window <= i64::from(MAX_WINDOW));
        match is_valid && value <= MAX_WINDOW {
            true => Ok(()),
            false => Err(Failure::Connection(Code::FlowControl, "INITIAL_WINDOW_SIZE is too large")),
        }
    }

    fn ping(&mut self, head: Head, payload: &[u8]) -> Result<(), Failure> {
        if payload.len() != 8 {
            return Err(Failure::FRAME_SIZE);
        }
        if !head.has(flag::ACK) {
            self.output.frame(kind::PING, flag::ACK, 0, payload);
        } else if payload == SHUTDOWN && self.phase == Phase::Announced {
            self.refuse_further();
        }
        Ok(())
    }

    /// The client opens no further streams.
    fn go_away(&mut self, payload: &[u8]) -> Result<(), Failure> {
        if payload.len() < 8 {
            return Err(Failure::FRAME_SIZE);
        }
        if !matches!(self.phase, Phase::Last(_)) {
            self.refuse_further();
        }
        Ok(())
    }

    fn window_update(&mut self, id: u32, payload: &[u8]) -> Result<(), Failure> {
        if payload.len() != 4 {
            return Err(Failure::FRAME_SIZE);
        }
        let added = number(payload)? & MAX_WINDOW;
        if id > 0 && self.is_idle(id) {
            return Err(Failure::protocol("WINDOW_UPDATE of a stream without HEADERS"));
        }
        let fail =
            |code| if id == 0 { Failure::Connection(code, "an invalid window") } else { Failure::Stream(id, code) };
        let window = match id {
            0 => self.output.window(),
            _ => match self.open(id) {
                Some(stream) => &mut stream.send_window,
                None => return Ok(()),
            },
        };
        *window += i64::from(added);
        match (added, *window > i64::from(MAX_WINDOW)) {
            (0, _) => Err(fail(Code::Protocol)),
            (_, true) => Err(fail(Code::FlowControl)),
            _ => Ok(()),
        }
    }
}
