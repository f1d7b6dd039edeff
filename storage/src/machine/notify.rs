//! What happens to keys, told to those who want to know: keyspace notifications as in Redis, and changes for clients that cache.
//!
//! Every node derives the same events when it applies the log, in the log's order; what it does not want to hear ([`Interest`]) is not made at all, which
//! costs a comparison. So the interest is no part of the replicated state, changes neither rows nor replies, and may differ between nodes: a node hears a
//! part of the same sequence.
//!
//! An event is told after the change that it is about, and not at all if its command fails. Names and order are those of Redis 7 (a test compares them).

use super::events::{Caller, Event};
use super::keyspace::Place;
use super::txn::Txn;
use bytes::Bytes;
use std::fmt;

/// What an event is about. The number is its bit in [`Notify`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Class {
    /// Commands for keys of any type: DEL, EXPIRE, RENAME …
    Generic = 1,
    /// Strings.
    String = 1 << 1,
    /// Lists.
    List = 1 << 2,
    /// Sets.
    Set = 1 << 3,
    /// Hashes.
    Hash = 1 << 4,
    /// Sorted sets.
    SortedSet = 1 << 5,
    /// A key's time passed.
    Expired = 1 << 6,
    /// A key was removed for want of memory: never.
    Evicted = 1 << 7,
    /// Streams.
    Stream = 1 << 8,
    /// Modules: never.
    Module = 1 << 9,
    /// A key is there that was not.
    New = 1 << 10,
    /// A key was looked for that is not there.
    Miss = 1 << 11,
}

const KEYSPACE: u16 = 1 << 12;
const KEYEVENT: u16 = 1 << 13;
/// What `A` stands for: everything but `m` and `n`.
const ALL: u16 = Class::New as u16 - 1;

/// The letters of `notify-keyspace-events`, in the order in which CONFIG GET shows them.
const LETTERS: [(char, u16); 14] = [
    ('g', Class::Generic as u16),
    ('$', Class::String as u16),
    ('l', Class::List as u16),
    ('s', Class::Set as u16),
    ('h', Class::Hash as u16),
    ('z', Class::SortedSet as u16),
    ('x', Class::Expired as u16),
    ('e', Class::Evicted as u16),
    ('t', Class::Stream as u16),
    ('d', Class::Module as u16),
    ('n', Class::New as u16),
    ('K', KEYSPACE),
    ('E', KEYEVENT),
    ('m', Class::Miss as u16),
];

/// Which notifications are wanted: the value of `notify-keyspace-events`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notify(u16);

impl Notify {
    /// The setting as Redis writes it. Nothing if a letter is unknown.
    #[must_use]
    pub fn parse(text: &str) -> Option<Notify> {
        let bit = |letter| match letter {
            'A' => Some(ALL),
            _ => LETTERS.iter().find(|(known, _)| *known == letter).map(|(_, bit)| *bit),
        };
        text.chars().try_fold(0, |bits, letter| Some(bits | bit(letter)?)).map(Notify)
    }

    /// Whether events of a class are told at all, on either kind of channel.
    #[inline]
    #[must_use]
    pub const fn wants(self, class: Class) -> bool {
        self.0 & class as u16 != 0 && self.0 & (KEYSPACE | KEYEVENT) != 0
    }

    /// The messages of one event, as channel and text: `__keyspace@db__:key` says the event, then `__keyevent@db__:event` says the key.
    pub fn messages(
        self,
        class: Class,
        event: &'static str,
        db: u8,
        key: &[u8],
    ) -> impl Iterator<Item = (Bytes, Bytes)> {
        let is_on = |kind| self.wants(class) && self.0 & kind != 0;
        let space = is_on(KEYSPACE).then(|| {
            let channel = [format!("__keyspace@{db}__:").as_bytes(), key].concat();
            (Bytes::from(channel), Bytes::from_static(event.as_bytes()))
        });
        let event = is_on(KEYEVENT)
            .then(|| (Bytes::from(format!("__keyevent@{db}__:{event}")), Bytes::copy_from_slice(key)));
        space.into_iter().chain(event)
    }
}

impl fmt::Display for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_all = self.0 & ALL == ALL;
        if has_all {
            f.write_str("A")?;
        }
        for (letter, bit) in LETTERS {
            // With all classes Redis does not show `n` either.
            let is_shown = !has_all || bit & (ALL | Class::New as u16) == 0;
            if is_shown && self.0 & bit != 0 {
                write!(f, "{letter}")?;
            }
        }
        Ok(())
    }
}

/// What a node wants to hear of what happens to keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// Keyspace notifications.
    pub notify: Notify,
    /// Every change of a key: some client of the node caches.
    pub changes: bool,
    /// Everything that happens to locks: somebody listens. Otherwise only what this node's clients lose.
    pub locks: bool,
    /// Which node this is, in which of its lives: how others' commands could be undone is their business. Nothing: everybody's commands are its own.
    pub me: Option<(u64, u64)>,
}

impl Default for Interest {
    /// What simulators and tests want: everything about locks, whoever's they are.
    fn default() -> Interest {
        Interest { notify: Notify::default(), changes: false, locks: true, me: None }
    }
}

impl Interest {
    /// Whether a command came through this node, in this life.
    #[must_use]
    pub fn is_mine(&self, caller: Caller) -> bool {
        self.me.is_none_or(|me| me == (caller.node, caller.incarnation))
    }
}

impl Txn<'_> {
    /// Says what happened to a key.
    #[inline]
    pub(crate) fn notify(&mut self, class: Class, event: &'static str, place: &Place<'_>) {
        if self.interest.notify.wants(class) {
            self.notify_key(class, event, place.db, place.key);
        }
    }

    /// The same, and that the key is no more if nothing is left in it.
    pub(crate) fn notify_left(
        &mut self,
        class: Class,
        event: &'static str,
        place: &Place<'_>,
        is_gone: bool,
    ) {
        self.notify(class, event, place);
        if is_gone {
            self.notify(Class::Generic, "del", place);
        }
    }

    /// A key that a command wants to read is not there. Only for commands that write: those that read are watched by their view.
    pub(crate) fn notify_miss(&mut self, place: &Place<'_>) {
        if place.old.is_none() && self.interest.notify.wants(Class::Miss) {
            self.notify_missed(place.db, place.key);
        }
    }

    #[cold]
    pub(super) fn notify_missed(&mut self, db: u8, key: &[u8]) {
        self.run.missed.push((db, Bytes::copy_from_slice(key)));
        self.notify_key(Class::Miss, "keymiss", db, key);
    }

    /// The command failed: nothing happened, but keys were looked for in vain.
    pub(super) fn tell_only_misses(&mut self) {
        self.run.events.clear();
        for (db, key) in std::mem::take(&mut self.run.missed) {
            self.notify_missed(db, &key);
        }
    }

    #[cold]
    fn notify_key(&mut self, class: Class, event: &'static str, db: u8, key: &[u8]) {
        for (channel, message) in self.interest.notify.messages(class, event, db, key) {
            self.tell(Event::Published { channel, message });
        }
    }

    /// A key was written or removed: those who wait at it may be served, those who have a copy of it must hear.
    #[inline]
    pub(super) fn changed(&mut self, place: &Place<'_>) {
        self.touch(place.db, place.key);
        if self.interest.changes {
            let key = Bytes::copy_from_slice(place.key);
            self.tell(Event::Changed { caller: self.run.caller, key });
        }
    }

    /// The same for all keys of a database.
    pub(super) fn database_changed(&mut self, db: u8) {
        self.touch_database(db);
        // Once, however many databases a command empties.
        if self.interest.changes && !matches!(self.run.events.last(), Some(Event::Flushed { .. })) {
            self.tell(Event::Flushed { caller: self.run.caller });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_is_read_and_shown_as_redis_does() {
        for (set, shown) in [
            ("KEA", "AKE"),
            ("AKEmn", "AKEm"),
            ("g$", "g$"),
            ("Kdtexzhsl$g", "AK"),
            ("nmKE", "nKEm"),
            ("Ex", "xE"),
            ("lKE$m", "$lKEm"),
            ("gxE", "gxE"),
            ("", ""),
        ] {
            assert_eq!(Notify::parse(set).unwrap().to_string(), shown, "{set}");
        }
        assert_eq!(Notify::parse("Kq"), None);
    }

    #[test]
    fn nothing_is_told_without_a_kind_of_channel_or_the_class() {
        let told = |set: &str, class| Notify::parse(set).unwrap().messages(class, "set", 3, b"k").count();
        assert_eq!(
            (told("A", Class::String), told("KEg", Class::String), told("KEA", Class::Miss)),
            (0, 0, 0)
        );
        assert_eq!((told("K$", Class::String), told("KEA", Class::String)), (1, 2));
        let messages: Vec<_> =
            Notify::parse("KE$").unwrap().messages(Class::String, "set", 3, b"k").collect();
        let text = |text: &'static str| Bytes::from_static(text.as_bytes());
        assert_eq!(messages[0], (text("__keyspace@3__:k"), text("set")));
        assert_eq!(messages[1], (text("__keyevent@3__:set"), text("k")));
    }
}
