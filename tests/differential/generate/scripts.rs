//! Scripts: a few random commands of the others, called from Lua, and the small scripts that people write. What Lua itself does has a table of its own
//! (`server/tests/face/scripts/`); here it is whether a command means the same inside a script.

use super::{Gen, Maker, Words, lists};

pub const MAKERS: &[Maker] =
    &[("EVAL", 8, |g| if g.random.percent(25) { known_pattern(g) } else { calls(g) })];

/// Not called from scripts: replies that have no order, are random or count the time cannot be told apart inside a script's reply, and what is known to differ is
/// known by its name. (Those that wait do not wait here; Redis 7.0 refuses them.)
const NOT_CALLED: &[&str] = &[
    "EVAL",
    "HGETALL",
    "HKEYS",
    "HVALS",
    "KEYS",
    "SCAN",
    "HSCAN",
    "RANDOMKEY",
    "HRANDFIELD",
    "TTL",
    "PTTL",
    "EXPIRETIME",
    "PEXPIRETIME",
    "SORT",
    "SORT_RO",
    "OBJECT",
    "MEMORY",
    "DBSIZE",
    "FLUSHDB",
    "SWAPDB",
    "INCRBYFLOAT",
    "HINCRBYFLOAT",
];

/// A command for a script.
fn inner(g: &mut Gen) -> Words {
    loop {
        let words = g.command();
        let is = |name: &[u8]| words[0].eq_ignore_ascii_case(name);
        if !NOT_CALLED.iter().any(|name| is(name.as_bytes())) && !lists::BLOCKING.iter().any(|name| is(name))
        {
            return words;
        }
    }
}

/// Calls a few commands whose words are the arguments.
fn calls(g: &mut Gen) {
    let outer = std::mem::take(&mut g.words);
    let commands: Vec<Words> = (0..1 + g.random.below(4)).map(|_| inner(g)).collect();
    g.words = outer;
    let mut end = 0;
    let called: Vec<String> = commands
        .iter()
        .map(|words| {
            let start = end + 1;
            end += words.len();
            // A failure of `call` ends the script; what was done before stays.
            let call = if g.random.percent(70) { "pcall" } else { "call" };
            format!("redis.{call}(unpack(ARGV, {start}, {end}))")
        })
        .collect();
    let prelude = g.random.pick(&["", "", "redis.setresp(3) ", "redis.setresp(2) ", "local _ = KEYS[1] "]);
    let all = called.join(", ");
    let last = &called[called.len() - 1];
    let script = match g.random.below(6) {
        // A nil would end the list, but there is none: what is absent is false.
        0 | 1 => format!("return {{{all}}}"),
        2 => format!("local r = {{}} for i, v in ipairs({{{all}}}) do r[i] = {{type(v), v}} end return r"),
        3 => format!(
            "for _, v in ipairs({{{all}}}) do if type(v) == 'table' and v.err then return v end end return {last}"
        ),
        4 => {
            format!("local ok, r = pcall(function() return {{{all}}} end) return {{ok, ok and r or type(r)}}")
        }
        _ => format!("local r = {{{all}}} return r[#r]"),
    };
    g.raw(format!("{prelude}{script}"));
    g.number(0);
    for words in commands {
        g.words.extend(words);
    }
}

/// Scripts that people have.
fn known_pattern(g: &mut Gen) {
    let scripts = [
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
        "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', 100000000) then return 1 else return 0 end",
        "local n = redis.call('incr', KEYS[1]) if n == 1 then redis.call('expire', KEYS[1], 100000) end return n",
        "local v = redis.call('lpop', KEYS[1]) if v then redis.call('rpush', KEYS[2], v) end return v",
        "for i, k in ipairs(KEYS) do if redis.call('exists', k) == 1 then return 0 end end for i, k in ipairs(KEYS) do redis.call('set', k, ARGV[1]) end return #KEYS",
        "local n = 0 for _, k in ipairs(KEYS) do n = n + redis.call('strlen', k) end return n",
        "return {redis.call('type', KEYS[1]), redis.call('type', KEYS[1]).ok, #ARGV[1]}",
        "return {ARGV[1] == KEYS[1], tonumber(ARGV[1]) or false, redis.sha1hex(ARGV[1])}",
    ];
    let script = g.random.pick(&scripts);
    g.raw(script);
    let keys = 2 + g.random.below(2);
    g.number(keys as i64);
    for _ in 0..keys {
        g.any_key();
    }
    g.value();
}
