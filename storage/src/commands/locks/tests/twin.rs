//! Random histories of one lock, against a twin that is too simple to be wrong: lists of holders and waiters, searched from end to end.
//!
//! Compared are every reply, everything told, and in what order; checked besides are mutual exclusion, the growth of tokens, that nobody
//! overtakes, and that each wait ends at most once.

use crate::commands::unwait;
use crate::machine::Caller;
use crate::machine::tests::support::Lab;
use proptest::prelude::*;
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
enum Op {
    Acquire {
        owner: u8,
        ttl_ms: u64,
        is_shared: bool,
        wait_ms: u64,
    },
    Release {
        pick: usize,
    },
    Renew {
        pick: usize,
        ttl_ms: u64,
    },
    Cancel {
        pick: usize,
    },
    Revoke,
    Delete,
    /// Time passes, unseen.
    Wait(u64),
    /// Time passes, and the master sweeps.
    Sweep(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let acquire = (0..5_u8, 1..60_u64, any::<bool>(), prop_oneof![Just(0), 1..80_u64])
        .prop_map(|(owner, ttl_ms, is_shared, wait_ms)| Op::Acquire { owner, ttl_ms, is_shared, wait_ms });
    prop_oneof![
        6 => acquire,
        4 => any::<usize>().prop_map(|pick| Op::Release { pick }),
        2 => (any::<usize>(), 1..60_u64).prop_map(|(pick, ttl_ms)| Op::Renew { pick, ttl_ms }),
        1 => any::<usize>().prop_map(|pick| Op::Cancel { pick }),
        1 => Just(Op::Revoke),
        1 => Just(Op::Delete),
        2 => (0..40_u64).prop_map(Op::Wait),
        2 => (0..40_u64).prop_map(Op::Sweep),
    ]
}

#[derive(Clone, Debug)]
struct Held {
    owner: u8,
    token: u64,
    is_shared: bool,
    count: u64,
    until_ms: u64,
}

#[derive(Clone, Debug)]
struct Waits {
    seq: u64,
    owner: u8,
    ttl_ms: u64,
    is_shared: bool,
    until_ms: u64,
}

#[derive(Default)]
struct Twin {
    now_ms: u64,
    tokens: u64,
    held: Vec<Held>,
    line: Vec<Waits>,
    told: Vec<String>,
}

impl Twin {
    /// Takes away what is over. Says whether anything was.
    fn expire(&mut self) -> bool {
        let before = self.held.len();
        self.held.retain(|held| self.now_ms <= held.until_ms);
        before != self.held.len()
    }

    fn may_have(&self, owner: u8, is_shared: bool) -> bool {
        self.held.is_empty()
            || self.held.iter().any(|held| held.owner == owner)
            || is_shared && self.held.iter().all(|held| held.is_shared)
    }

    fn grant(&mut self, owner: u8, ttl_ms: u64, is_shared: bool) -> String {
        let until_ms = self.now_ms + ttl_ms;
        if let Some(held) = self.held.iter_mut().find(|held| held.owner == owner) {
            if held.is_shared && !is_shared {
                return "error".into();
            }
            held.count += 1;
            held.until_ms = held.until_ms.max(until_ms);
            return format!("[{} {}]", held.token, held.until_ms - self.now_ms);
        }
        self.tokens += 1;
        self.held.push(Held { owner, token: self.tokens, is_shared, count: 1, until_ms });
        format!("[{} {ttl_ms}]", self.tokens)
    }

    fn serve(&mut self) {
        while let Some(first) = self.line.first().cloned() {
            let reply = if first.until_ms <= self.now_ms {
                "nil".into()
            } else if self.may_have(first.owner, first.is_shared) {
                self.grant(first.owner, first.ttl_ms, first.is_shared)
            } else {
                return;
            };
            self.line.remove(0);
            let has_lock = reply.starts_with('[');
            self.told.push(format!("{} {reply}", first.seq));
            if has_lock {
                self.serve_owner(first.owner);
            }
        }
    }

    /// Who got the lock gets it with all its requests, but for those that want it exclusively while it is shared.
    fn serve_owner(&mut self, owner: u8) {
        for wait in std::mem::take(&mut self.line) {
            let reply = if wait.owner != owner {
                None
            } else if wait.until_ms <= self.now_ms {
                Some("nil".into())
            } else {
                Some(self.grant(owner, wait.ttl_ms, wait.is_shared)).filter(|reply| reply != "error")
            };
            match reply {
                Some(reply) => self.told.push(format!("{} {reply}", wait.seq)),
                None => self.line.push(wait),
            }
        }
    }

    fn acquire(&mut self, seq: u64, owner: u8, ttl_ms: u64, is_shared: bool, wait_ms: u64) -> String {
        let before = self.held.clone();
        let is_touched = self.expire();
        let is_mine = self.held.iter().any(|held| held.owner == owner);
        let is_awaited = self.line.iter().any(|wait| wait.until_ms > self.now_ms);
        let reply = if is_mine || !is_awaited && self.may_have(owner, is_shared) {
            let reply = self.grant(owner, ttl_ms, is_shared);
            if reply == "error" {
                self.held = before; // an error changes nothing, not even what was over
                return reply;
            }
            self.serve();
            return reply;
        } else if wait_ms > 0 {
            self.line.push(Waits { seq, owner, ttl_ms, is_shared, until_ms: self.now_ms + wait_ms });
            "waiting"
        } else {
            "nil"
        };
        if is_touched {
            self.serve();
        }
        reply.into()
    }

    /// Changes the hold of a token; an error if nobody has it.
    fn with_token(&mut self, token: u64, change: impl FnOnce(&mut Held, u64) -> String) -> String {
        let now_ms = self.now_ms;
        let is_over = |held: &&mut Held| held.token == token && now_ms <= held.until_ms;
        let Some(held) = self.held.iter_mut().find(is_over) else { return "lost".into() };
        let reply = change(held, now_ms);
        self.expire();
        self.held.retain(|held| held.count > 0);
        self.serve();
        reply
    }
}

/// Replies of the two in the same words.
fn plain(reply: String) -> String {
    if reply.starts_with("-LOCKLOST") {
        "lost".into()
    } else if reply.starts_with('-') {
        "error".into()
    } else {
        reply
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_lock_is_its_twin(ops in prop::collection::vec(op(), 1..80)) {
        let mut lab = Lab::new();
        let mut twin = Twin { now_ms: lab.now_ms, ..Twin::default() };
        let (mut tokens, mut waited, mut ended) = (vec![1], Vec::new(), BTreeSet::new());
        let mut last_grant = 0;
        for op in ops {
            let seq = lab.machine.applied() + 1;
            let (expected, reply) = match op {
                Op::Acquire { owner, ttl_ms, is_shared, wait_ms } => {
                    let shared = if is_shared { "SHARED" } else { "" };
                    let command = format!("LOCK.ACQUIRE k owner{owner} {ttl_ms} {shared} WAIT {wait_ms}");
                    let expected = twin.acquire(seq, owner, ttl_ms, is_shared, wait_ms);
                    if expected == "waiting" {
                        waited.push(seq);
                    }
                    (expected, lab.say(&command))
                }
                Op::Release { pick } => {
                    let token = tokens[pick % tokens.len()];
                    let expected = twin.with_token(token, |held, _| { held.count -= 1; held.count.to_string() });
                    (expected, lab.say(&format!("LOCK.RELEASE k {token}")))
                }
                Op::Renew { pick, ttl_ms } => {
                    let token = tokens[pick % tokens.len()];
                    let expected = twin.with_token(token, |held, now_ms| {
                        held.until_ms = now_ms + ttl_ms;
                        ttl_ms.to_string()
                    });
                    (expected, lab.say(&format!("LOCK.RENEW k {token} {ttl_ms}")))
                }
                Op::Cancel { pick } if waited.is_empty() => { let _ = pick; continue }
                Op::Cancel { pick } => {
                    let gone = waited[pick % waited.len()];
                    if let Some(at) = twin.line.iter().position(|wait| wait.seq == gone) {
                        twin.line.remove(at);
                        twin.told.push(format!("{gone} nil"));
                        // The key itself is not looked at, so a hold that is over is still in the way; the next in line finds that out.
                        twin.expire();
                        twin.serve();
                    }
                    lab.apply(&unwait(Caller { node: 1, incarnation: 1, seq: gone }, false));
                    (String::new(), String::new())
                }
                Op::Revoke | Op::Delete => {
                    let is_touched = twin.expire() || !twin.held.is_empty();
                    let count = twin.held.len();
                    twin.held.clear();
                    if is_touched {
                        twin.serve();
                    }
                    let reply = lab.say(if matches!(op, Op::Revoke) { "LOCK.REVOKE k" } else { "DEL k" });
                    match op {
                        Op::Revoke => (count.to_string(), reply),
                        _ => (usize::from(count > 0).to_string(), reply),
                    }
                }
                Op::Wait(ms) => {
                    twin.now_ms += ms;
                    lab.now_ms += ms;
                    continue;
                }
                Op::Sweep(ms) => {
                    twin.now_ms += ms;
                    let is_touched = twin.expire();
                    let now_ms = twin.now_ms;
                    let mut late: Vec<Waits> = twin.line.iter().filter(|wait| wait.until_ms <= now_ms).cloned().collect();
                    late.sort_by_key(|wait| (wait.until_ms, wait.seq));
                    twin.line.retain(|wait| wait.until_ms > now_ms);
                    twin.told.extend(late.iter().map(|wait| format!("{} nil", wait.seq)));
                    if is_touched || !late.is_empty() {
                        twin.serve();
                    }
                    lab.pass(ms);
                    (String::new(), String::new())
                }
            };
            prop_assert_eq!(plain(reply), expected.clone());
            let told: Vec<String> = lab.told().into_iter().filter(|line| !line.starts_with("k ")).map(|line| {
                let (seq, reply) = line.split_once(' ').unwrap();
                format!("{seq} {}", plain(reply.to_string()))
            }).collect();
            prop_assert_eq!(&told, &std::mem::take(&mut twin.told));
            // T2: mutual exclusion.
            let exclusive = twin.held.iter().filter(|held| !held.is_shared).count();
            prop_assert!(exclusive == 0 || twin.held.len() == 1);
            // T1 and P1.
            for line in &told {
                prop_assert!(ended.insert(line.split(' ').next().unwrap().to_string()), "{line} ended twice");
            }
            for held in &twin.held {
                if !tokens.contains(&held.token) {
                    prop_assert!(held.token > last_grant);
                    last_grant = last_grant.max(held.token);
                    tokens.push(held.token);
                }
            }
            lab.check_invariants();
        }
    }
}
