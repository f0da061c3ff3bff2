//! The rules of RFC 9113, each as what a client sends and what the server answers.

use std::future::ready;

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use http2_server::{Settings, fuzz};
use proptest::prelude::*;

use crate::frames::*;

/// The name of a rule, the frames of a client after its settings, in one write, and the answer after those.
type Rule<'a> = (&'a str, Vec<Vec<u8>>, &'a [&'a str]);

const PROTOCOL: &str = "goaway 0 1";
const FRAME_SIZE: &str = "goaway 0 6";
const FLOW_CONTROL: &str = "goaway 1 3";

fn check(rules: Vec<Rule<'_>>) {
    for (name, frames, expected) in rules {
        let bytes = [hello(), frames.concat()].concat();
        let answers = answers(FEW, &bytes);
        let expected: Vec<&str> = std::iter::once("settings ack").chain(expected.iter().copied()).collect();
        assert_eq!(answers, expected, "{name}");
    }
}

#[test]
fn requests_are_answered() {
    check(vec![
        ("without a body", vec![get(1)], &["headers 1 end", "pong"]),
        (
            "with a body",
            vec![post(1), frame(DATA, 0, 1, b"abc"), frame(DATA, END, 1, b"d")],
            &["headers 1", "data 1 4", "data 1 0 end", "pong"],
        ),
        ("with an empty body", vec![post(1), frame(DATA, END, 1, b"")], &["headers 1 end", "pong"]),
        (
            "with padding",
            vec![
                frame(HEADERS, END_HEADERS | PADDED, 1, b"\x02\x83\x86\x84\0\0"),
                frame(DATA, END | PADDED, 1, b"\x01a\0"),
            ],
            &["headers 1", "data 1 1", "data 1 0 end", "pong"],
        ),
        (
            "with a priority",
            vec![
                frame(HEADERS, END_HEADERS | END | 32, 1, b"\0\0\0\0\x10\x83\x86\x84"),
                frame(PRIORITY, 0, 1, &[0; 5]),
            ],
            &["headers 1 end", "pong"],
        ),
        (
            "in three frames",
            vec![
                frame(HEADERS, END, 1, b"\x83"),
                frame(CONTINUATION, 0, 1, b"\x86"),
                frame(CONTINUATION, END_HEADERS, 1, b"\x84"),
            ],
            &["headers 1 end", "pong"],
        ),
        (
            "with trailers",
            vec![post(1), frame(HEADERS, END_HEADERS | END, 1, b"\0\x01a\x01b")],
            &["headers 1 end", "pong"],
        ),
        (
            "together",
            vec![post(1), get(3), get(5), frame(DATA, END, 1, b"abc")],
            &["headers 1", "data 1 3", "data 1 0 end", "headers 3 end", "headers 5 end", "pong"],
        ),
        ("extensions are ignored", vec![frame(77, 255, 9, b"abc"), get(1)], &["headers 1 end", "pong"]),
        ("an unknown setting", vec![frame(SETTINGS, 0, 0, &[0, 99, 0, 0, 0, 1])], &["settings ack", "pong"]),
        ("an acknowledgement", vec![frame(SETTINGS, ACK, 0, b""), frame(PING, ACK, 0, &[0; 8])], &["pong"]),
    ]);
}

#[test]
fn one_stream_fails_alone() {
    let fields = |block: &[u8]| [frame(HEADERS, END_HEADERS | END, 1, block), get(3)];
    let long = |name: u8| [&[0x40, 1, name, 0x7f, 0x81, 0x3e], &*vec![b'v'; 8064]].concat();
    check(vec![
        ("no path", fields(b"\x83\x86").to_vec(), &["reset 1 1", "headers 3 end", "pong"]),
        ("a name in capitals", fields(b"\x83\x86\x84\0\x01A\0").to_vec(), &["reset 1 1", "headers 3 end", "pong"]),
        (
            "more than content-length",
            vec![frame(HEADERS, END_HEADERS, 1, b"\x83\x86\x84\x0f\x0d\x012"), frame(DATA, 0, 1, b"abc"), get(3)],
            &["reset 1 1", "headers 3 end", "pong"],
        ),
        (
            "less than content-length",
            vec![frame(HEADERS, END_HEADERS, 1, b"\x83\x86\x84\x0f\x0d\x012"), frame(DATA, END, 1, b"a"), get(3)],
            &["reset 1 1", "headers 3 end", "pong"],
        ),
        (
            "long fields",
            vec![
                frame(HEADERS, END, 1, &[&b"\x83\x86\x84"[..], &long(b'a')].concat()),
                frame(CONTINUATION, 0, 1, &long(b'b')),
                frame(CONTINUATION, END_HEADERS, 1, &long(b'c')),
                get(3),
            ],
            &["headers 1 end", "headers 3 end", "pong"],
        ),
        (
            "trailers that do not end the request",
            vec![post(1), frame(HEADERS, END_HEADERS, 1, b"\0\x01a\x01b"), get(3)],
            &["reset 1 1", "headers 3 end", "pong"],
        ),
        (
            "trailers with pseudo-header fields",
            vec![post(1), frame(HEADERS, END_HEADERS | END, 1, POST), get(3)],
            &["reset 1 1", "headers 3 end", "pong"],
        ),
        (
            "data after the end",
            vec![get(1), frame(DATA, END, 1, b"a"), frame(DATA, END, 1, b"a"), get(3)],
            &["reset 1 5", "headers 3 end", "pong"],
        ),
        ("a window of 0", vec![post(1), window(1, 0), get(3)], &["reset 1 1", "headers 3 end", "pong"]),
        (
            "a window that is too large",
            vec![post(1), window(1, (1 << 31) - 1), get(3)],
            &["reset 1 3", "headers 3 end", "pong"],
        ),
        (
            "a priority of a wrong length",
            vec![post(1), frame(PRIORITY, 0, 1, b"a"), get(3)],
            &["reset 1 6", "headers 3 end", "pong"],
        ),
        (
            "too many",
            vec![post(1), post(3), post(5), post(7), frame(RST_STREAM, 0, 3, &[0; 4]), get(9)],
            &["reset 7 7", "headers 1", "headers 5", "headers 9 end", "pong"],
        ),
    ]);
}

#[test]
fn violations_end_the_connection() {
    let settings = |entry: &[u8]| vec![frame(SETTINGS, 0, 0, entry)];
    check(vec![
        ("data without a request", vec![frame(DATA, 0, 1, b"a")], &[PROTOCOL]),
        ("data of the connection", vec![frame(DATA, 0, 0, b"a")], &[PROTOCOL]),
        ("a request of the connection", vec![frame(HEADERS, END_HEADERS, 0, POST)], &[PROTOCOL]),
        ("an even number", vec![frame(HEADERS, END_HEADERS, 2, POST)], &[PROTOCOL]),
        ("a number that was used", vec![get(3), get(1)], &["goaway 3 5"]),
        ("only padding", vec![post(1), frame(DATA, PADDED, 1, b"\x05a")], &["goaway 1 1"]),
        ("no length of padding", vec![post(1), frame(DATA, PADDED, 1, b"")], &["goaway 1 6"]),
        ("a priority of a wrong length", vec![frame(HEADERS, END_HEADERS | 32, 1, b"abc")], &[FRAME_SIZE]),
        ("invalid compression", vec![frame(HEADERS, END_HEADERS, 1, b"\xff")], &["goaway 0 9"]),
        ("a reset without a request", vec![frame(RST_STREAM, 0, 1, &[0; 4])], &[PROTOCOL]),
        ("a reset of a wrong length", vec![post(1), frame(RST_STREAM, 0, 1, b"a")], &["goaway 1 6"]),
        ("settings of a stream", vec![frame(SETTINGS, 0, 1, b"")], &[PROTOCOL]),
        ("settings of a wrong length", vec![frame(SETTINGS, 0, 0, b"a")], &[FRAME_SIZE]),
        ("an acknowledgement with settings", vec![frame(SETTINGS, ACK, 0, &[0; 6])], &[FRAME_SIZE]),
        ("push is 2", settings(&[0, 2, 0, 0, 0, 2]), &[PROTOCOL]),
        ("a window of 2 GiB", settings(&[0, 4, 0x80, 0, 0, 0]), &["goaway 0 3"]),
        ("short frames", settings(&[0, 5, 0, 0, 0x3f, 0xff]), &[PROTOCOL]),
        ("a push", vec![frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2])], &[PROTOCOL]),
        ("a priority of a wrong length without a request", vec![frame(PRIORITY, 0, 1, b"a")], &[FRAME_SIZE]),
        ("a ping of a stream", vec![frame(PING, 0, 1, &[0; 8])], &[PROTOCOL]),
        ("a ping of a wrong length", vec![frame(PING, 0, 0, b"a")], &[FRAME_SIZE]),
        ("a goaway of a stream", vec![frame(GOAWAY, 0, 1, &[0; 8])], &[PROTOCOL]),
        ("a goaway of a wrong length", vec![frame(GOAWAY, 0, 0, b"a")], &[FRAME_SIZE]),
        ("a window without a request", vec![window(1, 1)], &[PROTOCOL]),
        ("a window of a wrong length", vec![frame(WINDOW_UPDATE, 0, 0, b"a")], &[FRAME_SIZE]),
        ("a window of 0", vec![window(0, 0)], &[PROTOCOL]),
        ("a window that is too large", vec![window(0, (1 << 31) - 1)], &["goaway 0 3"]),
        ("a continuation of nothing", vec![frame(CONTINUATION, END_HEADERS, 1, b"")], &[PROTOCOL]),
        (
            "a continuation of another stream",
            vec![frame(HEADERS, 0, 1, POST), frame(CONTINUATION, END_HEADERS, 3, b"")],
            &[PROTOCOL],
        ),
        ("a frame within fields", vec![frame(HEADERS, 0, 1, POST), frame(PING, 0, 0, &[0; 8])], &[PROTOCOL]),
        ("a frame of 16 KiB and a byte", vec![post(1), frame(DATA, 0, 1, &[0; 16385])], &["goaway 1 6"]),
        (
            "endless fields",
            vec![frame(HEADERS, 0, 1, POST), frame(CONTINUATION, 0, 1, b"").repeat(20)],
            &["goaway 0 11"],
        ),
    ]);
    // Violations before the settings.
    for (bytes, expected) in [
        (b"GET / HTTP/1.1\r\n".to_vec(), PROTOCOL),
        ([PREFACE, &get(1)].concat(), PROTOCOL),
        ([PREFACE, &frame(SETTINGS, ACK, 0, b"")].concat(), PROTOCOL),
    ] {
        assert_eq!(answers(FEW, &bytes), [expected]);
    }
}

#[test]
fn windows_are_respected() {
    let large = vec![7; 16384];
    let body = || frame(DATA, 0, 1, &large);
    // A client that does not know the setting may send 64 KiB, which nobody reads here, because the response has no window.
    let no_window = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let sent = [hello(), no_window.clone(), post(1), body().repeat(3), frame(DATA, 0, 1, &large[..16383])].concat();
    let settings = Settings { window: 48 << 10, ..FEW };
    let accepted = answers(settings, &sent);
    assert!(
        accepted.ends_with(&["pong".into()]) && !accepted.iter().any(|frame| frame.starts_with("data")),
        "{accepted:?}"
    );
    let more = [sent, frame(DATA, 0, 1, b"ab").repeat(9000)].concat();
    assert!(answers(settings, &more).contains(&"reset 1 3".into()), "the window of the stream");
    assert_eq!(answers(FEW, &more).pop().as_deref(), Some(FLOW_CONTROL), "the window of the connection");
    // As much of the response is sent as the windows of the stream and of the connection allow.
    let cut = |stream: u32, first: u32| {
        let setting = [&[0, 4], &first.to_be_bytes()[..]].concat();
        let sent =
            [hello(), frame(SETTINGS, 0, 0, &setting), post(1), body(), window(stream, 9), frame(DATA, END, 1, b"z")];
        let frames = answers(settings, &sent.concat());
        frames.iter().filter_map(|frame| frame.strip_prefix("data 1 ")?.parse::<usize>().ok()).sum::<usize>()
    };
    assert_eq!([cut(1, 0), cut(0, 0), cut(1, 100), cut(1, 16376)], [9, 0, 109, 16385]);
}

#[tokio::test]
async fn the_window_of_the_connection_is_respected() {
    let mut bench = Bench::serve(FEW, 1 << 20, |_| ready(Response::new(Full::new(Bytes::from(vec![7; 100_000])))));
    let large = frame(SETTINGS, 0, 0, &[0, 4, 0, 0x10, 0, 0]);
    bench.send(&[hello(), large, get(1), get(3), window(0, 9), frame(PING, 0, 0, &[0; 8])].concat()).await;
    let mut frames = bench.until("pong").await;
    bench.send(&frame(PING, 0, 0, &[0; 8])).await;
    frames.extend(bench.until("pong").await);
    let sent = frames.iter().filter_map(|frame| frame.strip_prefix("data ")?.split_once(' ')?.1.parse::<usize>().ok());
    assert_eq!(sent.sum::<usize>(), 65_535 + 9, "{frames:?}");
}

#[test]
fn a_client_that_causes_many_resets_loses_the_connection() {
    let last = |frames: &dyn Fn(u32) -> Vec<Vec<u8>>| {
        let sent: Vec<u8> = (0..300).flat_map(|n| frames(2 * n + 1).concat()).collect();
        answers(FEW, &[hello(), sent].concat()).pop().expect("a frame")
    };
    let reset = |n| frame(RST_STREAM, 0, n, &[0; 4]);
    assert_eq!(last(&|n| vec![post(n), reset(n)]), "goaway 401 11");
    assert_eq!(last(&|n| vec![post(n), window(n, 0)]), "goaway 401 11", "the server resets them");
    assert_eq!(last(&|n| vec![frame(HEADERS, END_HEADERS | END, n, b"\x83")]), "goaway 401 11", "malformed");
    // Streams that have ended are reset by some clients.
    let ended = [hello(), get(1)].concat();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let mut bench = Bench::start(FEW, 1 << 16);
        bench.send(&ended).await;
        bench.until("headers 1 end").await;
        bench.send(&[reset(1).repeat(300), frame(PING, 0, 0, &[0; 8])].concat()).await;
        assert_eq!(bench.until("pong").await, ["pong"]);
    });
}

proptest! {
    #[test]
    fn frames_arrive_in_parts_of_any_size(cuts in prop::collection::vec(1..40usize, 1..40), end in 0..3u8) {
        let sent = [
            hello(), post(1), frame(DATA, 0, 1, b"abc"), get(3), frame(PING, 0, 0, b"abcdefgh"), frame(DATA, PADDED, 1, b"\x03d\0\0\0"),
            frame(HEADERS, END, 5, b"\x83"), frame(CONTINUATION, END_HEADERS, 5, b"\x86\x84"), frame(DATA, END, 1, &[end; 500]),
        ].concat();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (count, frames) = runtime.block_on(async {
            let mut bench = Bench::start(FEW, 64);
            let (mut reader, mut writer) = tokio::io::split(std::mem::replace(&mut bench.client, tokio::io::duplex(1).0));
            let sending = tokio::spawn(async move {
                let (mut rest, mut cuts) = (&sent[..], cuts.iter().cycle());
                while !rest.is_empty() {
                    let (part, after) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
                    tokio::io::AsyncWriteExt::write_all(&mut writer, part).await.unwrap();
                    rest = after;
                }
                writer
            });
            let (mut count, mut frames) = (0, Vec::new());
            while !(frames.contains(&"data 1 0 end".to_owned()) && frames.contains(&"headers 5 end".to_owned())) {
                let mut head = [0; 9];
                tokio::io::AsyncReadExt::read_exact(&mut reader, &mut head).await.unwrap();
                let mut payload = vec![0; usize::from(head[2]) | usize::from(head[1]) << 8];
                tokio::io::AsyncReadExt::read_exact(&mut reader, &mut payload).await.unwrap();
                let frame = describe(head[3], head[4], u32::from(head[8]), &payload);
                match frame.strip_prefix("data 1 ").and_then(|length| length.parse::<usize>().ok()) {
                    Some(length) => count += length,
                    None => frames.push(frame),
                }
            }
            drop(sending.await.unwrap());
            (count, frames)
        });
        prop_assert_eq!(count, 504);
        for expected in ["settings", "settings ack", "headers 1", "headers 3 end", "pong", "headers 5 end", "data 1 0 end"] {
            prop_assert_eq!(frames.iter().filter(|frame| *frame == expected).count(), 1, "{} in {:?}", expected, frames);
        }
    }

    #[test]
    fn any_bytes_are_handled(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzz(&bytes);
    }

    #[test]
    fn any_frames_are_handled(
        frames in prop::collection::vec((0..11u8, any::<u8>(), 0..6u32, prop::collection::vec(any::<u8>(), 0..20)), 0..20),
    ) {
        let bytes: Vec<u8> = frames.iter().flat_map(|(kind, flags, stream, payload)| frame(*kind, *flags, *stream, payload)).collect();
        fuzz(&bytes);
    }
}
