//! A machine with a clock, and replies as text.

use crate::commands::{Args, Handler, lookup_any};
use crate::machine::layout;
use crate::machine::{Caller, Event, Machine, Stamp, Txn, encode_command};
use crate::reply::Reply;
use crate::row::{RowKey, RowRange, RowValue};
use crate::store::{MemoryStore, Order, Rows};
use bytes::Bytes;
use std::ops::ControlFlow;

/// A machine in which every command has a slot of its own.
#[derive(Default)]
pub(crate) struct Lab {
    pub(crate) machine: Machine<MemoryStore>,
    pub(crate) now_ms: u64,
    pub(crate) db: u8,
}

impl Lab {
    /// Begins at second 1,000.
    pub(crate) fn new() -> Lab {
        Lab { now_ms: 1_000_000, ..Lab::default() }
    }

    pub(crate) fn stamp(&self) -> Stamp {
        Stamp { slot: self.machine.applied() + 1, index: 0, at_ms: self.now_ms }
    }

    pub(crate) fn apply(&mut self, payload: &Bytes) -> Reply {
        let stamp = self.stamp();
        let caller = Caller { node: 1, incarnation: 1, seq: stamp.slot };
        let reply = self.machine.apply_for(&stamp, caller, payload);
        self.machine.finish_slot(stamp.slot).unwrap();
        reply
    }

    /// Runs a command as a node would: a reading one on a view, a writing one through the log.
    pub(crate) fn run(&mut self, command: &[&[u8]]) -> Reply {
        match lookup_any(command[0]) {
            Some(spec) if spec.arity.allows(command.len() - 1) && !spec.is_write() => {
                let Handler::Read(handler) = spec.handler else { unreachable!() };
                let view = self.machine.view(self.now_ms);
                let reply = handler(&view, &Args::new(self.db, &command[1..]));
                view.check().unwrap();
                reply
            }
            _ => self.apply(&encode_command(self.db, command)),
        }
    }

    /// What was told since the last call, one line each: `number reply` of a wait (the number is that of the command in the log), or what
    /// happened to a lock.
    pub(crate) fn told(&mut self) -> Vec<String> {
        let tell = |event: Event| match event {
            Event::Served { caller, reply, .. } => Some(format!("{} {}", caller.seq, show(&reply))),
            Event::Lock(lock) => {
                Some(format!("{} {} {}", String::from_utf8_lossy(&lock.key), lock.name(), lock.token))
            }
            Event::Published { channel, message } => Some(format!("{channel:?} {message:?}")),
            Event::Changed { key, .. } => Some(format!("changed {key:?}")),
            Event::Flushed { .. } => Some("flushed".into()),
            Event::Undo { .. } => None,
        };
        self.machine.take_events().into_iter().filter_map(tell).collect()
    }

    /// Lets time pass and sweeps, as a master does.
    pub(crate) fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        self.apply(&crate::commands::sweep(10_000));
    }

    /// Runs a command given as words; `""` is an empty word.
    pub(crate) fn say(&mut self, command: &str) -> String {
        let words: Vec<_> = command
            .split_whitespace()
            .map(|word| if word == "\"\"" { &[][..] } else { word.as_bytes() })
            .collect();
        show(&self.run(&words))
    }

    /// Changes rows as a handler could.
    pub(crate) fn change(&mut self, work: impl FnOnce(&mut Txn<'_>)) {
        let stamp = self.stamp();
        let mut txn = Txn::new(&self.machine.store, &self.machine.meta, &stamp, Vec::new());
        work(&mut txn);
        let (mut batch, meta, _) = txn.finish().unwrap();
        crate::store::Store::stage(&mut self.machine.store, &mut batch).unwrap();
        self.machine.meta = meta.unwrap_or(self.machine.meta);
        self.machine.finish_slot(stamp.slot).unwrap();
    }

    /// Makes a hash with `members` fields.
    pub(crate) fn make_hash(&mut self, key: &str, members: u8) {
        let fields: Vec<_> = (0..members).map(|member| format!("f{member} {member}")).collect();
        assert_eq!(self.say(&format!("HSET {key} {}", fields.join(" "))), members.to_string());
    }

    /// All rows but the machine's numbers and the memory of deletions.
    pub(crate) fn data_rows(&self) -> Vec<(RowKey, RowValue)> {
        rows(&self.machine.store)
            .into_iter()
            .filter(|(key, _)| matches!(key.borrow().first() >> 56, 0x10..=0x13))
            .collect()
    }

    /// Checks what the keyspace promises about its rows (D1, D2).
    pub(crate) fn check_invariants(&self) {
        let meta = &self.machine.meta;
        let mut expected_deadlines = Vec::new();
        let mut expected_locks = Vec::new();
        let mut young = Vec::new();
        for database in &meta.databases {
            let (mut keys, mut expiring) = (0, 0);
            for (row, value) in rows_in(&self.machine.store, &layout::keys_from(database.generation, 0)) {
                let header = layout::Header::parse(&value).unwrap();
                let row = row.borrow();
                assert_eq!(row.second(), layout::key_hash(row.tail()));
                keys += 1;
                self.check_members(&header, &value);
                expiring += u64::from(header.deadline_ms.is_some());
                if header.is_young {
                    assert_eq!(header.kind, layout::Kind::Lock);
                    young.push((header, database.generation, row.tail().to_vec()));
                } else if header.kind == layout::Kind::Lock {
                    expected_locks.push(layout::lock_row(
                        header.deadline_ms,
                        database.generation,
                        row.tail(),
                    ));
                } else if let Some(deadline_ms) = header.deadline_ms {
                    let row =
                        layout::deadline_row(deadline_ms, database.generation, row.second(), row.tail());
                    expected_deadlines.push(row);
                }
            }
            assert_eq!((database.keys, database.expiring), (keys, expiring), "D2");
        }
        let pages = rows_in(&self.machine.store, &layout::pages());
        for (header, generation, key) in young {
            let names_it = |(row, page): &&(RowKey, RowValue)| {
                let (due_ms, slot) = layout::parse_page(row.borrow()).unwrap();
                slot == header.version
                    && header.deadline_ms.is_none_or(|deadline_ms| due_ms < deadline_ms)
                    && crate::machine::locks::names(page).any(|name| name == (generation, &key[..]))
            };
            assert_eq!(pages.iter().filter(names_it).count(), 1, "T5: {}", key.escape_ascii());
        }
        expected_locks.sort();
        let locks = rows_in(&self.machine.store, &RowRange::prefix(&[layout::LOCKS])).into_iter();
        assert_eq!(locks.map(|(row, _)| row).collect::<Vec<_>>(), expected_locks, "T4");
        expected_deadlines.sort();
        let is_live = |row: &RowKey| {
            let (_, generation, ..) = layout::parse_deadline(row.borrow()).unwrap();
            meta.databases.iter().any(|database| database.generation == generation)
        };
        let deadlines = rows_in(&self.machine.store, &layout::deadlines()).into_iter().map(|(row, _)| row);
        assert_eq!(deadlines.filter(is_live).collect::<Vec<_>>(), expected_deadlines, "D1");
        crate::machine::waits::check_rows(&self.machine.store, meta.waiting);
    }
}

impl Lab {
    /// A key with members has some, and its body says how many.
    fn check_members(&self, header: &layout::Header, value: &RowValue) {
        let Some(object) = header.object else { return };
        let count = rows_in(&self.machine.store, &layout::members(object)).len() as u64;
        let body = &value[header.body_at + 8..];
        assert_eq!(crate::varint::take(&mut &*body), Some(count), "the number of members");
        assert!(count > 0, "a key without members");
    }
}

/// All rows.
pub(crate) fn rows(rows: &dyn Rows) -> Vec<(RowKey, RowValue)> {
    rows_in(rows, &RowRange::all())
}

fn rows_in(rows: &dyn Rows, range: &RowRange) -> Vec<(RowKey, RowValue)> {
    let mut found = Vec::new();
    rows.scan(range, Order::Ascending, &mut |key, value| {
        found.push((key.to_owned(), value.clone()));
        ControlFlow::Continue(())
    })
    .unwrap();
    found
}

/// A reply as redis-cli would show it, on one line.
pub(crate) fn show(reply: &Reply) -> String {
    let list = |items: &[Reply]| format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(" "));
    match reply {
        Reply::Ok => "OK".into(),
        Reply::Simple(text) => format!("+{}", String::from_utf8_lossy(text)),
        Reply::Error(text) => format!("-{}", String::from_utf8_lossy(text)),
        Reply::Integer(n) => n.to_string(),
        Reply::Bulk(bytes) => format!("\"{}\"", bytes.escape_ascii()),
        Reply::Null => "nil".into(),
        Reply::NullArray => "nil*".into(),
        Reply::Waiting(_) => "waiting".into(),
        Reply::Granted(granted) => show(&Reply::Array(granted.pair().map(Reply::Integer).to_vec())),
        Reply::Array(items) => list(items),
        Reply::Map(pairs) => format!("{{{}}}", pairs_as_text(pairs)),
        Reply::Pairs(pairs) => format!("<{}>", pairs_as_text(pairs)),
        other => format!("{other:?}"),
    }
}

fn pairs_as_text(pairs: &[(Reply, Reply)]) -> String {
    let mut texts: Vec<_> =
        pairs.iter().map(|(field, value)| format!("{} {}", show(field), show(value))).collect();
    // Fields have no order that a client may count on.
    texts.sort();
    texts.join(", ")
}
