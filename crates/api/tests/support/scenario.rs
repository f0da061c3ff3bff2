//! Scenarios: requests one after the other, and what is to be found in the answers, in one file.
//!
//! ```text
//! # A comment.
//! > POST /api/v1/namespaces/a/configmaps     a request: method and path
//! > Authorization: Bearer editor-token       a header
//! {"metadata": {"name": "x"}}                the body: JSON or YAML
//! < 201                                      the status; `< 200 lines 2` reads two lines of a watch and goes away
//! /metadata/name = "x"                       a fact: what a JSON pointer leads to
//! /metadata/uid -> uid                       keeps a value: ${uid} stands for it from then on
//! /metadata/labels absent
//! count /items = 3                           how many items or fields there are
//! /message ~ not found                       a part of a text
//! header Warning ~ unknown field             a header; `=` compares the whole of it
//! body ~ text                                a part of the body
//! ! compact                                  the store forgets all of its past
//! ```
//!
//! In paths and bodies `\xNN` is a byte. In bodies, `@repeat N TEXT` is the text as often as that, and `@bytes TEXT` a line
//! without its end. The answer to a watch is a list of its lines. With RUTTER_UPDATE=1 the values behind `=` and the statuses are rewritten.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::{Fixture, Reply, Request, exchange};

/// Runs a scenario. What is not as it should be, by line, and the text with what is.
pub async fn run(fixture: &Fixture, text: &str) -> (Vec<String>, String) {
    let mut run = Run {
        fixture,
        kept: BTreeMap::new(),
        reply: Reply::default(),
        document: Value::Null,
        faults: Vec::new(),
        out: String::new(),
    };
    let mut request: Option<Request> = None;
    for (number, line) in text.lines().enumerate() {
        let mut shown = line.to_owned();
        if let Some(rest) = line.strip_prefix("< ") {
            let sent = request.take().unwrap_or_else(|| panic!("line {}: no request", number + 1));
            shown = run.exchange(number + 1, sent, rest).await;
        } else if let Some(rest) = line.strip_prefix("> ") {
            run.head(rest, &mut request);
        } else if let Some(request) = &mut request {
            run.body(line, request);
        } else if line == "! compact" {
            let newest = fixture.store.revision().await.unwrap();
            fixture.store.compact(newest).await.unwrap();
        } else if !line.is_empty() && !line.starts_with('#') {
            shown = run.fact(number + 1, line);
        }
        run.out.push_str(&shown);
        run.out.push('\n');
    }
    (run.faults, run.out)
}

struct Run<'a> {
    fixture: &'a Fixture,
    kept: BTreeMap<String, String>,
    reply: Reply,
    document: Value,
    faults: Vec<String>,
    out: String,
}

impl Run<'_> {
    /// The text with the values that were kept.
    fn fill(&self, text: &str) -> String {
        self.kept.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${{{name}}}"), value))
    }

    fn head(&self, rest: &str, request: &mut Option<Request>) {
        let rest = self.fill(rest);
        match (rest.split_once(": "), request) {
            (Some((name, value)), Some(request)) => request.headers.push((name.into(), value.into())),
            (_, request) => {
                let (method, path) = rest.split_once(' ').expect("method and path");
                *request = Some(Request { method: method.into(), path: unescape(path), ..Request::default() });
            }
        }
    }

    fn body(&self, line: &str, request: &mut Request) {
        let line = self.fill(line);
        if let Some((times, text)) = line.strip_prefix("@repeat ").and_then(|rest| rest.split_once(' ')) {
            request.body.extend(unescape(text).repeat(times.parse().unwrap()));
            return;
        }
        if let Some(text) = line.strip_prefix("@bytes ") {
            return request.body.extend(unescape(text));
        }
        request.body.extend(unescape(&line));
        request.body.push(b'\n');
    }

    /// Sends the request; the line with the status that came.
    async fn exchange(&mut self, number: usize, mut request: Request, expected: &str) -> String {
        let typed = request.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        if !typed && !request.body.is_empty() {
            let json = matches!(request.body[0], b'{' | b'[');
            let media = if json { "application/json" } else { "application/yaml" };
            request.headers.push(("Content-Type".into(), media.into()));
        }
        let (status, rest) = expected.split_once(' ').unwrap_or((expected, ""));
        let lines: Option<usize> = rest.strip_prefix("lines ").map(|count| count.parse().unwrap());
        let stream = self.fixture.connect().await;
        self.reply = exchange(stream, &request.bytes(), lines).await;
        self.document = if lines.is_some() { self.reply.lines() } else { self.reply.json() };
        if self.reply.status.to_string() != status {
            let text: String = self.reply.text().chars().take(600).collect();
            self.fault(number, &format!("status {} and not {status}: {text}", self.reply.status));
        }
        format!("< {} {rest}", self.reply.status).trim_end().to_owned()
    }

    /// Looks at a fact; the line with what it is.
    fn fact(&mut self, number: usize, line: &str) -> String {
        let (what, expected) = match line.split_once(" = ").or_else(|| line.split_once(" ~ ")) {
            Some(parts) => parts,
            None => return self.presence(number, line),
        };
        let filled = self.fill(expected);
        if line.contains(" = ") {
            let is = self.value(what).unwrap_or_default();
            let wanted: Value = serde_json::from_str(&filled).unwrap_or(Value::String(filled.clone()));
            if is == wanted {
                return line.to_owned();
            }
            self.fault(number, &format!("{what} is {is}, and not {wanted}"));
            return format!("{what} = {is}");
        }
        let texts: Vec<String> = match what.split_once(' ') {
            Some(("header", name)) => self.reply.header(name).into_iter().map(str::to_owned).collect(),
            _ if what == "body" => vec![self.reply.text()],
            _ => vec![self.value(what).map_or_else(String::new, |value| plain(&value))],
        };
        if !texts.iter().any(|text| text.contains(&filled)) {
            self.fault(number, &format!("{what} is {texts:?}, without {filled:?}"));
        }
        line.to_owned()
    }

    fn presence(&mut self, number: usize, line: &str) -> String {
        if let Some((what, name)) = line.split_once(" -> ") {
            match self.value(what) {
                Some(value) => drop(self.kept.insert(name.to_owned(), plain(&value))),
                None => self.fault(number, &format!("{what} is not there")),
            }
        } else if let Some(what) = line.strip_suffix(" absent") {
            if let Some(value) = self.value(what) {
                self.fault(number, &format!("{what} is there: {value}"));
            }
        } else {
            self.fault(number, &format!("what is this? {line}"));
        }
        line.to_owned()
    }

    /// `/json/pointer`, `count /json/pointer` or `header NAME`.
    fn value(&self, what: &str) -> Option<Value> {
        match what.split_once(' ') {
            Some(("header", name)) => self.reply.header(name).first().map(|value| (*value).into()),
            Some(("count", pointer)) => match self.document.pointer(pointer)? {
                Value::Array(items) => Some(items.len().into()),
                Value::Object(fields) => Some(fields.len().into()),
                _ => None,
            },
            _ => self.document.pointer(what).cloned(),
        }
    }

    fn fault(&mut self, number: usize, what: &str) {
        let mut text = String::new();
        // Writing to a text does not fail.
        let _ = write!(text, "line {number}: {what}");
        self.faults.push(text);
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// `\xNN` as a byte.
fn unescape(text: &str) -> Vec<u8> {
    let mut parts = text.split("\\x");
    let mut out = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        out.push(u8::from_str_radix(&part[..2], 16).expect("two hexadecimal digits"));
        out.extend_from_slice(&part.as_bytes()[2..]);
    }
    out
}
