//! Syntax of CEL expressions.

#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use kube_cel::cel::parser::Parser;
use regex::Regex;

use crate::form::Fault;

/// Limit of operators, selections and brackets in an expression. The parser recurses into chains of them.
const MAX_OPERATORS: usize = 200;

/// Limit of nested expressions.
const MAX_DEPTH: u16 = 32;

/// Stack of the thread that parses an expression. Only the part that is used takes memory.
const STACK_BYTES: usize = 64 << 20;

/// Words that CEL reserves.
pub(crate) const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// A CEL expression.
pub(crate) fn cel(text: &str) -> Result<(), Fault> {
    let problem = problem(text).map(|problem| format!("not a valid CEL expression: {problem}"));
    problem.map_or(Ok(()), |message| Err(Fault::new("bad-expression", message)))
}

/// Returns what is wrong with a CEL expression, if anything.
fn problem(text: &str) -> Option<String> {
    let is_operator = |byte: &u8| b".+-*/%!&|<>=?:[({,".contains(byte);
    if text.bytes().filter(is_operator).count() > MAX_OPERATORS {
        return Some(format!("more than {MAX_OPERATORS} operators"));
    }
    let parse = || Parser::default().max_recursion_depth(MAX_DEPTH).parse(text).err();
    // The recursion of a long chain does not fit into the stack of an ordinary thread.
    let error = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        thread.spawn_scoped(scope, parse).map(|thread| thread.join())
    });
    let Ok(Ok(error)) = error else {
        return Some("the parser failed".to_owned());
    };
    let Some(error) = error else {
        return reserved(text).map(|word| format!("{word} is a reserved word"));
    };
    let message = error.errors.first().map_or("syntax error", |error| error.msg.trim());
    // The rest is a list of all token types of the grammar.
    let short = message.split(" expecting {").next().unwrap_or(message);
    Some(short.replace("'<EOF>'", "end of expression"))
}

/// The first reserved word that is used as an identifier. The parser accepts them, Envoy does not.
fn reserved(text: &str) -> Option<&str> {
    // Strings and quoted names are skipped, and so are names after a dot.
    static TOKENS: LazyLock<Regex> = LazyLock::new(|| {
        let strings = r#""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`"#;
        Regex::new(&format!(r"(?s){strings}|\.\s*\w+|\w+")).expect("the pattern is valid")
    });
    let words = TOKENS.find_iter(text).map(|token| token.as_str());
    words.into_iter().find(|word| RESERVED.contains(word))
}
