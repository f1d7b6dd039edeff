//! Who listens to what on this node. Messages come out of the log, so all nodes tell them in the same order.

use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use storage::commands::glob_matches;
use storage::reply::Reply;

/// Channels and patterns of one connection together, at most, and their bytes.
const COUNT_MAX: usize = 65_536;
const BYTES_MAX: usize = 16 << 20;

/// What the channels of locks begin with; the key follows.
pub const LOCK_CHANNEL: &[u8] = b"__lock__:";

/// A channel or a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Its name as it is.
    Channel,
    /// A glob pattern.
    Pattern,
}

/// What one connection listens to.
#[derive(Clone, Debug, Default)]
pub struct Subscribed {
    /// Channels.
    pub channels: BTreeSet<Bytes>,
    /// Patterns.
    pub patterns: BTreeSet<Bytes>,
    bytes: usize,
}

impl Subscribed {
    fn of(&mut self, kind: Kind) -> &mut BTreeSet<Bytes> {
        match kind {
            Kind::Channel => &mut self.channels,
            Kind::Pattern => &mut self.patterns,
        }
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// Whether one more of so many bytes is allowed.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.count() < COUNT_MAX && self.bytes + bytes <= BYTES_MAX
    }
}

/// Who listens, by channel and by pattern.
#[derive(Debug, Default)]
pub struct Subscriptions {
    channels: BTreeMap<Bytes, BTreeSet<u64>>,
    patterns: BTreeMap<Bytes, BTreeSet<u64>>,
}

impl Subscriptions {
    fn of(&mut self, kind: Kind) -> &mut BTreeMap<Bytes, BTreeSet<u64>> {
        match kind {
            Kind::Channel => &mut self.channels,
            Kind::Pattern => &mut self.patterns,
        }
    }

    /// A connection begins to listen.
    pub fn add(&mut self, connection: u64, mine: &mut Subscribed, kind: Kind, name: &Bytes) {
        if mine.of(kind).insert(name.clone()) {
            mine.bytes += name.len();
            self.of(kind).entry(name.clone()).or_default().insert(connection);
        }
    }

    /// It ends.
    pub fn remove(&mut self, connection: u64, mine: &mut Subscribed, kind: Kind, name: &Bytes) {
        if !mine.of(kind).remove(name) {
            return;
        }
        mine.bytes -= name.len();
        let all = self.of(kind);
        if let Some(listeners) = all.get_mut(name) {
            listeners.remove(&connection);
            if listeners.is_empty() {
                all.remove(name);
            }
        }
    }

    /// It ends for everything.
    pub fn remove_all(&mut self, connection: u64, mine: &mut Subscribed) {
        for kind in [Kind::Channel, Kind::Pattern] {
            for name in mine.of(kind).clone() {
                self.remove(connection, mine, kind, &name);
            }
        }
    }

    /// Shows `visit` each listener of a channel with the message in its form: those of the channel first, then those of patterns.
    pub fn publish(&self, channel: &Bytes, message: &Bytes, visit: &mut dyn FnMut(u64, Reply)) {
        let bulk = |bytes: &Bytes| Reply::Bulk(bytes.clone());
        for listener in self.channels.get(channel).into_iter().flatten() {
            visit(*listener, Reply::Push(vec![Reply::bulk(b"message"), bulk(channel), bulk(message)]));
        }
        for (pattern, listeners) in self.patterns.iter().filter(|(pattern, _)| glob_matches(pattern, channel))
        {
            for listener in listeners {
                let parts = vec![Reply::bulk(b"pmessage"), bulk(pattern), bulk(channel), bulk(message)];
                visit(*listener, Reply::Push(parts));
            }
        }
    }

    /// Whether somebody may listen to what happens to a lock: to its channel, or to a pattern, whatever it matches.
    #[must_use]
    pub fn hear_locks(&self) -> bool {
        let from = self.channels.range(Bytes::from_static(LOCK_CHANNEL)..).next();
        !self.patterns.is_empty() || from.is_some_and(|(channel, _)| channel.starts_with(LOCK_CHANNEL))
    }

    /// How many would get a message.
    #[must_use]
    pub fn receivers(&self, channel: &[u8]) -> usize {
        let by_pattern = self.patterns.iter().filter(|(pattern, _)| glob_matches(pattern, channel));
        self.listeners(channel) + by_pattern.map(|(_, listeners)| listeners.len()).sum::<usize>()
    }

    /// How many listen to a channel by its name.
    #[must_use]
    pub fn listeners(&self, channel: &[u8]) -> usize {
        self.channels.get(channel).map_or(0, BTreeSet::len)
    }

    /// The channels that somebody listens to, by name.
    pub fn channels(&self) -> impl Iterator<Item = &Bytes> {
        self.channels.keys()
    }

    /// How many patterns there are.
    #[must_use]
    pub fn patterns(&self) -> usize {
        self.patterns.len()
    }
}
