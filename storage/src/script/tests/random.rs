//! A thousand random scripts on two machines: the same replies, the same rows.

use super::eval;
use crate::machine::tests::support::Lab;

/// A generator of numbers whose seed is all that a run depends on.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

/// A statement that can come anywhere; `a`, `b`, `t` and `n` are locals.
fn statement(draw: &mut Draw, depth: usize) -> String {
    let key = draw.one(&["'k1'", "'k2'", "'k3'", "KEYS[1]", "KEYS[2]"]);
    let value = expression(draw, depth);
    match draw.below(20) {
        0 => format!("redis.call('set', {key}, tostring({value}))"),
        1 => format!("n = n + (redis.pcall('incr', {key}) == 1 and 1 or 2)"),
        2 => format!("redis.pcall('rpush', {key}, tostring({value}), n)"),
        3 => format!("redis.pcall('hset', {key}, tostring(a), tostring({value}))"),
        4 => format!("t[{value} or 1] = n"),
        5 => "t[{}] = n t[function() end] = n + 1".to_string(),
        6 => "for k, v in pairs(t) do n = (n * 31 + (tonumber(v) or 7) + #tostring(k)) % 1e9 end".to_string(),
        7 => format!("a = tostring({value}) .. tostring(t)"),
        8 => "a, b = string.gsub(tostring(a), '%w+', function(w) n = n + 1 return w:upper() end)".to_string(),
        9 if depth > 0 => format!("for i = 1, {} do {} end", draw.below(30), statement(draw, depth - 1)),
        10 if depth > 0 => format!("pcall(function() {} end)", statement(draw, depth - 1)),
        11 if depth > 0 => format!(
            "coroutine.wrap(function() {} coroutine.yield() {} end)()",
            statement(draw, depth - 1),
            statement(draw, depth - 1)
        ),
        12 if depth > 0 => format!("if {value} then {} end", statement(draw, depth - 1)),
        13 => "n = n + math.random(1000)".to_string(),
        14 => "b = cjson.encode({n, tostring(a)})".to_string(),
        15 => "b = cmsgpack.pack({x = n, y = {a}})".to_string(),
        16 => "local r = redis.pcall('hgetall', KEYS[1]) n = n + #r".to_string(),
        17 => format!("for w in tostring({value}):gmatch('%d') do n = n + w end"),
        18 => "table.sort({3, n % 7, 5, n % 11}, function(x, y) n = n + 1 return x < y end)".to_string(),
        _ => format!("redis.pcall('pexpire', {key}, n % 1000)"),
    }
}

fn expression(draw: &mut Draw, depth: usize) -> String {
    match draw.below(10) {
        0 => draw.below(1000).to_string(),
        1 => "n".to_string(),
        2 => "a".to_string(),
        3 => "redis.call('get', 'k1')".to_string(),
        4 => "#tostring(t)".to_string(),
        5 if depth > 0 => format!("(n % 7 == 0 and {} or b)", expression(draw, depth - 1)),
        6 => "redis.sha1hex(tostring(n))".to_string(),
        7 => "string.format('%.3f|%5d', n / 3, n)".to_string(),
        8 => "bit.bxor(n, 12345)".to_string(),
        _ => "ARGV[1]".to_string(),
    }
}

#[test]
fn a_thousand_random_scripts_are_the_same_on_two_machines() {
    let seed = 20_261_116;
    println!("seed {seed}");
    let mut draw = Draw(seed);
    let scripts: Vec<String> = (0..1001)
        .map(|_| {
            let body: Vec<String> = (0..1 + draw.below(8)).map(|_| statement(&mut draw, 2)).collect();
            format!("local a, b, t, n = 'x', 'y', {{}}, 1 {} return {{n, a, b, tostring(t)}}", body.join(" "))
        })
        .collect();
    let run = |scripts: &[String], noise: usize| {
        let mut lab = Lab::new();
        let mut kept = Vec::new();
        let replies: Vec<_> = scripts
            .iter()
            .enumerate()
            .map(|(index, source)| {
                kept.push(vec![0_u8; noise]);
                lab.now_ms += 1;
                let reply = eval(&mut lab, source, &["k1", "k2"]);
                let checksum = (index % 20 == 0).then(|| lab.machine.checksum().unwrap());
                (reply, checksum)
            })
            .collect();
        lab.check_invariants();
        replies
    };
    let one = run(&scripts, 0);
    let theirs = scripts.clone();
    // Another thread has another interpreter, at another address.
    let other = std::thread::spawn(move || run(&theirs, 5000)).join().unwrap();
    let mut failed = 0;
    for (index, (one, other)) in one.iter().zip(&other).enumerate() {
        assert_eq!(one, other, "seed {seed}, script {index}: {}", scripts[index]);
        failed += usize::from(one.0.is_error());
    }
    assert!(failed < 700, "{failed} of the scripts fail: they test too little");
}
