//! Scripts on machines: what runs away stops everywhere at the same point, and nothing of it is done.

mod commands;
mod inside;
mod random;
mod runaway;

use crate::machine::tests::support::Lab;
use crate::reply::Reply;
use std::time::Duration;

/// Runs a script, and gives its reply.
fn eval(lab: &mut Lab, source: &str, keys_and_args: &[&str]) -> Reply {
    let count = keys_and_args.len().to_string();
    let mut words: Vec<&[u8]> = vec![b"EVAL", source.as_bytes(), count.as_bytes()];
    words.extend(keys_and_args.iter().map(|word| word.as_bytes()));
    lab.run(&words)
}

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(text) | Reply::Error(text) | Reply::Simple(text) => {
            String::from_utf8_lossy(text).into_owned()
        }
        other => format!("{other:?}"),
    }
}

/// The time that this thread has had a processor, to be printed; nothing where the system does not tell.
fn cpu_time() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(told.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0))
}

#[test]
fn a_script_reads_and_writes() {
    let mut lab = Lab::new();
    assert_eq!(
        eval(&mut lab, "return redis.call('set', KEYS[1], ARGV and 'x')", &["k"]),
        Reply::simple("OK")
    );
    assert_eq!(lab.say("GET k"), "\"x\"");
    assert_eq!(eval(&mut lab, "return 1 + 1", &[]), Reply::Integer(2));
    assert_eq!(text(&eval(&mut lab, "return redis.call('get', KEYS[1])", &["k"])), "x");
}

#[test]
fn a_script_selects_a_database_as_a_client_does() {
    let mut lab = Lab::new();
    let said =
        |lab: &mut Lab, db: &str| text(&eval(lab, &format!("return redis.pcall('select', '{db}')"), &[]));
    assert_eq!(said(&mut lab, "1"), "OK");
    assert_eq!(said(&mut lab, "16"), "ERR DB index is out of range");
    assert!(said(&mut lab, "-2147483649").starts_with("ERR value is out of range, value must between"));
    assert!(said(&mut lab, "x").starts_with("ERR value is not an integer"));
}

#[test]
fn a_script_that_fails_keeps_what_it_did() {
    let mut lab = Lab::new();
    let reply = eval(&mut lab, "redis.call('set', 'a', '1') redis.call('incr', 'a', 'b')", &[]);
    assert!(
        text(&reply).starts_with("ERR Wrong number of args calling Redis command from script script: "),
        "{reply:?}"
    );
    assert_eq!(lab.say("GET a"), "\"1\"");
    // A command that fails inside it changes nothing.
    eval(&mut lab, "return redis.pcall('mset', 'b', '2', 'c')", &[]);
    assert_eq!(lab.say("EXISTS b c"), "0");
}

#[test]
fn time_and_random_numbers_are_those_of_the_log() {
    let mut lab = Lab::new();
    let reply = eval(&mut lab, "return redis.call('time')", &[]);
    assert_eq!(reply, Reply::Array(vec![Reply::simple_bulk("1000"), Reply::simple_bulk("0")]));
    let draw = "return {math.random(1e9), math.random(1e9)}";
    let (one, other) = (eval(&mut lab, draw, &[]), eval(&mut lab, draw, &[]));
    assert_ne!(one, other, "every slot has its own numbers");
    let mut again = Lab::new();
    eval(&mut again, "return 1", &[]);
    assert_eq!(eval(&mut again, draw, &[]), one, "the same on another node");
}

#[test]
fn evaluated_scripts_are_kept_up_to_a_limit_and_loaded_ones_for_ever() {
    let mut lab = Lab::new();
    let reply = lab.run(&[b"SCRIPT", b"LOAD", b"return 'loaded'"]);
    let loaded = text(&reply);
    eval(&mut lab, "return 'first'", &[]);
    let first = crate::script::sha1_hex(b"return 'first'");
    let exists = |lab: &mut Lab, sha: &str| lab.run(&[b"SCRIPT", b"EXISTS", sha.as_bytes()]);
    assert_eq!(exists(&mut lab, &first), Reply::Array(vec![Reply::Integer(1)]));
    for number in 0..crate::machine::EVALUATED_MAX {
        eval(&mut lab, &format!("return {number}"), &[]);
    }
    assert_eq!(exists(&mut lab, &first), Reply::Array(vec![Reply::Integer(0)]));
    assert_eq!(exists(&mut lab, &loaded), Reply::Array(vec![Reply::Integer(1)]));
    assert_eq!(text(&lab.run(&[b"EVALSHA", loaded.as_bytes(), b"0"])), "loaded");
    lab.run(&[b"SCRIPT", b"FLUSH"]);
    assert_eq!(
        text(&lab.run(&[b"EVALSHA", loaded.as_bytes(), b"0"])),
        "NOSCRIPT No matching script. Please use EVAL."
    );
}
