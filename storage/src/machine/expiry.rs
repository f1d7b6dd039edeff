//! Cleaning up, a bounded piece at a time, through the log: keys whose time is over, and what FLUSHDB, DEL and RENAME left behind.
//!
//! Neither changes what a client can see: keys whose time is over count as absent already. (DBSIZE sees it, as in Redis.)

use super::layout::{self, Garbage, Header};
use super::meta::DATABASES;
use super::txn::Txn;
use super::waits::Timer;
use crate::planted::{self, Bug};
use crate::row::RowKeyRef;

impl Txn<'_> {
    /// Removes up to `limit` keys whose time is over and does what timers say is due; says how many rows it looked at and removed.
    pub(crate) fn sweep(&mut self, limit: usize) -> usize {
        let now_ms = self.stamp.at_ms;
        let mut removed = 0;
        for (row, _) in self.rows(&layout::deadlines(), limit) {
            let Some((deadline_ms, generation, hash, key)) = layout::parse_deadline(row.borrow()) else {
                break;
            };
            if deadline_ms >= now_ms {
                break;
            }
            if let Some(db) =
                self.meta().databases.iter().position(|database| database.generation == generation)
            {
                self.place(db as u8, key);
                if planted::has(Bug::ExpiryUnserved) {
                    self.untouch();
                }
            } else {
                // Its database was flushed. The reaper would come to it, too.
                self.remove_row(layout::key_row(generation, hash, key).to_owned());
                self.remove_row(row.clone());
            }
            removed += 1;
        }
        removed += self.turn_pages(limit.saturating_sub(removed));
        removed += self.sweep_locks(limit.saturating_sub(removed));
        removed + self.sweep_timers(limit.saturating_sub(removed))
    }

    fn sweep_locks(&mut self, limit: usize) -> usize {
        let now_ms = self.stamp.at_ms;
        let mut removed = 0;
        for db in 0..DATABASES {
            let database = self.meta().databases[db];
            if database.expiring == 0 {
                continue;
            }
            for (row, _) in self.rows(&layout::locks(database.generation), limit.saturating_sub(removed)) {
                if row.borrow().second() >= now_ms {
                    break;
                }
                self.place(db as u8, row.borrow().tail);
                if planted::has(Bug::ExpiryUnserved) {
                    self.untouch();
                }
                removed += 1;
            }
        }
        removed
    }

    fn sweep_timers(&mut self, limit: usize) -> usize {
        let due = self.rows(&Timer::rows(), limit);
        let now_ms = self.stamp.at_ms;
        let due = due.into_iter().take_while(|(row, _)| Timer::at_ms(row.borrow()) <= now_ms);
        due.map(|(row, _)| {
            self.remove_row(row.clone());
            match Timer::parse(row.borrow()) {
                Some(Timer::Wait(number)) => self.time_out(number),
                Some(Timer::Session(id)) => {
                    self.session(id);
                }
                Some(Timer::Lock { db, key }) => self.settle_lock(db, &key),
                None => {}
            }
        })
        .count()
    }

    /// Removes up to `limit` rows that nothing refers to any more; says how many.
    pub(crate) fn reap(&mut self, limit: usize) -> usize {
        let mut removed = 0;
        for (garbage_row, _) in self.rows(&Garbage::rows(), limit) {
            let left = limit - removed;
            let found = match Garbage::parse(garbage_row.borrow()) {
                Some(Garbage::Generation(generation)) => self.reap_generation(generation, left),
                Some(Garbage::Object(object)) => self.reap_object(object, left),
                None => 0,
            };
            removed += found;
            if found == left {
                break;
            }
            self.remove_row(garbage_row);
        }
        removed
    }

    fn reap_generation(&mut self, generation: u64, limit: usize) -> usize {
        let rows = self.rows(&layout::keys_from(generation, 0), limit);
        let count = rows.len();
        for (row, value) in rows {
            let RowKeyRef { tail: key, .. } = row.borrow();
            if let Some(header) = Header::parse(&value) {
                if let Some(time_row) = header.timed().row(generation, row.borrow().second(), key) {
                    self.remove_row(time_row);
                }
                if let Some(object) = header.object {
                    self.put_row(Garbage::Object(object).row().to_owned(), crate::row::RowValue::EMPTY);
                }
            }
            self.remove_row(row);
        }
        count
    }

    fn reap_object(&mut self, object: u64, limit: usize) -> usize {
        let rows = self.rows(&layout::members(object), limit);
        let count = rows.len();
        rows.into_iter().for_each(|(row, _)| self.remove_row(row));
        count
    }
}
