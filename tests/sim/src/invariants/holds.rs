//! The laws of locks and sessions, judged from what commands of the log answered and told, in the order of the log, and from what clients believe.
//!
//! * T1: tokens grow with every grant. T2: holds of one lock are one exclusive or all shared. T3: a hold ends once, for a reason that was there.
//! * K2: no hold is over before its time, in cluster time and in true time, whatever masters come and go; and it is over when its time is.
//! * P1: a request is granted at most once, and waits end once. P2: first come, first served. P3: nobody is served late. P4: nobody waits for a lock
//!   that is free, or that its own owner holds.
//! * N1: a session ends once, when it is closed or its time is over, and its locks and waits with it.
//! * K1: two clients never believe at the same instant of true time that they hold a lock, unless both share it.

use super::Verdict;
use crate::locks::ask::{Ask, key_of, number};
use crate::locks::real::Said;
use std::collections::{BTreeMap, BTreeSet};
use storage::machine::locks::{End, LockEvent};
use storage::machine::{Caller, Event};
use storage::reply::Reply;

/// When a slot was made and first applied, in true time.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// True time.
    pub now: u64,
    /// When its leader made the value, if that is known.
    pub made: Option<u64>,
}

#[derive(Clone, Debug)]
struct Hold {
    key: u8,
    owner: usize,
    is_shared: bool,
    count: u64,
    until_ms: Option<u64>,
    /// The last grant or renewal: when it was made, and for how long.
    given: (Option<u64>, u64),
    delay_ms: u64,
    session: u64,
}

#[derive(Clone, Debug)]
struct Wait {
    caller: Caller,
    key: u8,
    owner: usize,
    is_shared: bool,
    until_ms: u64,
    session: u64,
}

#[derive(Clone, Debug)]
struct Belief {
    key: u8,
    is_shared: bool,
    token: u64,
    from: u64,
    until: u64,
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct Holds {
    /// What every command asked.
    asked: BTreeMap<Caller, Ask>,
    last_token: u64,
    holds: BTreeMap<u64, Hold>,
    /// Until when lock-delays keep locks closed.
    closed: BTreeMap<u8, u64>,
    /// Which tokens are shared.
    modes: BTreeMap<u64, bool>,
    /// In the order in which they came.
    waits: Vec<Wait>,
    granted: BTreeSet<Caller>,
    /// Time to live and deadline of the sessions that live.
    sessions: BTreeMap<u64, (u64, u64)>,
    beliefs: Vec<Belief>,
    /// Tokens that were given back or taken away before their time.
    taken: BTreeSet<u64>,
    /// True microseconds that a time to live of so many milliseconds lasts at least, as a rate per million and what is taken off.
    pace: Option<(u64, u64)>,
    /// How many grants, waits served and sessions ended the laws have seen.
    pub seen: (u64, u64, u64),
}

impl Holds {
    /// `pace`: the run's clocks allow to judge in true time: how fast cluster time may run, per million, and what it may gain at once.
    #[must_use]
    pub fn new(pace: Option<(u64, u64)>) -> Holds {
        Holds { pace, ..Holds::default() }
    }

    /// A command is given to the engine.
    pub fn asks(&mut self, caller: Caller, ask: Ask) {
        self.asked.insert(caller, ask);
    }

    /// What a command asked.
    #[must_use]
    pub fn asked(&self, caller: Caller) -> Option<Ask> {
        self.asked.get(&caller).copied()
    }

    /// How long a time to live lasts at least in true time; nothing if it cannot be told.
    fn lasts(&self, ttl_ms: u64) -> Option<u64> {
        let (rate, slack) = self.pace?;
        Some((ttl_ms * 1_000 * 1_000_000 / rate).saturating_sub(slack))
    }

    /// A command of the log ran for the first time anywhere.
    pub fn ran(&mut self, said: &Said, moment: Moment, verdict: &mut Verdict) {
        let ask = self.asked.get(&said.caller).copied();
        let at_ms = said.at_ms;
        // A command that waits may be served at once, by what it found out of date.
        if let (Some(Ask::Acquire { key, owner, wait_ms, is_shared, session, .. }), Reply::Waiting(_)) =
            (ask, &said.reply)
        {
            let until_ms = at_ms + wait_ms;
            self.waits.push(Wait { caller: said.caller, key, owner, is_shared, until_ms, session });
        }
        match ask {
            Some(Ask::Flush) => self.closed.clear(),
            Some(Ask::Revoke(key) | Ask::Delete(key)) => drop(self.closed.remove(&key)),
            _ => {}
        }
        for event in &said.events {
            match event {
                Event::Lock(lock) if lock.end.is_none() => self.began(lock, at_ms, moment, verdict),
                Event::Lock(lock) => self.ended(lock, ask, at_ms, moment, verdict),
                Event::Served { caller, reply, .. } => {
                    self.served(*caller, reply, ask, at_ms, moment, verdict)
                }
                _ => {}
            }
        }
        if let Some(ask) = ask {
            self.replied(ask, said, moment, verdict);
        }
        self.no_idle_lock(at_ms, verdict);
    }

    fn began(&mut self, lock: &LockEvent, at_ms: u64, moment: Moment, verdict: &mut Verdict) {
        let (token, key) = (lock.token, key_of(&lock.key));
        self.seen.0 += 1;
        verdict.check(token > self.last_token, || {
            format!("T1: token {token} was granted after {}", self.last_token)
        });
        self.last_token = self.last_token.max(token);
        let Some(Ask::Acquire { owner, ttl_ms, is_shared, delay_ms, session, .. }) = self.asked(lock.caller)
        else {
            return verdict
                .fail(|| format!("P1: token {token} was granted to {:?}, who did not ask", lock.caller));
        };
        verdict.check(self.granted.insert(lock.caller), || {
            format!("P1: the request {:?} was granted twice, again with token {token}", lock.caller)
        });
        for (other, hold) in self.holds.iter().filter(|(_, hold)| hold.key == key) {
            verdict.check(hold.is_shared && is_shared, || {
                format!("T2: token {token} was granted at {at_ms} while {other} is held: {hold:?}")
            });
        }
        let closed = self.closed.get(&key).filter(|until_ms| at_ms <= **until_ms);
        verdict.check(closed.is_none(), || {
            format!("K2: token {token} was granted at {at_ms} during a lock-delay until {closed:?}")
        });
        let first = self.waits.iter().find(|wait| wait.key == key && wait.until_ms > at_ms);
        verdict.check(first.is_none_or(|first| first.caller == lock.caller), || {
            format!("P2: token {token} was granted to {:?}, but {first:?} came before", lock.caller)
        });
        let late = self.waits.iter().find(|wait| wait.caller == lock.caller && wait.until_ms <= at_ms);
        verdict.check(late.is_none(), || format!("P3: {late:?} was served at {at_ms}"));
        let until_ms = (ttl_ms > 0).then_some(at_ms + ttl_ms);
        let given = (moment.made, ttl_ms);
        self.modes.insert(token, is_shared);
        self.holds
            .insert(token, Hold { key, owner, is_shared, count: 1, until_ms, given, delay_ms, session });
    }

    fn ended(
        &mut self,
        lock: &LockEvent,
        ask: Option<Ask>,
        at_ms: u64,
        moment: Moment,
        verdict: &mut Verdict,
    ) {
        let (token, key) = (lock.token, key_of(&lock.key));
        let Some(hold) = self.holds.remove(&token) else {
            return verdict.fail(|| format!("T3: token {token} ended, but nobody holds it"));
        };
        let has_session_passed =
            self.sessions.get(&hold.session).is_none_or(|(_, until_ms)| *until_ms < at_ms);
        // Who takes a lock away ends its delay, too, also that of a hold that it found to be over.
        let is_taken =
            ask.is_some_and(|ask| ask == Ask::Revoke(key) || ask == Ask::Delete(key) || ask == Ask::Flush);
        let is_due = match lock.end {
            Some(End::Expired) => {
                self.not_too_early(token, &hold, moment, verdict);
                hold.until_ms.is_some_and(|until_ms| until_ms < at_ms)
            }
            Some(End::Released) => ask == Some(Ask::Release { key, token }) && hold.count == 1,
            Some(End::Revoked) => is_taken,
            Some(End::Session) => {
                hold.session > 0 && (ask == Some(Ask::Close(hold.session)) || has_session_passed)
            }
            None => false,
        };
        verdict.check(is_due, || {
            format!(
                "T3: token {token} ended ({:?}) at {at_ms} by {ask:?} without a reason: {hold:?}",
                lock.end
            )
        });
        let closed_from = match lock.end {
            Some(End::Expired) => hold.until_ms,
            Some(End::Session) if has_session_passed => Some(at_ms),
            _ => {
                // Who took it away tells the holder; what it believes until then is not the lock's fault.
                self.taken.insert(token);
                self.disbelieve(token, moment.now);
                None
            }
        };
        if lock.end == Some(End::Session) {
            self.taken.insert(token);
            self.disbelieve(token, moment.now);
        }
        if let Some(from) = closed_from.filter(|_| hold.delay_ms > 0 && !is_taken) {
            let closed = self.closed.entry(key).or_insert(0);
            *closed = (*closed).max(from + hold.delay_ms);
        }
    }

    /// K2, in true time.
    fn not_too_early(&self, token: u64, hold: &Hold, moment: Moment, verdict: &mut Verdict) {
        let (Some(made), Some(lasts)) = (hold.given.0, self.lasts(hold.given.1)) else { return };
        verdict.check(moment.now >= made + lasts, || {
            format!(
                "K2: token {token} was over {} µs after it was given for {} ms",
                moment.now.saturating_sub(made),
                hold.given.1
            )
        });
    }

    fn served(
        &mut self,
        caller: Caller,
        reply: &Reply,
        ask: Option<Ask>,
        at_ms: u64,
        moment: Moment,
        verdict: &mut Verdict,
    ) {
        let Some(index) = self.waits.iter().position(|wait| wait.caller == caller) else {
            return verdict.fail(|| format!("P1: the wait of {caller:?} ended, but it did not wait"));
        };
        self.seen.1 += 1;
        let wait = self.waits.remove(index);
        match reply {
            Reply::Granted(_) => {
                let asked = self.asked(caller);
                self.granted_again(caller, asked, reply, at_ms, moment);
            }
            Reply::Null => verdict.check(wait.until_ms <= at_ms || ask == Some(Ask::Unwait(caller)), || {
                format!("P1: {wait:?} was given up at {at_ms} by {ask:?}")
            }),
            Reply::Error(_) => {}
            other => verdict.fail(|| format!("P1: {wait:?} was answered {other:?}")),
        }
    }

    /// A grant that began no hold: the same owner once more.
    fn granted_again(&mut self, caller: Caller, ask: Option<Ask>, reply: &Reply, at_ms: u64, moment: Moment) {
        if self.granted.contains(&caller) {
            return;
        }
        let Some(hold) = self.holds.get_mut(&number(reply)) else { return };
        let Some(Ask::Acquire { ttl_ms, delay_ms, session, .. }) = ask else { return };
        hold.count += 1;
        hold.delay_ms = delay_ms;
        hold.session = if session > 0 { session } else { hold.session };
        let until_ms = (ttl_ms > 0).then_some(at_ms + ttl_ms);
        if until_ms.is_none() || until_ms > hold.until_ms && hold.until_ms.is_some() {
            hold.given = (moment.made, ttl_ms);
        }
        hold.until_ms = hold.until_ms.zip(until_ms).map(|(a, b)| a.max(b));
    }

    fn is_held(&self, key: u8, token: u64, at_ms: u64) -> bool {
        let hold = self.holds.get(&token).filter(|hold| hold.key == key);
        hold.is_some_and(|hold| hold.until_ms.is_none_or(|until_ms| at_ms <= until_ms))
    }

    fn replied(&mut self, ask: Ask, said: &Said, moment: Moment, verdict: &mut Verdict) {
        let (at_ms, reply) = (said.at_ms, &said.reply);
        let told = number(reply);
        match ask {
            Ask::Acquire { key, .. } => match reply {
                Reply::Granted(_) => {
                    let is_known = self.holds.get(&told).is_some_and(|hold| hold.key == key);
                    verdict.check(is_known, || format!("T3: {ask:?} got token {told}, which is not held"));
                    self.granted_again(said.caller, Some(ask), reply, at_ms, moment);
                }
                Reply::Null => {
                    let is_busy = self.holds.values().any(|hold| hold.key == key)
                        || self.closed.contains_key(&key)
                        || self.waits.iter().any(|wait| wait.key == key)
                        // Who was in line may have turned out to want nothing any more: its session is over.
                        || said.events.iter().any(|event| matches!(event, Event::Served { .. }));
                    verdict
                        .check(is_busy, || format!("P4: {ask:?} was told that it is busy, but it is free"));
                }
                _ => {}
            },
            Ask::Renew { key, token, ttl_ms } => {
                let is_held = self.is_held(key, token, at_ms);
                verdict.check(is_held != reply.is_error(), || {
                    format!("T3: {ask:?} at {at_ms} was answered {reply:?}; {:?}", self.holds.get(&token))
                });
                if let Some(hold) = self.holds.get_mut(&token).filter(|_| is_held) {
                    hold.until_ms = Some(at_ms + ttl_ms);
                    hold.given = (moment.made, ttl_ms);
                }
            }
            Ask::Release { key, token } => {
                let is_gone = !self.holds.contains_key(&token);
                if let Some(hold) = self.holds.get_mut(&token).filter(|_| !reply.is_error()) {
                    hold.count -= 1;
                    verdict.check(told == hold.count && hold.count > 0, || {
                        format!("T3: {ask:?} left {told} holds, not {}", hold.count)
                    });
                }
                verdict.check(is_gone || !reply.is_error() || !self.is_held(key, token, at_ms), || {
                    format!("T3: {ask:?} was refused: {reply:?}")
                });
            }
            Ask::Do { key, token } => {
                verdict.check(self.is_held(key, token, at_ms) != reply.is_error(), || {
                    format!("T3: {ask:?} at {at_ms} was answered {reply:?}")
                });
            }
            Ask::Revoke(key) | Ask::Delete(key) => {
                let left = self.holds.values().filter(|hold| hold.key == key).count();
                let new = said.events.iter().any(|event| matches!(event, Event::Lock(l) if l.end.is_none()));
                verdict.check(left == 0 || new, || format!("T3: {ask:?} left {left} holds"));
            }
            Ask::Open(ttl_ms) => {
                verdict.check(told > self.last_token, || format!("T1: session {told} was opened late"));
                self.last_token = self.last_token.max(told);
                self.sessions.insert(told, (ttl_ms, at_ms + ttl_ms));
            }
            Ask::Alive(id) => {
                let lives = self.sessions.get(&id).is_some_and(|(_, until_ms)| *until_ms >= at_ms);
                verdict.check(lives != reply.is_error(), || {
                    format!("N1: {ask:?} at {at_ms} was answered {reply:?}; {:?}", self.sessions.get(&id))
                });
                if let Some((ttl_ms, until_ms)) = self.sessions.get_mut(&id).filter(|_| lives) {
                    *until_ms = at_ms + *ttl_ms;
                }
            }
            Ask::Close(id) => {
                let session = self.sessions.remove(&id);
                self.seen.2 += u64::from(session.is_some());
                let lives = session.is_some_and(|(_, until_ms)| until_ms >= at_ms);
                verdict.check(lives == (told == 1), || format!("N1: {ask:?} was answered {reply:?}"));
                self.session_is_over(id, verdict);
            }
            Ask::Sweep => self.swept(at_ms, verdict),
            Ask::Flush | Ask::Reap | Ask::Unwait(_) | Ask::Forget(..) => {}
        }
    }

    fn session_is_over(&mut self, id: u64, verdict: &mut Verdict) {
        let left = self.holds.iter().find(|(_, hold)| hold.session == id);
        verdict.check(left.is_none(), || format!("N1: session {id} is over, but its lock is held: {left:?}"));
        let left = self.waits.iter().find(|wait| wait.session == id);
        verdict.check(left.is_none(), || format!("N1: session {id} is over, but {left:?} waits with it"));
    }

    /// After a sweep, nothing is held whose time is over.
    fn swept(&mut self, at_ms: u64, verdict: &mut Verdict) {
        let over: Vec<u64> =
            self.sessions.iter().filter(|(_, (_, until_ms))| *until_ms < at_ms).map(|(id, _)| *id).collect();
        for id in over {
            self.sessions.remove(&id);
            self.seen.2 += 1;
            self.session_is_over(id, verdict);
        }
        let late = self.holds.iter().find(|(_, hold)| hold.until_ms.is_some_and(|until| until < at_ms));
        verdict.check(late.is_none(), || format!("K2: after the sweep at {at_ms}, this is held: {late:?}"));
        self.closed.retain(|_, until_ms| *until_ms >= at_ms);
        let late = self.waits.iter().find(|wait| wait.until_ms <= at_ms);
        verdict.check(late.is_none(), || format!("P1: after the sweep at {at_ms}, {late:?} still waits"));
    }

    /// P4: who is first in line waits because of somebody, and nobody because of itself.
    fn no_idle_lock(&self, at_ms: u64, verdict: &mut Verdict) {
        for wait in self.waits.iter().filter(|wait| wait.until_ms > at_ms) {
            let is_its_own = |hold: &&Hold| {
                (hold.key, hold.owner) == (wait.key, wait.owner) && (wait.is_shared || !hold.is_shared)
            };
            let own = self.holds.values().find(is_its_own);
            verdict.check(own.is_none(), || {
                format!("P4: at {at_ms} {wait:?} waits, but its owner holds the lock: {own:?}")
            });
        }
        let mut looked = BTreeSet::new();
        for first in &self.waits {
            // Those behind one whose time is over wait for the next sweep.
            let is_closed = self.closed.contains_key(&first.key);
            if !looked.insert(first.key) || is_closed || first.until_ms <= at_ms {
                continue;
            }
            let mut holds = self.holds.values().filter(|hold| hold.key == first.key);
            let may_join = first.is_shared && holds.clone().all(|hold| hold.is_shared);
            verdict.check(holds.next().is_some() && !may_join, || {
                format!("P4: at {at_ms} {first:?} waits, but nobody is in its way")
            });
        }
    }

    /// A client hears that it has the lock, which it asked for at `asked_at` (true time).
    pub fn believes(&mut self, ask: Ask, token: u64, asked_at: u64, now: u64, verdict: &mut Verdict) {
        let (Ask::Acquire { key, ttl_ms, .. } | Ask::Renew { key, ttl_ms, .. }) = ask else { return };
        let is_shared = self.modes.get(&token).is_some_and(|is_shared| *is_shared);
        let Some(lasts) = self.lasts(ttl_ms) else { return };
        // What was taken away in between, and what the holder gave back, is not believed.
        if self.taken.contains(&token) || asked_at + lasts <= now {
            return;
        }
        let belief = Belief { key, is_shared, token, from: now, until: asked_at + lasts };
        for other in self.beliefs.iter().filter(|other| other.key == key && other.token != token) {
            let is_apart = belief.from >= other.until || other.from >= belief.until;
            verdict.check(is_apart || is_shared && other.is_shared, || {
                format!("K1: two clients hold a lock at the same time: {other:?} and {belief:?}")
            });
        }
        self.beliefs.push(belief);
    }

    /// A client asks for another time, which may be shorter.
    pub fn renews(&mut self, token: u64, ttl_ms: u64, now: u64) {
        let lasts = self.lasts(ttl_ms).unwrap_or(0);
        self.disbelieve(token, now + lasts);
    }

    /// The holder gives it back, or hears that it is gone.
    pub fn disbelieve(&mut self, token: u64, now: u64) {
        for belief in self.beliefs.iter_mut().filter(|belief| belief.token == token) {
            belief.until = belief.until.min(now);
        }
    }

    /// How many commands wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waits.len()
    }
}
