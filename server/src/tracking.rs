//! CLIENT TRACKING: which clients of this node may have a copy of which key, so that they hear when it changes.
//!
//! Every node derives every change when it applies the log, so a write through any node reaches the caches of all. The table is this node's own.
//!
//! * I1: a key is remembered in the same step in which it is read, so no change falls between.
//! * I2: a message about a key never overtakes a reply that was made before it (`connection::pushes` keeps this one).
//! * I3: what leaves the table without a change (it is full) is told as if it had changed.
//! * I4: changes of a turn are told before the turn's answers: who hears of a write by whatever way has heard before that its copy is old. Only who
//!   wrote gets its reply first, as in Redis.

use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// A change that the log brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key; nothing: all keys.
    pub key: Option<Bytes>,
    /// The connection of this node whose command it was.
    pub author: Option<u64>,
}

/// What is told to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The connection that tracks.
    pub client: u64,
    /// The keys; nothing: all of them.
    pub keys: Option<Vec<Bytes>>,
}

/// Which reads a connection may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All.
    All,
    /// Those behind CLIENT CACHING YES.
    OptIn,
    /// All but those behind CLIENT CACHING NO.
    OptOut,
    /// Nothing is remembered: it hears of every change of keys with certain beginnings.
    Broadcast,
}

/// How a connection tracks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracker {
    /// Which reads.
    pub mode: Mode,
    /// The connection that is told instead.
    pub redirect: Option<u64>,
    /// That connection is gone.
    pub is_broken: bool,
    /// Its own writes are not told.
    pub skips_own: bool,
    /// The beginnings, for [`Mode::Broadcast`].
    pub prefixes: BTreeSet<Bytes>,
}

#[derive(Debug, Default)]
struct Known {
    clients: BTreeSet<u64>,
    /// When it came into the table.
    order: u64,
}

/// Everybody who tracks, and what they may have.
#[derive(Debug, Default)]
pub struct Tracking {
    clients: BTreeMap<u64, Tracker>,
    keys: BTreeMap<Bytes, Known>,
    /// The keys, oldest first.
    order: BTreeMap<u64, Bytes>,
    next: u64,
    items: usize,
    prefixes: BTreeMap<Bytes, BTreeSet<u64>>,
    /// What changed in the turn whose answers are being given.
    turn: BTreeSet<Bytes>,
    is_flushed: bool,
    /// Told when the answers are given.
    later: Vec<Notice>,
}

/// Two prefixes overlap if one begins with the other: a change would be told twice.
fn overlap(a: &[u8], b: &[u8]) -> bool {
    a.starts_with(b) || b.starts_with(a)
}

fn show(prefix: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(prefix)
}

impl Tracking {
    /// How a connection tracks, if it does.
    #[must_use]
    pub fn of(&self, client: u64) -> Option<&Tracker> {
        self.clients.get(&client)
    }

    /// Whether nobody tracks.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.clients.is_empty()
    }

    /// Clients, keys, clients of all keys together, and prefixes: what INFO tells.
    #[must_use]
    pub fn counts(&self) -> [usize; 4] {
        [self.clients.len(), self.keys.len(), self.items, self.prefixes.len()]
    }

    /// CLIENT TRACKING ON.
    ///
    /// # Errors
    /// The text that the client gets.
    pub fn start(&mut self, client: u64, mut tracker: Tracker, prefixes: &[&[u8]]) -> Result<(), String> {
        let rule = "Prefixes for a single client must not overlap.";
        if let Some(old) = self.clients.get(&client) {
            if (old.mode == Mode::Broadcast) != (tracker.mode == Mode::Broadcast) {
                return Err("ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with \
                            a different mode."
                    .into());
            }
            let switches =
                matches!((old.mode, tracker.mode), (Mode::OptIn, Mode::OptOut) | (Mode::OptOut, Mode::OptIn));
            if switches {
                return Err("ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with \
                            a different mode."
                    .into());
            }
            for new in prefixes {
                if let Some(known) = old.prefixes.iter().find(|known| overlap(known, new)) {
                    let (new, known) = (show(new), show(known));
                    return Err(format!(
                        "ERR Prefix '{new}' overlaps with an existing prefix '{known}'. {rule}"
                    ));
                }
            }
            tracker.prefixes.clone_from(&old.prefixes);
        }
        for (n, a) in prefixes.iter().enumerate() {
            if let Some(b) = prefixes[n + 1..].iter().find(|b| overlap(a, b)) {
                let (a, b) = (show(a), show(b));
                return Err(format!("ERR Prefix '{a}' overlaps with another provided prefix '{b}'. {rule}"));
            }
        }
        let new = prefixes.iter().map(|prefix| Bytes::copy_from_slice(prefix));
        tracker.prefixes.extend(new);
        if tracker.mode == Mode::Broadcast && tracker.prefixes.is_empty() {
            tracker.prefixes.insert(Bytes::new());
        }
        for prefix in &tracker.prefixes {
            self.prefixes.entry(prefix.clone()).or_default().insert(client);
        }
        self.clients.insert(client, tracker);
        Ok(())
    }

    /// It tracks no more. What the table says about it is found out when a key changes.
    pub fn stop(&mut self, client: u64) {
        let Some(tracker) = self.clients.remove(&client) else { return };
        for prefix in tracker.prefixes {
            if let Some(clients) = self.prefixes.get_mut(&prefix) {
                clients.remove(&client);
                if clients.is_empty() {
                    self.prefixes.remove(&prefix);
                }
            }
        }
        if self.is_idle() {
            // Nothing is told to this node any more, so what it remembers would not be kept true.
            self.forget_keys();
        }
    }

    /// Marks the connection that should be told as gone.
    pub fn broken(&mut self, client: u64) {
        if let Some(tracker) = self.clients.get_mut(&client) {
            tracker.is_broken = true;
        }
    }

    fn forget_keys(&mut self) {
        self.keys.clear();
        self.order.clear();
        self.items = 0;
    }

    /// Whether a read counts, after what CLIENT CACHING said of it.
    #[must_use]
    pub fn counts_read(&self, client: u64, is_named: bool) -> bool {
        self.clients.get(&client).is_some_and(|tracker| match tracker.mode {
            Mode::All => true,
            Mode::OptIn => is_named,
            Mode::OptOut => !is_named,
            Mode::Broadcast => false,
        })
    }

    /// A connection reads a key now.
    pub fn remember(&mut self, client: u64, key: &[u8]) {
        let Tracking { keys, order, next, items, clients, .. } = self;
        let entry = Bytes::copy_from_slice(key);
        let known = keys.entry(entry.clone()).or_insert_with(|| {
            *next += 1;
            order.insert(*next, entry);
            Known { clients: BTreeSet::new(), order: *next }
        });
        if known.clients.insert(client) {
            *items += 1;
            // Connections come and go while the key stays as it is.
            if known.clients.len().is_power_of_two() {
                let before = known.clients.len();
                known.clients.retain(|client| clients.contains_key(client));
                *items -= before - known.clients.len();
            }
        }
    }

    /// The same for a read that ran somewhere in the turn whose answers are being given: what may have changed behind it is told at once.
    pub fn remember_from_turn(&mut self, client: u64, keys: &[Bytes]) {
        for key in keys.iter().collect::<BTreeSet<_>>() {
            if self.clients.contains_key(&client) {
                self.remember(client, key);
                if self.is_flushed || self.turn.contains(key) {
                    let keys = Some(vec![key.clone()]);
                    let notice = Notice { client, keys };
                    if !self.later.contains(&notice) {
                        self.later.push(notice);
                    }
                }
            }
        }
    }

    fn forget(&mut self, key: &[u8]) -> BTreeSet<u64> {
        let Some(known) = self.keys.remove(key) else { return BTreeSet::new() };
        self.order.remove(&known.order);
        self.items -= known.clients.len();
        known.clients
    }

    /// Drops the oldest keys beyond `keys_max` (0: no limit); says who must hear.
    pub fn shrink(&mut self, keys_max: usize) -> Vec<Notice> {
        let mut notices = Vec::new();
        while keys_max > 0
            && self.keys.len() > keys_max
            && let Some((_, key)) = self.order.pop_first()
        {
            let clients = self.forget(&key);
            notices
                .extend(clients.into_iter().map(|client| Notice { client, keys: Some(vec![key.clone()]) }));
        }
        notices
    }

    /// A turn's changes, before its answers; says who must hear at once.
    pub fn begin_turn(&mut self, changes: Vec<Change>) -> Vec<Notice> {
        let mut notices = Vec::new();
        // By connection and prefix, so that one message has all keys of a prefix; those that it wrote itself apart.
        let mut told: BTreeMap<(u64, Bytes, bool), Vec<Bytes>> = BTreeMap::new();
        for Change { key, author } in changes {
            let Some(key) = key else {
                self.is_flushed = true;
                self.forget_keys();
                for client in self.clients.keys() {
                    let list = if author == Some(*client) { &mut self.later } else { &mut notices };
                    list.push(Notice { client: *client, keys: None });
                }
                continue;
            };
            for client in self.forget(&key) {
                let Some(tracker) = self.clients.get(&client) else { continue };
                let is_own = author == Some(client);
                if tracker.mode == Mode::Broadcast || (is_own && tracker.skips_own) {
                    continue;
                }
                let list = if is_own { &mut self.later } else { &mut notices };
                list.push(Notice { client, keys: Some(vec![key.clone()]) });
            }
            for (prefix, clients) in self.prefixes.iter().filter(|(prefix, _)| key.starts_with(prefix)) {
                for client in clients {
                    let is_own = author == Some(*client);
                    if is_own && self.clients.get(client).is_some_and(|tracker| tracker.skips_own) {
                        continue;
                    }
                    let keys = told.entry((*client, prefix.clone(), is_own)).or_default();
                    if !keys.contains(&key) {
                        keys.push(key.clone());
                    }
                }
            }
            self.turn.insert(key);
        }
        for ((client, _, is_own), keys) in told {
            let list = if is_own { &mut self.later } else { &mut notices };
            list.push(Notice { client, keys: Some(keys) });
        }
        notices
    }

    /// The turn's answers are given; says who must hear now.
    pub fn end_turn(&mut self) -> Vec<Notice> {
        self.turn.clear();
        self.is_flushed = false;
        std::mem::take(&mut self.later)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn tracker(mode: Mode) -> Tracker {
        Tracker { mode, redirect: None, is_broken: false, skips_own: false, prefixes: BTreeSet::new() }
    }

    fn change(key: &str, author: Option<u64>) -> Change {
        Change { key: Some(Bytes::copy_from_slice(key.as_bytes())), author }
    }

    fn shown(notices: &[Notice]) -> Vec<String> {
        let keys = |keys: &Option<Vec<Bytes>>| match keys {
            None => "all".to_string(),
            Some(keys) => keys.iter().map(|key| show(key).into_owned()).collect::<Vec<_>>().join(","),
        };
        notices.iter().map(|notice| format!("{} {}", notice.client, keys(&notice.keys))).collect()
    }

    #[test]
    fn a_key_is_told_once_and_its_author_last() {
        let mut tracking = Tracking::default();
        for client in 1..=2 {
            tracking.start(client, tracker(Mode::All), &[]).unwrap();
            tracking.remember(client, b"k");
        }
        assert_eq!(shown(&tracking.begin_turn(vec![change("k", Some(1)), change("k", None)])), ["2 k"]);
        assert_eq!(shown(&tracking.end_turn()), ["1 k"]);
        assert_eq!(tracking.counts(), [2, 0, 0, 0]);
        assert_eq!(tracking.begin_turn(vec![change("k", None)]), []);
    }

    #[test]
    fn what_changed_in_the_turn_of_a_transaction_is_told_at_once() {
        let mut tracking = Tracking::default();
        tracking.start(1, tracker(Mode::All), &[]).unwrap();
        tracking.begin_turn(vec![change("k", None)]);
        tracking.remember_from_turn(1, &[Bytes::from_static(b"k"), Bytes::from_static(b"other")]);
        assert_eq!(shown(&tracking.end_turn()), ["1 k"]);
        assert_eq!(tracking.counts(), [1, 2, 2, 0]);
    }

    #[test]
    fn what_falls_out_of_the_table_is_told() {
        let mut tracking = Tracking::default();
        tracking.start(1, tracker(Mode::All), &[]).unwrap();
        ["b", "a", "c"].iter().for_each(|key| tracking.remember(1, key.as_bytes()));
        assert_eq!(tracking.shrink(0), []);
        assert_eq!(shown(&tracking.shrink(1)), ["1 b", "1 a"]);
        assert_eq!(tracking.counts(), [1, 1, 1, 0]);
        tracking.stop(1);
        assert_eq!(tracking.counts(), [0; 4]);
    }

    #[test]
    fn connections_that_are_gone_take_no_room_for_ever() {
        let mut tracking = Tracking::default();
        tracking.start(1, tracker(Mode::All), &[]).unwrap();
        tracking.remember(1, b"k");
        for client in 2..1_000 {
            tracking.start(client, tracker(Mode::All), &[]).unwrap();
            tracking.remember(client, b"k");
            tracking.stop(client);
        }
        assert!(tracking.counts()[2] < 10, "{:?}", tracking.counts());
    }
}
