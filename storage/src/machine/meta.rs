//! The machine's own numbers: which generation each database is, how many keys it has, the counters.
//!
//! They change with almost every command, so they are kept here and written as rows once per slot, in the slot's commit (M1: rows
//! at a slot boundary say the same as this).

use super::layout::meta_row;
use crate::planted::{self, Bug};
use crate::row::{Batch, Change, RowValue};
use crate::store::{Rows, StoreError};
use crate::varint;

/// How many databases there are.
pub const DATABASES: usize = 16;

const APPLIED: u64 = 1;
const TOKENS: u64 = 2;
const OBJECTS: u64 = 3;
const GENERATIONS: u64 = 4;
const WAITS: u64 = 5;
const WAITING: u64 = 6;
const FIRST_DATABASE: u64 = 0x100;

/// A database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Database {
    /// Under which its keys' rows are.
    pub(crate) generation: u64,
    /// How many keys there are, those whose time is over but which nobody removed yet included.
    pub keys: u64,
    /// How many of them have a deadline.
    pub expiring: u64,
    /// The slot of the last FLUSHDB or SWAPDB: every key changed then.
    pub(crate) changed_at: u64,
}

/// The numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The last slot that is finished.
    pub applied: u64,
    /// The last fencing or task token given out. Survives DEL and FLUSHALL.
    pub tokens: u64,
    /// The last object id given out.
    pub(crate) objects: u64,
    /// The last generation given out.
    pub(crate) generations: u64,
    /// The last number given to a wait.
    pub(crate) waits: u64,
    /// How many commands wait.
    pub waiting: u64,
    /// The databases.
    pub databases: [Database; DATABASES],
}

impl Default for Meta {
    fn default() -> Meta {
        let mut databases = [Database { generation: 0, keys: 0, expiring: 0, changed_at: 0 }; DATABASES];
        let mut generations = 0;
        for database in &mut databases {
            generations += 1;
            database.generation = generations;
        }
        Meta { applied: 0, tokens: 0, objects: 0, generations, waits: 0, waiting: 0, databases }
    }
}

fn value(numbers: &[u64]) -> RowValue {
    let mut bytes = Vec::new();
    numbers.iter().for_each(|number| varint::put(&mut bytes, *number));
    RowValue::new(&bytes)
}

impl Meta {
    fn counters(&self) -> [(u64, u64); 6] {
        [
            (APPLIED, self.applied),
            (TOKENS, self.tokens),
            (OBJECTS, self.objects),
            (GENERATIONS, self.generations),
            (WAITS, self.waits),
            (WAITING, self.waiting),
        ]
    }

    /// Appends the rows of what differs from `saved`.
    pub(crate) fn changes_since(&self, saved: &Meta, batch: &mut Batch) {
        let mut put =
            |number, value| batch.push(Change { key: meta_row(number).to_owned(), value: Some(value) });
        for ((number, now), (_, before)) in self.counters().into_iter().zip(saved.counters()) {
            if now != before {
                put(number, value(&[now]));
            }
        }
        for ((number, now), before) in (FIRST_DATABASE..).zip(&self.databases).zip(&saved.databases) {
            if now != before {
                put(number, value(&[now.generation, now.keys, now.expiring, now.changed_at]));
            }
        }
    }

    /// What the rows say.
    pub(crate) fn load(rows: &dyn Rows) -> Result<Meta, StoreError> {
        let mut meta = Meta::default();
        let read = |number: u64, into: &mut [&mut u64]| -> Result<(), StoreError> {
            let Some(value) = rows.get(meta_row(number))? else { return Ok(()) };
            let mut rest = value.as_slice();
            for field in into {
                **field = varint::take(&mut rest).ok_or_else(|| {
                    StoreError::new(format!("row {number} of the machine's numbers is damaged"))
                })?;
            }
            Ok(())
        };
        read(APPLIED, &mut [&mut meta.applied])?;
        if !planted::has(Bug::TokenForgotten) {
            read(TOKENS, &mut [&mut meta.tokens])?;
        }
        read(OBJECTS, &mut [&mut meta.objects])?;
        read(GENERATIONS, &mut [&mut meta.generations])?;
        read(WAITS, &mut [&mut meta.waits])?;
        if !planted::has(Bug::WaitsForgotten) {
            read(WAITING, &mut [&mut meta.waiting])?;
        }
        for (number, database) in (FIRST_DATABASE..).zip(&mut meta.databases) {
            let Database { generation, keys, expiring, changed_at } = database;
            read(number, &mut [generation, keys, expiring, changed_at])?;
        }
        Ok(meta)
    }
}
