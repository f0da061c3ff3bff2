//! Scripts that Lua takes and refuses.

use proptest::prelude::*;

use super::{LuaError, check};

#[test]
fn scripts() {
    for good in [
        "",
        "-- nothing",
        "--[==[ a\n]] ]==] x = 1",
        "function envoy_on_request(handle) handle:headers():add('a', \"b\") end",
        "local a",
        "local a, b = ...",
        "a.b['c'].d, e = 1, 2;",
        "f 'a' f{1} f[[b]] a:b 'c'",
        "(f or g)(1)",
        "t = {1, 2; a = 3, ['b'] = 4, f(5), function(...) return ... end,}",
        "if a then elseif b then b() else c() end",
        "while true do break end repeat local x = 1 until x == 1",
        "for i = 1, 10, 2 do end for k, v in pairs(t) do print(k, v) end",
        "function a.b.c:d(x, ...) return x, ... end local function e() return end",
        "return not -#a ^ 2 .. 'x' == 0x1p4 or 1e-5 + .5 - 3. * 0xFFULL and 2i",
        "goto done; ::done:: goto = 1 goto.a = 2 goto(1)",
        "s = 'a\\n\\065\\x41\\z\n   b\\\nc\\'d' .. [==[\n]]]==]",
        "x = a.b:c(d)[e]",
        "do do do end end end",
        "x = function() while true do break end end",
    ] {
        assert_eq!(check(good), Ok(()), "{good}");
    }
    for (bad, why) in [
        ("function (", "line 1: a name is expected, and ( found"),
        ("function f()\n  return 1", "line 2: end is expected, and the end of the script found"),
        ("x = ", "line 1: the end of the script is not expected here"),
        ("x", "line 1: = is expected, and the end of the script found"),
        ("f() = 1", "line 1: = is not expected here"),
        ("(f) = 1", "line 1: nothing can be assigned to a call or a value"),
        ("a, f() = 1", "line 1: nothing can be assigned to a call or a value"),
        ("break", "line 1: break is not in a loop"),
        ("while a do f = function() break end end", "line 1: break is not in a loop"),
        ("function f() return ... end", "line 1: ... is not in a function that takes any number of arguments"),
        ("return 1 x = 2", "line 1: x is not expected here"),
        ("end", "line 1: end is not expected here"),
        ("x = 'a\nb'", "line 1: a text has no end in its line"),
        ("x = 'a\\", "line 1: a text has no end"),
        ("x = '\\q'", "line 1: \\q is not an escape"),
        ("\n--[[ a", "line 2: ]] is missing"),
        ("x = [=[ a ]]", "line 1: ]=] is missing"),
        ("x = 1e", "line 1: \"1e\" is not a number"),
        ("x = 3x", "line 1: \"3x\" is not a number"),
        ("x = 0x", "line 1: \"0x\" is not a number"),
        ("x = a != b", "line 1: the character '!' is not expected"),
        ("x = {1 = 2}", "line 1: } is expected, and = found"),
        ("x = {1 2}", "line 1: } is expected, and a number found"),
        ("for i in do end", "line 1: do is not expected here"),
        ("for i = 1 do end", "line 1: , is expected, and do found"),
        ("f(1", "line 1: ) is expected, and the end of the script found"),
        ("local 1 = 2", "line 1: a name is expected, and a number found"),
        ("if a then else b() elseif c then end", "line 1: end is expected, and elseif found"),
    ] {
        let (line, error) = check(bad).unwrap_err();
        assert_eq!(format!("line {line}: {error}"), why, "{bad}");
    }
}

#[test]
fn depth_has_a_bound() {
    for (open, close) in [("(", ")"), ("{", "}"), ("f(", ")"), ("a[", "]"), ("function() return ", " end")] {
        let script = format!("x = {}1{}", open.repeat(50_000), close.repeat(50_000));
        assert!(matches!(check(&script), Err((_, LuaError::TooDeep))), "{open}");
    }
    let blocks = format!("{}{}", "do ".repeat(50_000), "end ".repeat(50_000));
    assert!(matches!(check(&blocks), Err((_, LuaError::TooDeep))));
    assert_eq!(check(&format!("x = {}1", "not ".repeat(50_000))), Ok(()));
    assert_eq!(check(&format!("x = 1{}", " + 1".repeat(50_000))), Ok(()));
}

proptest! {
    #[test]
    fn any_text_is_answered(text in "[-a-f0-9xz.(){}\\[\\]'\"\\\\:;=<~#,*%+ \n\u{e9}]{0,60}") {
        let _ = check(&text);
    }

    #[test]
    fn any_words_are_answered(words in prop::collection::vec(prop::sample::select(vec![
        "function", "end", "if", "then", "else", "elseif", "for", "in", "do", "while", "repeat", "until", "local", "return",
        "break", "goto", "::", "a", "b", "(", ")", "{", "}", "[", "]", "=", ",", ".", ":", "...", "..", "1", "'x'", "nil", "-",
    ]), 0..40)) {
        let _ = check(&words.join(" "));
    }
}
