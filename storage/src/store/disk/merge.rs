//! Layers over the engine's rows, shown as one.
//!
//! A layer is read in pages that grow, so that who looks at the first row of a long range pays for few, and who reads all of it pays little for each.

use super::cursor::Cursor;
use crate::row::{RowKey, RowKeyRef, RowRange, RowValue};
use crate::store::tree::Tree;
use crate::store::{Order, StoreError, Visit};
use std::ops::ControlFlow;

const FIRST_PAGE: usize = 8;
const PAGE_MAX: usize = 512;

/// One layer's rows in a range.
struct Pages<'a> {
    layer: &'a Tree,
    /// What is not read yet; nothing: all is read.
    rest: Option<RowRange>,
    order: Order,
    /// Read and not shown yet; the next one is last.
    page: Vec<(RowKeyRef<'a>, &'a RowValue)>,
    size: usize,
}

impl<'a> Pages<'a> {
    fn new(layer: &'a Tree, range: &RowRange, order: Order) -> Pages<'a> {
        Pages { layer, rest: Some(range.clone()), order, page: Vec::new(), size: FIRST_PAGE }
    }

    fn peek(&mut self) -> Option<RowKeyRef<'a>> {
        if self.page.is_empty() {
            self.read();
        }
        self.page.last().map(|(key, _)| *key)
    }

    fn read(&mut self) {
        let Some(range) = self.rest.take() else { return };
        let (page, size) = (&mut self.page, self.size);
        let mut next = None;
        let mut take = |key: RowKeyRef<'a>, value: &'a RowValue| {
            if page.len() == size {
                next = Some(key.to_owned());
                return ControlFlow::Break(());
            }
            page.push((key, value));
            ControlFlow::Continue(())
        };
        match self.order {
            Order::Ascending => self.layer.ascend(&range, &mut take),
            Order::Descending => self.layer.descend(&range, &mut take),
        }
        self.rest = next.map(|next| match self.order {
            Order::Ascending => RowRange { from: next, to: range.to },
            // The end of a range does not belong to it: it is the last row of this page.
            Order::Descending => {
                let to = self.page.last().map(|(key, _)| RowKeyRef::to_owned(*key));
                RowRange { from: range.from, to }
            }
        });
        self.page.reverse();
        self.size = (self.size * 2).min(PAGE_MAX);
    }
}

/// Shows what `layers` (the newest first) and the engine say about a range. The cursor is for the same range and order.
pub(super) fn scan(
    layers: &[&Tree],
    mut engine: Cursor<'_>,
    range: &RowRange,
    order: Order,
    visit: &mut Visit<'_>,
) -> Result<(), StoreError> {
    let mut layers: Vec<Pages<'_>> = layers.iter().map(|layer| Pages::new(layer, range, order)).collect();
    let comes_first = |a: RowKeyRef<'_>, b: RowKeyRef<'_>| match order {
        Order::Ascending => a < b,
        Order::Descending => a > b,
    };
    let mut below: Option<(RowKey, RowValue)> = engine.next()?;
    loop {
        let mut next: Option<RowKeyRef<'_>> = None;
        for key in layers.iter_mut().filter_map(Pages::peek) {
            if next.is_none_or(|next| comes_first(key, next)) {
                next = Some(key);
            }
        }
        if let Some((key, value)) = &below
            && next.is_none_or(|next| comes_first(key.borrow(), next))
        {
            if visit(key.borrow(), value).is_break() {
                return Ok(());
            }
            below = engine.next()?;
            continue;
        }
        let Some(key) = next else { return Ok(()) };
        let mut newest = None;
        for layer in &mut layers {
            if let Some((_, value)) = layer.page.pop_if(|(found, _)| *found == key) {
                newest.get_or_insert(value);
            }
        }
        if below.as_ref().is_some_and(|(found, _)| found.borrow() == key) {
            below = engine.next()?;
        }
        if let Some(value) = newest.filter(|value| !value.is_gone())
            && visit(key, value).is_break()
        {
            return Ok(());
        }
    }
}
