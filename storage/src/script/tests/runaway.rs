//! Scripts that do too much.

use super::{cpu_time, eval, text};
use crate::machine::tests::support::Lab;
use crate::reply::Reply;

pub(super) const EXHAUSTED: &str = "ERR the script was stopped: it does too much at once";
const FULL: &str = "ERR the script was stopped: it holds too much memory";

/// Name, script, how its reply begins.
const RUNAWAYS: &[(&str, &str, &str)] = &[
    ("a loop", "while true do end", EXHAUSTED),
    ("a loop below pcall", "while true do pcall(function() while true do end end) end", EXHAUSTED),
    (
        "a loop below xpcall",
        "while true do xpcall(function() while true do end end, function() while true do end end) end",
        EXHAUSTED,
    ),
    (
        "a loop in a coroutine",
        "local co = coroutine.wrap(function() while true do coroutine.yield() end end) while true do co() end",
        EXHAUSTED,
    ),
    (
        "coroutines without end",
        "while true do coroutine.resume(coroutine.create(function() for i = 1, 90 do end end)) end",
        EXHAUSTED,
    ),
    (
        "a coroutine in a coroutine",
        "local function f() local co = coroutine.create(f) pcall(coroutine.resume, co) while true do end end f()",
        EXHAUSTED,
    ),
    ("a loop that fails in between", "while true do pcall(error, 'x') end", EXHAUSTED),
    (
        "a loop in a metamethod",
        "local t = setmetatable({}, {__index = function(t, k) while true do end end}) return t.x",
        EXHAUSTED,
    ),
    (
        "a loop in a comparison",
        "table.sort({3, 2, 1, 5, 4}, function(a, b) while true do end end)",
        EXHAUSTED,
    ),
    ("a loop in a replacement", "('x'):gsub('x', function() while true do end end)", EXHAUSTED),
    ("a pathological pattern", "return string.find(('a'):rep(5000), ('a-'):rep(20) .. 'b')", EXHAUSTED),
    ("another one", "return string.match(('a'):rep(30000), '.-.-.-.-b')", EXHAUSTED),
    (
        "a pattern below pcall",
        "while true do pcall(string.find, ('a'):rep(5000), ('a*'):rep(20) .. 'b') end",
        EXHAUSTED,
    ),
    ("strings that double", "local s = 'x' while true do s = s .. s end", FULL),
    (
        "strings that double below pcall",
        "local s = 'x' while true do pcall(function() s = s .. s end) end",
        FULL,
    ),
    ("many tables", "local t = {} while true do t = {t} end", EXHAUSTED),
    ("a long list", "local t = {} for i = 1, 1e9 do t[i] = i end", EXHAUSTED),
    ("repeated texts", "local s, t = ('x'):rep(1e6), {} for i = 1, 1e6 do t[i] = s .. i end", FULL),
    ("texts that are dropped", "for i = 1, 1e6 do local s = ('x'):rep(1e6) .. i end", EXHAUSTED),
    ("a huge repetition below pcall", "while true do pcall(string.rep, 'x', 1e10) end", EXHAUSTED),
    ("insertions at the front", "local t = {} for i = 1, 1e6 do table.insert(t, 1, i) end", EXHAUSTED),
    (
        "removals at the front",
        "local t = {} for i = 1, 5e4 do t[i] = i end for i = 1, 5e4 do table.remove(t, 1) end",
        EXHAUSTED,
    ),
    (
        "unpacking",
        "local t = {} for i = 1, 7000 do t[i] = i end while true do local f = select('#', unpack(t)) end",
        EXHAUSTED,
    ),
    (
        "joining",
        "local t = {} for i = 1, 1e4 do t[i] = 'xxxxxxxxxx' end while true do table.concat(t) end",
        EXHAUSTED,
    ),
    ("formatting", "while true do string.format('%99.99f', 1e300) end", EXHAUSTED),
    ("calls", "while true do redis.call('get', 'x') end", EXHAUSTED),
    ("calls below pcall", "while true do redis.pcall('nonsense') end", EXHAUSTED),
    (
        "json",
        "local t = {} for i = 1, 1000 do t[i] = i end while true do cjson.decode(cjson.encode(t)) end",
        EXHAUSTED,
    ),
    (
        "msgpack",
        "local t = {} for i = 1, 1000 do t[i] = i end while true do cmsgpack.unpack(cmsgpack.pack(t)) end",
        EXHAUSTED,
    ),
    ("compiling", "while true do loadstring(('local x = 1 '):rep(100)) end", EXHAUSTED),
    ("a reader that never ends", "load(function() return ' ' end)", EXHAUSTED),
    ("reversing", "local s = ('x'):rep(1e6) while true do s:reverse() end", EXHAUSTED),
    (
        "searching",
        "local s = ('a'):rep(1e6) while true do s:find(('a'):rep(1000) .. 'b', 1, true) end",
        EXHAUSTED,
    ),
];

/// Functions of ours that look at more than they give back: so few calls end unless that counts.
const LOOKS: &[(&str, &str)] = &[
    ("a set with many members", "return string.find(('a'):rep(10000), '[' .. ('b'):rep(10000) .. ']')"),
    ("the same, repeated", "return string.find(('b'):rep(10000), '[' .. ('a'):rep(10000) .. 'b]*c')"),
    ("the same, at a frontier", "return string.find(('a'):rep(10000), '%f[' .. ('b'):rep(10000) .. ']')"),
    (
        "a text without an end",
        "local s = ('x'):rep(1e6) for i = 1, 200 do pcall(struct.unpack, 's', s) end return 1",
    ),
    ("long keys of json", "local t = {[('k'):rep(1e5)] = 1} for i = 1, 60 do cjson.encode(t) end return 1"),
];

#[test]
fn what_functions_look_at_counts() {
    for (name, source) in LOOKS {
        let reply = text(&eval(&mut Lab::new(), source, &[]));
        assert!(reply.starts_with(EXHAUSTED), "{name}: {reply}");
    }
}

#[test]
fn what_runs_away_stops_and_nothing_of_it_is_done() {
    for (name, source, expected) in RUNAWAYS {
        let mut lab = Lab::new();
        lab.say("SET before 1");
        let source = format!("redis.call('set', 'x', 'y') redis.call('incr', 'before'); {source}");
        let start = cpu_time();
        let reply = text(&eval(&mut lab, &source, &[]));
        println!("{name}: {:.0?}", cpu_time().saturating_sub(start));
        assert!(reply.starts_with(expected), "{name}: {reply}");
        assert_eq!(lab.say("MGET x before"), "[nil \"1\"]", "{name}");
    }
}

/// Scripts made to take long for their steps. (`inside` has those whose work is inside of single instructions.)
const WORST: &[(&str, &str)] = &[
    (
        "arguments of calls",
        "local t = {} for i = 1, 7000 do t[i] = i end local function f(...) return ... end while true do f(unpack(t)) end",
    ),
    (
        "arguments kept in tables",
        "local t = {} for i = 1, 7000 do t[i] = i end local function f(...) return {...} end while true do f(unpack(t)) end",
    ),
    (
        "comparisons of 1 KB",
        "local a = ('x'):rep(1e3) local b, c = a .. 'b', a .. 'c' while true do local _ = b < c end",
    ),
    ("lengths of lists", "local t = {} for i = 1, 1e5 do t[i] = i end while true do local n = #t end"),
    ("tables that grow and are dropped", "while true do local t = {} for i = 1, 1000 do t[i] = i end end"),
    ("closures", "while true do local f = function() return f end end"),
    (
        "sorting",
        "while true do local t = {} for i = 1, 1000 do t[i] = (i * 7919) % 1000 end table.sort(t) end",
    ),
    ("writes", "local i = 0 while true do i = i + 1 redis.call('set', 'k' .. i, i) end"),
    (
        "writes of 100 KB",
        "local v = ('x'):rep(1e5) local i = 0 while true do i = i + 1 redis.call('set', 'k', v .. i) end",
    ),
    ("powers", "local a, b = 1.0000001, 1e9 + 0.3 while true do local _ = a ^ b end"),
    ("remainders", "local f = math.fmod while true do f(1e308, 3e-308) end"),
    ("sines", "local f = math.sin while true do f(1e300) end"),
    (
        "variables of a call",
        "local f = loadstring('return function() ' .. ('local a, b, c, d, e, f, g, h, i, j '):rep(19) .. ' end')() while true do f() end",
    ),
    (
        "variables of a block",
        "loadstring('while true do ' .. ('local a, b, c, d, e, f, g, h, i, j '):rep(19) .. ' end')()",
    ),
    (
        "joining numbers",
        "loadstring('local a, s = 1e300, nil while true do s = ' .. ('a .. '):rep(190) .. 'a end')()",
    ),
    (
        "characters",
        "local t = {} for i = 1, 7000 do t[i] = 65 end local function f(...) while true do string.char(...) end end f(unpack(t))",
    ),
    (
        "the greatest of many",
        "local t = {} for i = 1, 7000 do t[i] = i end local function f(...) while true do math.max(...) end end f(unpack(t))",
    ),
    (
        "the greatest of many texts",
        "local t = {} for i = 1, 7000 do t[i] = '1.7976931348623157e308' end local function f(...) while true do math.max(...) end end f(unpack(t))",
    ),
    (
        "bits of many",
        "local t = {} for i = 1, 7000 do t[i] = i end local function f(...) while true do bit.bor(...) end end f(unpack(t))",
    ),
    (
        "garbage beside much that stays",
        "local keep = {} for i = 1, 1e5 do keep[i] = {i} end while true do local t = {} end",
    ),
    (
        "weak tables",
        "local keep, weak = {}, {__mode = 'kv'} for i = 1, 2e4 do keep[i] = setmetatable({i, a = i}, weak) end while true do local t = {} end",
    ),
    (
        "coroutines in coroutines",
        "local function f(n) if n == 0 then return 1 end return coroutine.wrap(f)(n - 1) end while true do f(150) end",
    ),
    (
        "calls below calls",
        "local function f(n) if n == 0 then return 1 end local _, x = pcall(f, n - 1) return x end while true do f(150) end",
    ),
    ("errors with long texts", "local s = ('x'):rep(1e5) while true do pcall(error, s, 2) end"),
    (
        "items of a table",
        "local t = {} for i = 1, 1e5 do t['k' .. i] = i end while true do for k, v in pairs(t) do end end",
    ),
    (
        "items that are removed",
        "while true do local t = {} for i = 1, 1000 do t['k' .. i] = i end for k in pairs(t) do t[k] = nil end end",
    ),
    ("digests", "local s = ('x'):rep(1e6) while true do redis.sha1hex(s) end"),
    ("texts of numbers", "local f = tostring while true do f(1e300) end"),
    (
        "cold memory",
        "local t = {} for i = 1, 3e5 do t[i] = {} end local n = 0 while true do n = (n * 5 + 12345) % 262144 local _ = t[n + 1][1] end",
    ),
];

/// What they take is printed, for docs/scripts.md; here it is that they end, at the same point in two rooms.
#[test]
fn the_worst_for_their_steps_end() {
    for (name, source) in WORST {
        let mut replies = Vec::new();
        for _ in 0..2 {
            let mut lab = Lab::new();
            let start = cpu_time();
            replies.push((text(&eval(&mut lab, source, &[])), crate::script::left()));
            println!("{name}: {:.0?}", cpu_time().saturating_sub(start));
        }
        let is_stopped = [EXHAUSTED, FULL].iter().any(|reply| replies[0].0.starts_with(reply));
        assert!(is_stopped, "{name}: {}", replies[0].0);
        assert_eq!(replies[0], replies[1], "{name}");
    }
}

/// What every script of a list leaves: its reply, its work, its bytes in use.
fn traces(sources: &[String], prepare: &str) -> Vec<(Reply, Option<(i64, usize)>)> {
    let mut lab = Lab::new();
    eval(&mut lab, prepare, &[]);
    sources.iter().map(|source| (eval(&mut lab, source, &[]), crate::script::left())).collect()
}

#[test]
fn it_stops_at_the_same_point_in_every_process() {
    let mut sources: Vec<String> =
        RUNAWAYS.iter().step_by(8).map(|(_, source, _)| (*source).to_string()).collect();
    sources.extend([
        // The order of keys that are tables or functions, as far as the work goes.
        "local t, s = {}, '' for i = 1, 2000 do t[{}] = i t[function() end] = -i end for k, v in pairs(t) do s = redis.sha1hex(s .. v) end return s".to_string(),
        "local t = {} for i = 1, 1e9 do t[{}] = tostring({}) end".to_string(),
        "local weak = setmetatable({}, {__mode = 'k'}) local n = 0 for i = 1, 1e4 do weak[{}] = i end for _ in pairs(weak) do n = n + 1 end return n".to_string(),
    ]);
    let one = traces(&sources, "return 1");
    let theirs = sources.clone();
    let other = std::thread::spawn(move || {
        // Another room, at another address, after another script.
        let noise: Vec<Vec<u8>> = (1..500).map(|size| vec![0; size * 100]).collect();
        let found = traces(&theirs, "local t = {} for i = 1, 1e5 do t[i] = {} end");
        drop(noise);
        found
    });
    for ((source, one), other) in sources.iter().zip(one).zip(other.join().unwrap()) {
        assert_eq!(one, other, "{source}");
    }
}

#[test]
fn deep_things_are_errors_and_not_the_end_of_the_process() {
    let cases = [
        ("local function f() return f() + 1 end return f()", "ERR user_script:1: stack overflow"),
        (
            "local t = {} for i = 1, 1e5 do t = {t} end return t",
            "ERR the script's reply is nested too deeply",
        ),
        ("local t = {} t[1] = t return t", "ERR the script's reply is nested too deeply"),
        (
            "local t = {} t[1] = t return cjson.encode(t)",
            "ERR user_script:1: Cannot serialise, excessive depth",
        ),
        ("return cjson.decode(('['):rep(2000))", "ERR user_script:1: Found too many nested data structures"),
        ("return string.find('x', ('('):rep(100))", "ERR user_script:1: too many captures"),
        ("return string.find(('x'):rep(5000), ('x?'):rep(5000))", "ERR user_script:1: pattern too complex"),
        ("local x = unpack({}, 1, 1e7)", "ERR user_script:1: too many results to unpack"),
        ("return string.byte(('x'):rep(1e5), 1, -1)", "ERR user_script:1: string slice too long"),
        (
            "return loadstring(('('):rep(1e5) .. '1' .. (')'):rep(1e5))()",
            "ERR user_script:1: attempt to call a nil value",
        ),
        ("return loadstring('\\27Lua')()", "ERR user_script:1: attempt to call a nil value"),
        ("return ('x'):rep(1e10)", "ERR user_script:1: resulting string too large"),
        (
            "local f = setmetatable({}, {}) getmetatable(f).__index = f return f.x",
            "ERR user_script:1: loop in gettable",
        ),
        ("local t = setmetatable({}, {__tostring = 1}) return tostring(t)", "ERR "),
    ];
    let mut lab = Lab::new();
    for (source, expected) in cases {
        let reply = text(&eval(&mut lab, source, &[]));
        assert!(reply.starts_with(expected), "{source}: {reply}");
    }
    let nested = format!("return {}1{}", "(".repeat(100_000), ")".repeat(100_000));
    let reply = text(&eval(&mut lab, &nested, &[]));
    assert!(
        reply.starts_with(
            "ERR Error compiling script (new function): user_script:1: chunk has too many syntax levels"
        ),
        "{reply}"
    );
    let long = format!("return '{}'", "x".repeat(2 << 20));
    assert_eq!(text(&eval(&mut lab, &long, &[])), "ERR the script is too long (more than 1 MB)");
    let reply = text(&eval(&mut lab, "\u{1b}Lua", &[]));
    assert!(reply.contains("bytecode is not accepted"), "{reply}");
}

/// The texts that Lua keeps are being put into a larger table when the work is used up. Lua ends the process if it cannot find the text of its own error then.
#[test]
fn a_script_ends_while_the_texts_are_moved() {
    let source = "for i = 1, 2356000 do end local t = {} for i = 1, 140000 do t[i] = 'f' .. i end return 1";
    let reply = text(&eval(&mut Lab::new(), source, &[]));
    assert!(reply.starts_with(EXHAUSTED), "{reply}");
}

/// Too many coroutines inside of one another, and no work left to say so: Lua ends the process if nothing protects the last one.
#[test]
fn a_script_ends_while_a_coroutine_cannot_be_resumed() {
    let run = |loops: i64, rest: i64| {
        let source = format!(
            "local all, none, depth, resume, unpack = {{}}, {{}}, 0, coroutine.resume, unpack \
             local function f() depth = depth + 1 if depth == 198 then unpack(none, 1, {rest}) end \
             local ok, why, x = resume(all[depth + 1]) return why, x end \
             for i = 1, 230 do all[i] = coroutine.create(f) end for i = 1, {loops} do end \
             local ok, why = resume(all[1]) return why .. depth"
        );
        (text(&eval(&mut Lab::new(), &source, &[])), crate::script::left().map_or(0, |(left, _)| left / 16))
    };
    let (reply, left) = run(3_000_000, 1);
    assert_eq!(reply, "C stack overflow198");
    // A turn of the loop is an instruction and a jump.
    let loops = 3_000_000 + (left - 400) * 8 / 9;
    for rest in 320..420 {
        let (reply, _) = run(loops, rest);
        assert!(reply.starts_with(EXHAUSTED), "{rest}: {reply}");
    }
}
