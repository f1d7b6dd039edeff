//! Work that the interpreter does inside of single instructions, and that a script was written to do much of.
//!
//! Each script would end by itself after few instructions, and reply: it is the charges of `lua/meter.h` that stop it.

use super::runaway::EXHAUSTED;
use super::{cpu_time, eval, text};
use crate::machine::tests::support::Lab;
use crate::reply::Reply;

/// Name and script.
const INSIDE: &[(&str, &str)] = &[
    // Bytes.
    (
        "comparing long texts",
        "local a = ('x'):rep(1e6) local b, c = a .. 'b', a .. 'c' for i = 1, 1e3 do local _ = b < c end return 1",
    ),
    (
        "comparing texts of zeros",
        "local a = ('\\0'):rep(1e6) local b, c = a .. 'b', a .. 'c' for i = 1, 10 do local _ = b <= c end return 1",
    ),
    (
        "joining to a text that is there",
        "local a = ('x'):rep(1e6) local b = a .. 'y' for i = 1, 1e3 do local _ = a .. 'y' end return 1",
    ),
    (
        "cutting a text that is there",
        "local a = ('x'):rep(1e6) local b = a:sub(2) for i = 1, 3e3 do local _ = a:sub(2) end return 1",
    ),
    ("long texts as numbers", "local a = ('1'):rep(1e6) for i = 1, 100 do local _ = a + 1 end return 1"),
    (
        "spaces as numbers",
        "local a = '1' .. (' '):rep(1e6) for i = 1, 100 do local _ = tonumber(a) end return 1",
    ),
    (
        "long texts as numbers of another base",
        "local a = ('1'):rep(1e6) for i = 1, 100 do local _ = tonumber(a, 16) end return 1",
    ),
    ("numbers as texts", "local a, b = 1e300, -1e-300 for i = 1, 5e5 do local _ = a .. '' end return 1"),
    (
        "texts as numbers",
        "local a = '2.2250738585072011e-308' for i = 1, 1e6 do local _ = a + a end return 1",
    ),
    (
        "the mode of weak tables",
        "local mode, all = {__mode = ('x'):rep(1e6)}, {} for i = 1, 1e3 do all[i] = setmetatable({}, mode) end \
         for i = 1, 2e4 do local t = {} end return 1",
    ),
    // Values.
    (
        "arguments that are passed on",
        "local t = {} for i = 1, 7000 do t[i] = i end local function f(...) for i = 1, 3e4 do local n = select('#', ...) end end \
         f(unpack(t)) return 1",
    ),
    (
        "arguments of tail calls",
        "local t = {} for i = 1, 7000 do t[i] = i end local n = 0 \
         local function f(...) n = n + 1 if n < 3e4 then return f(...) end return 1 end return f(unpack(t))",
    ),
    (
        "arguments that grow",
        "local n = 0 local function f(...) n = n + 1 if n < 3e4 then return f(1, 2, 3, 4, ...) end return 1 end return f()",
    ),
    (
        "results that are passed on",
        "local t = {} for i = 1, 7000 do t[i] = i end \
         local function f(n) if n == 0 then return unpack(t) end return 1, f(n - 1) end f(15000) return 1",
    ),
    (
        "arguments of calls that are no functions",
        "local t = {} for i = 1, 7000 do t[i] = i end local c = setmetatable({}, {__call = function() end}) \
         local function f(...) for i = 1, 2e4 do c(...) end end f(unpack(t)) return 1",
    ),
    (
        "arguments of coroutines",
        "local t = {} for i = 1, 7000 do t[i] = i end local co = coroutine.wrap(function(...) while true do coroutine.yield(...) end end) \
         local function f(...) for i = 1, 2e4 do co(...) end end f(unpack(t)) return 1",
    ),
    // Links.
    (
        "keys that collide",
        "local t = {} for i = 0, 1e4 do t[2 ^ 52 + (2 ^ 19 - i) * 2 ^ 32 + i] = i end return 1",
    ),
    (
        "texts that collide",
        "local d = {} for i = 1, 10 do d[i] = i - 1 .. 'x' end local rest, t = ('x'):rep(24), {} \
         for i = 1, 5 do for j = 1, 10 do for k = 1, 10 do for l = 1, 10 do t[#t + 1] = d[i] .. d[j] .. d[k] .. d[l] .. rest end end end end return 1",
    ),
    (
        "variables of closures",
        "return loadstring((function() local s = {} for i = 1, 190 do s[i] = 'local v' .. i .. ' ' end \
         s[#s + 1] = 'local all = function() return ' for i = 1, 190 do s[#s + 1] = '' end \
         return table.concat(s) .. '1 end local keep = {} ' .. (function() local k = {} for i = 1, 3 do local u = {} \
         for j = 1, 55 do u[j] = 'v' .. (i - 1) * 60 + j end k[i] = 'keep[' .. i .. '] = function() return ' .. table.concat(u, ',') .. ' end ' end \
         return table.concat(k) end)() .. 'for i = 1, 3e4 do local f = function() return ' .. (function() local u = {} \
         for j = 1, 55 do u[j] = 'v' .. j end return table.concat(u, ',') end)() .. ' end end return 1' end)())()",
    ),
    (
        "metatables behind metatables",
        "local t = {nil} for i = 1, 98 do t = setmetatable({nil}, {__index = t}) end for i = 1, 2e5 do local _ = t[1] end return 1",
    ),
    (
        "levels of an error",
        "local function f(n) if n > 0 then return 1 + f(n - 1) end for i = 1, 5e3 do pcall(error, 'x', 15000) end return 1 end return f(15000)",
    ),
    // Slots.
    (
        "the length of a table with keys on purpose",
        "local t, n = {}, 2 ^ 17 for i = 1, n do t[i] = i end for k = 13, 0, -1 do t[(n + 1) * 2 ^ k] = 1 end \
         for i = 1, 1e3 do local _ = #t end return 1",
    ),
    (
        "the first item of an empty table",
        "local t = {} for i = 1, 1e5 do t[i] = i end for i = 1, 1e5 do t[i] = nil end for i = 1, 2e3 do next(t) end return 1",
    ),
    (
        "a hash that is full beside a long list",
        "local t = {} for i = 1, 2 ^ 17 do t[i] = i end t.a = 1 t.b = 1 t.c = 1 \
         for i = 1, 5e3 do local k = 'k' .. i t[k] = 1 t[k] = nil end return 1",
    ),
    (
        "insertions at a text",
        "local t = {} for i = 1, 1e4 do t[i] = i end for i = 1, 1e3 do table.insert(t, '1', i) end return 1",
    ),
    // The compiler.
    (
        "names in nested functions",
        "local v = {} for i = 1, 190 do v[i] = 'v' .. i end v = 'local ' .. table.concat(v, ',') .. ' ' \
         loadstring((v .. 'function f() '):rep(150) .. ('a=a '):rep(2e4) .. ('end '):rep(150)) return 1",
    ),
    ("lists of jumps", "loadstring('while a do ' .. ('if a then break end '):rep(2e4) .. 'end') return 1"),
    (
        "the name of a file",
        "local name = '@' .. ('x'):rep(1e6) local f = loadstring('local b b.c = 1', name) for i = 1, 2e4 do pcall(f) end return 1",
    ),
    (
        "the name of a chunk",
        "local name = ('x'):rep(1e6) local f = loadstring('local b b.c = 1', name) for i = 1, 2e4 do pcall(f) end return 1",
    ),
];

/// At the same point in two rooms; what each takes is printed, for docs/scripts.md.
#[test]
fn work_inside_of_instructions_counts() {
    let mut wrong = Vec::new();
    for (name, source) in INSIDE {
        let replies = [(); 2].map(|()| {
            let start = cpu_time();
            let reply = text(&eval(&mut Lab::new(), source, &[]));
            println!("{name}: {:.0?}", cpu_time().saturating_sub(start));
            (reply, crate::script::left())
        });
        if !replies[0].0.starts_with(EXHAUSTED) {
            wrong.push(format!("{name}: {replies:?}"));
        }
        assert_eq!(replies[0], replies[1], "{name}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The order of texts is that of their bytes (M3 of `lua/meter.h`).
#[test]
fn texts_are_ordered_by_their_bytes() {
    let mut texts: Vec<Vec<u8>> = Vec::new();
    for length in [0, 1, 2, 63, 64, 65, 127, 128, 129, 200] {
        for last in [&b""[..], b"\0", b"\0a", b"a", b"A", b"\x7F", b"\x80", b"\xFF", b"\0\xFF"] {
            texts.push([&vec![b'x'; length], last].concat());
            texts.push([&vec![0; length], last].concat());
        }
    }
    let compare = b"return {ARGV[1] < ARGV[2] and 1 or 0, ARGV[1] <= ARGV[2] and 1 or 0}";
    let mut lab = Lab::new();
    for one in &texts {
        for other in texts.iter().step_by(7) {
            let reply = lab.run(&[b"EVAL", compare, b"0", one, other]);
            let expected = [one < other, one <= other].map(|is| Reply::Integer(is.into()));
            assert_eq!(reply, Reply::Array(expected.to_vec()), "{one:?} and {other:?}");
        }
    }
}
