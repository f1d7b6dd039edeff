//! Commands that do more than one step suggests: a script that calls them often is stopped, at the same point with rows in memory and on disk.
//!
//! Every script here calls so seldom that 500 steps for a command would let it end: what stops it is what the command does.

use super::{cpu_time, text};
use crate::commands::{Args, Handler, lookup_any};
use crate::machine::tests::support::rows;
use crate::machine::{Caller, Machine, Stamp, encode_command};
use crate::reply::Reply;
use crate::row::{RowKey, RowValue};
use crate::store::disk::{Attachment, Workshop};
use crate::store::{MemoryStore, Store, StoreError};
use bytes::Bytes;

const EXHAUSTED: &str = "ERR the script was stopped: it does too much at once";
const NOW_MS: u64 = 1_000_000;

/// Name, how often, the command.
const READS: &[(&str, usize, &str)] = &[
    ("GET of a large value", 1000, "'get', 'big'"),
    ("STRLEN of a large value", 2000, "'strlen', 'big'"),
    ("GETRANGE of a large value", 2000, "'getrange', 'big', 0, 0"),
    ("MGET of a large value", 1000, "'mget', 'big', 'big', 'big'"),
    ("GETBIT in a large value", 2000, "'getbit', 'big', 1"),
    ("BITCOUNT", 500, "'bitcount', 'big'"),
    ("BITPOS", 500, "'bitpos', 'big', 1"),
    ("LCS", 500, "'lcs', 's1', 's2', 'len'"),
    ("LRANGE", 1000, "'lrange', 'list', 0, -1"),
    ("LPOS", 1000, "'lpos', 'list', 'none'"),
    ("HGETALL", 1000, "'hgetall', 'hash'"),
    ("HSCAN with a pattern", 1000, "'hscan', 'hash', 0, 'match', 'none*', 'count', 10000"),
    ("HRANDFIELD with repetitions", 1000, "'hrandfield', 'hash', -10000"),
    ("HRANDFIELD", 1000, "'hrandfield', 'hash', 1500"),
    ("KEYS", 1000, "'keys', 'none'"),
    ("KEYS with a long pattern", 500, "'keys', ('*a'):rep(100)"),
    ("SCAN", 1000, "'scan', 0, 'match', 'none*', 'count', 10000"),
    ("SCAN with a long pattern", 500, "'scan', 0, 'match', ('*a'):rep(100), 'count', 10000"),
    ("SORT_RO", 1000, "'sort_ro', 'list', 'limit', 0, 1"),
    ("SORT_RO by keys", 1000, "'sort_ro', 'list', 'by', 'k*', 'limit', 0, 1"),
    ("MEMORY USAGE", 1000, "'memory', 'usage', 'hash', 'samples', 0"),
];

/// The same for commands that write. `v` has 10,000 bytes.
const WRITES: &[(&str, usize, &str)] = &[
    ("APPEND", 1000, "'append', 'grows', v"),
    ("SETRANGE", 1000, "'setrange', 'big', 0, 'y'"),
    ("SETBIT", 1000, "'setbit', 'big', i, 1"),
    ("SETBIT that changes nothing", 1000, "'setbit', 'big', 0, 0"),
    ("SETBIT far away", 1, "'setbit', 'far', 4294967295, 1"),
    ("SETRANGE far away", 1, "'setrange', 'far', 536000000, 'x'"),
    ("BITFIELD", 1000, "'bitfield', 'big', 'set', 'u8', 0, i % 256"),
    ("BITOP", 500, "'bitop', 'and', 'to', 'big', 'big'"),
    ("SORT", 1000, "'sort', 'list', 'store', 'to'"),
    ("SORT by keys", 1000, "'sort', 'list', 'by', 'k*', 'alpha', 'store', 'to'"),
    ("LINSERT", 1000, "'linsert', 'list', 'before', '1500', i"),
    ("LREM", 1000, "'lrem', 'list', 0, 'none'"),
    ("COPY of a list", 1000, "'copy', 'list', 'to', 'replace'"),
    ("COPY of a large value", 500, "'copy', 'big', 'to', 'replace'"),
];

/// The script's own changes are in the way of what it looks at.
const OWN_CHANGES: &str = "local t = {} for i = 1, 7000 do t[i] = i end \
    for i = 1, 3 do t[1] = i redis.call('hset', 'own' .. i, unpack(t)) end \
    for i = 1, 2500 do redis.call('hrandfield', 'own1', 2) end";

fn apply<S: Store>(machine: &mut Machine<S>, command: &[&[u8]]) -> Reply {
    let stamp = Stamp { slot: machine.applied() + 1, index: 0, at_ms: NOW_MS };
    let caller = Caller { node: 1, incarnation: 1, seq: stamp.slot };
    let reply = machine.apply_for(&stamp, caller, &encode_command(0, command));
    machine.finish_slot(stamp.slot).unwrap();
    reply
}

/// A list, a hash and keys of 3,000, and values of 1 MB and of 3,000 bytes.
fn prepare<S: Store>(machine: &mut Machine<S>) {
    let numbers: Vec<String> = (0..3000).map(|number| number.to_string()).collect();
    let keys: Vec<String> = numbers.iter().map(|number| format!("k{number}aaaaaaaaaaaaaaaa")).collect();
    let short: Vec<String> = numbers.iter().map(|number| format!("k{number}")).collect();
    let say = |machine: &mut Machine<S>, name: &[&str], words: Vec<&String>| {
        let words = name.iter().map(|word| word.as_bytes()).chain(words.iter().map(|word| word.as_bytes()));
        let reply = apply(machine, &words.collect::<Vec<_>>());
        assert!(!reply.is_error(), "{reply:?}");
    };
    say(machine, &["RPUSH", "list"], numbers.iter().rev().collect());
    say(machine, &["HSET", "hash"], numbers.iter().flat_map(|number| [number, number]).collect());
    say(machine, &["MSET"], keys.iter().zip(&numbers).flat_map(|(key, number)| [key, number]).collect());
    say(machine, &["MSET"], short.iter().zip(&numbers).flat_map(|(key, number)| [key, number]).collect());
    apply(machine, &[b"SET", b"big", &vec![0; 1 << 20]]);
    apply(machine, &[b"SET", b"s1", &b"ab".repeat(1500)]);
    apply(machine, &[b"SET", b"s2", &b"ba".repeat(1500)]);
}

/// Rows of data: all but the machine's numbers.
fn data<S: Store>(machine: &Machine<S>) -> Vec<(RowKey, RowValue)> {
    let mut rows = rows(machine.store());
    rows.retain(|(key, _)| matches!(key.borrow().first() >> 56, 0x10..=0x13));
    rows
}

/// What each script leaves: its reply, and its work.
type Traces = Vec<(String, Option<(i64, usize)>)>;

/// Runs all scripts. Nothing of them stays.
fn run_all<S: Store>(machine: &mut Machine<S>, place: &str) -> Traces {
    let mut traces = Vec::new();
    let before = data(machine);
    let mut run = |machine: &mut Machine<S>, name: &str, evaluate: &dyn Fn(&mut Machine<S>) -> Reply| {
        let start = cpu_time();
        let reply = text(&evaluate(machine));
        println!("{name} ({place}): {:.0?}", cpu_time().saturating_sub(start));
        assert!(reply.starts_with(EXHAUSTED), "{name} ({place}): {reply}");
        traces.push((reply, crate::script::left()));
    };
    for (name, times, command) in READS.iter().chain(WRITES) {
        let source = format!(
            "redis.call('set', 'x', 'y') local v = ('x'):rep(10000) for i = 1, {times} do redis.call({command}) end"
        );
        run(machine, name, &|machine| apply(machine, &[b"EVAL", source.as_bytes(), b"0"]));
    }
    run(machine, "own changes", &|machine| apply(machine, &[b"EVAL", OWN_CHANGES.as_bytes(), b"0"]));
    // The way of EVAL_RO is the same for all.
    for (name, times, command) in READS.iter().step_by(4) {
        let source = format!("for i = 1, {times} do redis.call({command}) end");
        run(machine, &format!("{name}, only looking"), &|machine| {
            let Some(Handler::Read(look)) = lookup_any(b"EVAL_RO").map(|spec| spec.handler) else {
                unreachable!()
            };
            look(&machine.view(NOW_MS), &Args::new(0, &[source.as_bytes(), b"0"]))
        });
    }
    assert!(data(machine) == before, "something was done ({place})");
    traces
}

#[test]
fn commands_that_run_away_stop_at_the_same_point_in_memory_and_on_disk() {
    let in_memory = std::thread::spawn(|| {
        let mut machine = Machine::<MemoryStore>::default();
        prepare(&mut machine);
        run_all(&mut machine, "memory")
    });
    let directory = tempfile::tempdir().unwrap();
    let workshop = Workshop::new(directory.path(), 1 << 20, std::sync::Arc::new(|| ()));
    let nothing = std::iter::empty::<Result<_, StoreError>>();
    let store = workshop.found(workshop.prepare(nothing, None).unwrap()).unwrap();
    let mut machine = Machine::open(store).unwrap();
    prepare(&mut machine);
    let slot = machine.applied();
    machine.store_mut().seal(Attachment { slot, bytes: Bytes::new() }, false).unwrap();
    machine.store_mut().settle().unwrap();
    let on_disk = run_all(&mut machine, "disk");
    let in_memory = in_memory.join().unwrap();
    for (at, (one, other)) in in_memory.iter().zip(&on_disk).enumerate() {
        assert_eq!(one, other, "script {at}");
    }
}

/// What a script may do stays possible: each of these once, and then all of them outside of a script, which has no end.
#[test]
fn each_of_them_once_is_not_too_much() {
    let mut machine = Machine::<MemoryStore>::default();
    prepare(&mut machine);
    for (name, _, command) in READS.iter().chain(WRITES).filter(|(name, ..)| !name.contains("far away")) {
        let source = format!("local v, i = ('x'):rep(10000), 1 redis.call({command}) return 'done'");
        let reply = text(&apply(&mut machine, &[b"EVAL", source.as_bytes(), b"0"]));
        assert_eq!(reply, "done", "{name}");
    }
    assert_eq!(apply(&mut machine, &[b"SETBIT", b"far", b"4294967295", b"1"]), Reply::Integer(0));
    let view = machine.view(NOW_MS);
    let look = |command: &[&[u8]]| {
        let Some(Handler::Read(look)) = lookup_any(command[0]).map(|spec| spec.handler) else {
            unreachable!()
        };
        look(&view, &Args::new(0, &command[1..]))
    };
    // A view outlives the script that looked at it.
    let stopped = text(&look(&[b"EVAL_RO", b"while true do redis.call('bitcount', 'big') end", b"0"]));
    assert!(stopped.starts_with(EXHAUSTED), "{stopped}");
    assert_eq!(look(&[b"BITCOUNT", b"far"]), Reply::Integer(1));
    assert_eq!(look(&[b"LLEN", b"list"]), Reply::Integer(3001));
    let Reply::Array(keys) = look(&[b"KEYS", b"k*"]) else { unreachable!() };
    assert_eq!(keys.len(), 6000);
}
