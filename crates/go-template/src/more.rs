//! Further functions of Helm's function library: versions, URLs, paths, hashes, wrapped texts and decimal numbers.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};

use crate::Problem;
use crate::functions::{Function, FunctionResult, items, kind_of, whole};
use crate::sprig::{counted, float, hex};
use crate::text::shown;

/// The digits of Base32.
const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// Name, number of arguments (0: any number) and implementation of each function.
pub(crate) const FUNCTIONS: &[(&str, usize, Function)] = &[
    // Versions.
    ("semver", 1, |a| Version::read(&shown(&a[0])).map(|version| version.value())),
    ("semverCompare", 2, |a| matches(&shown(&a[0]), &Version::read(&shown(&a[1]))?).map(Value::from)),
    // URLs and paths.
    ("urlParse", 1, |a| Ok(url(&shown(&a[0])))),
    ("urlJoin", 1, |a| Ok(joined(&a[0]).into())),
    ("base", 1, |a| Ok(base(&shown(&a[0])).into())),
    ("dir", 1, |a| {
        let path = shown(&a[0]);
        Ok(clean(path.rfind('/').map_or("", |at| &path[..=at])).into())
    }),
    ("clean", 1, |a| Ok(clean(&shown(&a[0])).into())),
    ("ext", 1, |a| {
        let path = shown(&a[0]);
        let name = path.rsplit('/').next().unwrap_or_default();
        Ok(name.rfind('.').map_or("", |at| &name[at..]).into())
    }),
    ("isAbs", 1, |a| Ok(shown(&a[0]).starts_with('/').into())),
    // Hashes and encodings.
    ("sha512sum", 1, |a| Ok(hex(&Sha512::digest(shown(&a[0]).as_bytes())).into())),
    ("adler32sum", 1, |a| {
        let (one, two) = shown(&a[0]).bytes().fold((1_u32, 0_u32), |(one, two), byte| {
            let one = (one + u32::from(byte)) % 65_521;
            (one, (two + one) % 65_521)
        });
        Ok(((two << 16) | one).to_string().into())
    }),
    ("b32enc", 1, |a| Ok(base32(shown(&a[0]).as_bytes()).into())),
    ("b32dec", 1, |a| {
        let bytes = from_base32(&shown(&a[0])).ok_or("the text is not Base32")?;
        Ok(String::from_utf8_lossy(&bytes).into())
    }),
    // Texts.
    ("initials", 1, |a| {
        Ok(shown(&a[0]).split_whitespace().filter_map(|word| word.chars().next()).collect::<String>().into())
    }),
    ("swapcase", 1, |a| Ok(shown(&a[0]).chars().map(swapped).collect::<String>().into())),
    ("abbrevboth", 3, |a| Ok(shortened(whole(&a[0]), whole(&a[1]), shown(&a[2])).into())),
    ("wrap", 2, |a| Ok(wrapped(whole(&a[0]), "\n", &shown(&a[1])).into())),
    ("wrapWith", 3, |a| Ok(wrapped(whole(&a[0]), &shown(&a[1]), &shown(&a[2])).into())),
    ("js", 1, |a| {
        let text = Value::from(shown(&a[0])).to_string();
        Ok(text[1..text.len() - 1]
            .replace('\'', "\\'")
            .replace('<', "\\u003C")
            .replace('>', "\\u003E")
            .replace('&', "\\u0026")
            .into())
    }),
    // Numbers.
    ("addf", 0, |a| Ok(a.iter().map(float).sum::<f64>().into())),
    ("add1f", 1, |a| Ok((float(&a[0]) + 1.0).into())),
    ("subf", 0, |a| folded(a, |one, other| one - other)),
    ("mulf", 0, |a| folded(a, |one, other| one * other)),
    ("divf", 0, |a| folded(a, |one, other| one / other)),
    ("maxf", 0, |a| folded(a, f64::max)),
    ("minf", 0, |a| folded(a, f64::min)),
    ("biggest", 0, |a| Ok(a.iter().map(whole).max().unwrap_or_default().into())),
    ("toDecimal", 1, |a| Ok(i64::from_str_radix(&shown(&a[0]), 8).unwrap_or_default().into())),
    ("seq", 0, sequence),
    // Lists and kinds.
    ("chunk", 2, |a| {
        let size = usize::try_from(whole(&a[0])).unwrap_or_default().max(1);
        Ok(items(&a[1])?.chunks(size).map(Value::from).collect::<Vec<_>>().into())
    }),
    ("typeIsLike", 2, |a| Ok((shown(&a[0]).trim_start_matches('*') == kind_of(&a[1])).into())),
];

/// A version `MAJOR.MINOR.PATCH-PRERELEASE+METADATA`; the minor and patch numbers may be missing.
struct Version {
    original: String,
    numbers: [u64; 3],
    /// How many numbers there are, and which are wildcards in a condition.
    given: usize,
    prerelease: String,
    metadata: String,
}

impl Version {
    fn read(text: &str) -> Result<Version, Problem> {
        let wrong = || Problem::from(format!("{text:?} is not a version"));
        let (rest, metadata) = text.split_once('+').unwrap_or((text, ""));
        let (numbers, prerelease) = rest.split_once('-').unwrap_or((rest, ""));
        let mut version = Version {
            original: text.to_owned(),
            numbers: [0; 3],
            given: 0,
            prerelease: prerelease.to_owned(),
            metadata: metadata.to_owned(),
        };
        for part in numbers.strip_prefix('v').unwrap_or(numbers).split('.') {
            if matches!(part, "x" | "X" | "*") {
                break;
            }
            let place = version.numbers.get_mut(version.given).ok_or_else(wrong)?;
            *place = part.parse().map_err(|_| wrong())?;
            version.given += 1;
        }
        Ok(version)
    }

    fn value(&self) -> Value {
        let [major, minor, patch] = self.numbers;
        json!({"Major": major, "Minor": minor, "Patch": patch, "Prerelease": self.prerelease, "Metadata": self.metadata,
            "Original": self.original})
    }

    /// The order of versions: a prerelease is before its release, and its numbers are compared as numbers.
    fn order(&self, other: &Version) -> std::cmp::Ordering {
        let parts = |version: &Version| -> Vec<(bool, u64, String)> {
            let part = |part: &str| match part.parse() {
                Ok(number) => (false, number, String::new()),
                Err(_) => (true, 0, part.to_owned()),
            };
            version.prerelease.split('.').filter(|part| !part.is_empty()).map(part).collect()
        };
        let released = self.prerelease.is_empty().cmp(&other.prerelease.is_empty());
        self.numbers.cmp(&other.numbers).then(released).then_with(|| parts(self).cmp(&parts(other)))
    }
}

/// Whether a version meets a constraint: alternatives by `||` of conditions by commas or spaces.
fn matches(constraint: &str, version: &Version) -> Result<bool, Problem> {
    for alternative in constraint.split("||") {
        let spaced = alternative.replace(',', " ");
        let mut words = spaced.split_whitespace().peekable();
        let mut holds = true;
        while let Some(word) = words.next() {
            let bare = word.trim_start_matches(['<', '>', '=', '!', '~', '^']);
            let operator = &word[..word.len() - bare.len()];
            // The operator may be a word of its own, and `A - B` is a range.
            let text = if bare.is_empty() { words.next().unwrap_or_default() } else { bare };
            if words.peek() == Some(&"-") {
                words.next();
                let last = words.next().unwrap_or_default();
                holds &= meets(">=", text, version)? && meets("<=", last, version)?;
            } else {
                holds &= meets(operator, text, version)?;
            }
        }
        if holds {
            return Ok(true);
        }
    }
    Ok(false)
}

fn meets(operator: &str, text: &str, version: &Version) -> Result<bool, Problem> {
    let bound = Version::read(text)?;
    // Prereleases match only if the condition names one.
    if !version.prerelease.is_empty() && bound.prerelease.is_empty() {
        return Ok(false);
    }
    let order = version.order(&bound);
    let same = |count: usize| version.numbers[..count] == bound.numbers[..count];
    let within = same(bound.given);
    Ok(match operator {
        "" | "=" if bound.given < 3 => within,
        "" | "=" => order.is_eq(),
        "!=" if bound.given < 3 => !within,
        "!=" => order.is_ne(),
        ">" if bound.given < 3 => order.is_gt() && !within,
        ">" => order.is_gt(),
        ">=" | "=>" => order.is_ge(),
        "<" => order.is_lt(),
        "<=" | "=<" => order.is_le() || (bound.given < 3 && within),
        "~" | "~>" => order.is_ge() && same(bound.given.clamp(0, 2)),
        // The first number that is not zero stays.
        "^" => {
            let first = bound.numbers.iter().take(bound.given).position(|number| *number != 0);
            order.is_ge() && same(first.map_or(bound.given, |at| at + 1))
        }
        other => return Err(format!("`{other}` is not an operator of versions").into()),
    })
}

/// The parts of a URL, as `urlJoin` takes them.
fn url(text: &str) -> Value {
    let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once("://").map_or(("", rest), |(scheme, rest)| (scheme, rest));
    let (authority, path) = match scheme {
        "" => ("", rest),
        _ => rest.split_at(rest.find('/').unwrap_or(rest.len())),
    };
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    json!({"scheme": scheme, "host": host, "hostname": name, "path": path, "query": query, "opaque": "", "fragment": fragment,
        "userinfo": user})
}

fn joined(parts: &Value) -> String {
    let part = |name: &str| parts.get(name).map(shown).unwrap_or_default();
    let after = |sign: &str, text: String| if text.is_empty() { text } else { format!("{sign}{text}") };
    let (scheme, user, host, path) = (part("scheme"), part("userinfo"), part("host"), part("path"));
    let user = if user.is_empty() { user } else { format!("{user}@") };
    let authority = if scheme.is_empty() && host.is_empty() { String::new() } else { format!("//{user}{host}") };
    let scheme = if scheme.is_empty() { scheme } else { format!("{scheme}:") };
    format!("{scheme}{authority}{path}{}{}", after("?", part("query")), after("#", part("fragment")))
}

fn base(path: &str) -> String {
    match path.trim_end_matches('/').rsplit('/').next().unwrap_or_default() {
        "" if path.is_empty() => ".".to_owned(),
        "" => "/".to_owned(),
        name => name.to_owned(),
    }
}

/// The shortest equal path.
fn clean(path: &str) -> String {
    let is_rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            ".." if is_rooted => {}
            part => parts.push(part),
        }
    }
    match (is_rooted, parts.join("/")) {
        (true, path) => format!("/{path}"),
        (false, path) if path.is_empty() => ".".to_owned(),
        (false, path) => path,
    }
}

fn base32(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.chunks(5) {
        let bits = (0..5).fold(0_u64, |bits, at| (bits << 8) | u64::from(chunk.get(at).copied().unwrap_or(0)));
        let digits = (chunk.len() * 8).div_ceil(5);
        let digit = |at: usize| char::from(BASE32[((bits >> (35 - 5 * at)) & 31) as usize]);
        out.extend((0..8).map(|at| if at < digits { digit(at) } else { '=' }));
    }
    out
}

fn from_base32(text: &str) -> Option<Vec<u8>> {
    let (mut out, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let digit = BASE32.iter().position(|known| *known == byte)?;
        bits = (bits << 5) | u32::try_from(digit).ok()?;
        count += 5;
        if count >= 8 {
            count -= 8;
            out.push(u8::try_from((bits >> count) & 255).ok()?);
        }
    }
    Some(out)
}

fn swapped(c: char) -> char {
    match c.is_uppercase() {
        true => c.to_lowercase().next().unwrap_or(c),
        false => c.to_uppercase().next().unwrap_or(c),
    }
}

/// Cuts a text on both sides: `...middle...`.
fn shortened(left: i64, right: i64, text: String) -> String {
    let (left, right) = (usize::try_from(left).unwrap_or_default(), usize::try_from(right).unwrap_or_default());
    let length = text.chars().count();
    if right < 4 || (left > 0 && right < 7) || (left == 0 && length <= right) {
        return text;
    }
    let start = if left < 4 { 0 } else { left.min(length) };
    let marks = if start > 0 { 3 } else { 0 };
    if length - start <= right - marks {
        let tail: String = text.chars().skip(start).collect();
        return if start > 0 { format!("...{tail}") } else { tail };
    }
    let middle: String = text.chars().skip(start).take(right - marks - 3).collect();
    if start > 0 { format!("...{middle}...") } else { format!("{middle}...") }
}

/// Breaks a text into lines of at most a width, between words.
fn wrapped(width: i64, with: &str, text: &str) -> String {
    let width = usize::try_from(width).unwrap_or_default().max(1);
    let mut out = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        let size = word.chars().count();
        if column > 0 {
            let fits = column + 1 + size <= width;
            out.push_str(if fits { " " } else { with });
            column = if fits { column + 1 } else { 0 };
        }
        out.push_str(word);
        column += size;
    }
    out
}

fn folded(arguments: &[Value], change: impl Fn(f64, f64) -> f64) -> FunctionResult {
    Ok(arguments.iter().map(float).reduce(change).unwrap_or_default().into())
}

/// `seq LAST`, `seq FIRST LAST` or `seq FIRST STEP LAST`: the numbers, separated by spaces.
fn sequence(arguments: &[Value]) -> FunctionResult {
    let numbers: Vec<i64> = arguments.iter().map(whole).collect();
    let toward = |first: i64, last: i64| if last < first { -1 } else { 1 };
    let (first, step, last) = match numbers[..] {
        [last] => (1, toward(1, last), last),
        [first, last] => (first, toward(first, last), last),
        [first, step, last] if step != 0 && (step > 0) == (last >= first) => (first, step, last),
        _ => return Ok("".into()),
    };
    let listed = counted(first, last.saturating_add(step.signum()), step)?;
    Ok(items(&listed)?.iter().map(shown).collect::<Vec<_>>().join(" ").into())
}
