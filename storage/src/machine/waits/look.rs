//! Looking at waits: who waits at a key, where, and for which nodes' clients.

use super::super::events::Caller;
use super::super::payload;
use super::super::view::View;
use super::rows::{self, WaitRow};
use super::{Client, WaitFor};
use crate::store::{Order, Rows, StoreError};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// What is shown of a wait: itself, its command with its name, and who sent it.
pub(crate) type VisitWait<'a> = dyn FnMut(&WaitRow, &[&[u8]], &Client) + 'a;

impl View<'_> {
    /// Shows those who wait for something at a key, in order.
    pub(crate) fn each_wait(&self, db: u8, key: &[u8], waits_for: WaitFor, visit: &mut VisitWait<'_>) {
        let mut numbers = Vec::new();
        self.each_row(&rows::line_from(db, key, 0), Order::Ascending, &mut |row, value| {
            if let Some((of, number)) = rows::parse_line(row)
                && of == key
                && value.first() == Some(&(waits_for as u8))
            {
                numbers.push(number);
            }
            ControlFlow::Continue(())
        });
        for number in numbers {
            let Some(wait) =
                self.row(rows::wait_row(number)).and_then(|value| WaitRow::parse(number, &value))
            else {
                continue;
            };
            if let Some(command) = payload::decode_command(&wait.payload) {
                visit(&wait, command.args(), &command.client());
            }
        }
    }

    /// The keys of a database at which somebody waits for something, and how many.
    pub(crate) fn waited_keys(&self, db: u8, waits_for: WaitFor) -> BTreeMap<Vec<u8>, usize> {
        let mut keys = BTreeMap::new();
        if self.meta().waiting > 0 {
            self.each_row(&rows::lines_of(db), Order::Ascending, &mut |row, value| {
                if let Some((key, _)) = rows::parse_line(row)
                    && value.first() == Some(&(waits_for as u8))
                {
                    *keys.entry(key.to_vec()).or_default() += 1;
                }
                ControlFlow::Continue(())
            });
        }
        keys
    }
}

/// Whether a command waits.
pub(crate) fn is_waiting(rows: &dyn Rows, caller: Caller) -> Result<bool, StoreError> {
    Ok(rows.get(rows::caller_row(caller).borrow())?.is_some())
}

/// The nodes, with their lives, that waits belong to.
pub(crate) fn waiting_nodes(rows: &dyn Rows) -> Result<Vec<(u64, u64)>, StoreError> {
    let mut nodes: Vec<(u64, u64)> = Vec::new();
    let mut from = rows::callers();
    loop {
        let mut next = None;
        rows.scan(&from, Order::Ascending, &mut |row, _| {
            next = rows::parse_caller(row).map(|caller| (caller.node, caller.incarnation));
            ControlFlow::Break(())
        })?;
        let Some((node, incarnation)) = next else { return Ok(nodes) };
        nodes.push((node, incarnation));
        from.from = rows::caller_row(Caller { node, incarnation, seq: u64::MAX });
        if nodes.len() > 1_000 {
            return Ok(nodes);
        }
    }
}

/// P4, for tests: every wait has its rows, and there are no others.
#[cfg(test)]
pub(crate) fn check_rows(store: &dyn Rows, waiting: u64) {
    let mut expected: Vec<crate::row::RowKey> = Vec::new();
    let mut found = Vec::new();
    let mut count = 0;
    store
        .scan(&crate::row::RowRange::all(), Order::Ascending, &mut |row, value| {
            match (row.first() >> 56) as u8 {
                super::super::layout::WAITS => {
                    let wait = WaitRow::parse(row.second(), value).expect("a wait can be read");
                    count += 1;
                    expected.extend(wait.keys.iter().map(|key| rows::line_row(wait.db, key, wait.number)));
                    expected.push(rows::caller_row(wait.caller));
                    expected.extend(super::finders(&wait));
                    expected.extend(wait.deadline_ms.map(|ms| rows::Timer::Wait(wait.number).row(ms)));
                }
                super::super::layout::LINES
                | super::super::layout::CALLERS
                | super::super::layout::OWNERS
                | super::super::layout::WAITING_SESSIONS => found.push(row.to_owned()),
                super::super::layout::TIMERS
                    if matches!(rows::Timer::parse(row), Some(rows::Timer::Wait(_))) =>
                {
                    found.push(row.to_owned())
                }
                _ => {}
            }
            ControlFlow::Continue(())
        })
        .expect("the store can be read");
    expected.sort();
    found.sort();
    assert_eq!(found, expected, "P4");
    assert_eq!(count, waiting, "P4");
}
