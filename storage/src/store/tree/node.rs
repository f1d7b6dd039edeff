//! Nodes: leaves with rows, inner nodes with separators and children.

use crate::row::{RowKey, RowKeyRef, RowRange, RowValue, Tail};
use arrayvec::ArrayVec;
use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Rows in a leaf. Larger ones cost more to copy while a snapshot is held, smaller ones more to find (16: +30 %).
const LEAF_ROWS_MAX: usize = 32;
/// Heads of a large node that are looked at together.
const STRIDE: usize = 8;
/// Children of an inner node.
const CHILDREN_MAX: usize = 64;
/// A node that is this empty after a removal looks for a neighbour to join.
const fn is_sparse(len: usize, max: usize) -> bool {
    len <= max / 4
}
/// Two neighbours with together no more than this are joined; the rest is room for the next insertions.
const fn fit_together(len: usize, max: usize) -> bool {
    len <= max / 4 * 3
}

/// What [`Tree::ascend`](super::Tree::ascend) calls for each row.
type Visit<'v, 'a> = &'v mut dyn FnMut(RowKeyRef<'a>, &'a RowValue) -> ControlFlow<()>;

/// A shared node.
#[derive(Clone)]
pub(super) enum Node {
    Leaf(Arc<Leaf>),
    Inner(Arc<Inner>),
}

/// The right half of a node that grew too large; `separator` is its first key.
pub(super) struct Split {
    pub(super) separator: RowKey,
    pub(super) right: Node,
}

/// Everything of a row but the head of its key: one cache line.
#[derive(Clone)]
#[repr(align(64))]
struct Entry {
    tail: Tail,
    value: RowValue,
}

#[derive(Clone, Default)]
pub(super) struct Leaf {
    heads: ArrayVec<u128, LEAF_ROWS_MAX>,
    entries: ArrayVec<Entry, LEAF_ROWS_MAX>,
}

/// Child `i` holds the keys from separator `i - 1` up to, but not including, separator `i`.
#[derive(Clone)]
pub(super) struct Inner {
    heads: ArrayVec<u128, CHILDREN_MAX>,
    tails: ArrayVec<Tail, CHILDREN_MAX>,
    children: ArrayVec<Node, CHILDREN_MAX>,
}

/// How many heads are lower.
///
/// A search by halves would look at few heads, but each look would wait for the one before to come out of the memory. These looks do not
/// wait for each other.
#[inline]
fn count_below(heads: &[u128], head: u128) -> usize {
    let count = |heads: &[u128]| heads.iter().map(|other| usize::from(*other < head)).sum::<usize>();
    if heads.len() <= LEAF_ROWS_MAX {
        return count(heads);
    }
    // The last of each stride first; then the stride in which the answer lies.
    let from = STRIDE * heads.chunks_exact(STRIDE).filter(|stride| stride[STRIDE - 1] < head).count();
    from + count(&heads[from..heads.len().min(from + STRIDE)])
}

impl Default for Node {
    fn default() -> Node {
        Node::Leaf(Arc::default())
    }
}

impl Leaf {
    #[inline]
    fn key(&self, i: usize) -> RowKeyRef<'_> {
        RowKeyRef::from_stored(self.heads[i], &self.entries[i].tail)
    }

    /// Where the key is, or would be.
    #[inline]
    fn find(&self, key: RowKeyRef<'_>) -> Result<usize, usize> {
        let mut i = count_below(&self.heads, key.head);
        while i < self.heads.len() && self.heads[i] == key.head {
            match self.key(i).cmp_tail(key) {
                Ordering::Less => i += 1,
                Ordering::Equal => return Ok(i),
                Ordering::Greater => break,
            }
        }
        Err(i)
    }

    fn position(&self, key: RowKeyRef<'_>) -> usize {
        self.find(key).unwrap_or_else(|i| i)
    }

    fn put(&mut self, i: usize, key: RowKey, value: RowValue) {
        self.heads.insert(i, key.head);
        self.entries.insert(i, Entry { tail: key.tail, value });
    }

    fn split_off(&mut self, at: usize) -> Leaf {
        Leaf { heads: self.heads.drain(at..).collect(), entries: self.entries.drain(at..).collect() }
    }

    fn insert(&mut self, key: RowKey, value: RowValue) -> (Option<RowValue>, Option<Split>) {
        let i = match self.find(key.borrow()) {
            Ok(i) => return (Some(std::mem::replace(&mut self.entries[i].value, value)), None),
            Err(i) => i,
        };
        if self.heads.len() < LEAF_ROWS_MAX {
            self.put(i, key, value);
            return (None, None);
        }
        // Rows that come in ascending order (a snapshot, a queue) would leave half-empty leaves behind.
        let at = if i == LEAF_ROWS_MAX { i } else { LEAF_ROWS_MAX / 2 };
        let mut right = self.split_off(at);
        if i < at {
            self.put(i, key, value)
        } else {
            right.put(i - at, key, value)
        }
        let separator = right.key(0).to_owned();
        (None, Some(Split { separator, right: Node::Leaf(Arc::new(right)) }))
    }

    fn append(&mut self, mut right: Leaf) {
        self.heads.extend(right.heads.drain(..));
        self.entries.extend(right.entries.drain(..));
    }
}

impl Inner {
    #[inline]
    fn separator(&self, i: usize) -> RowKeyRef<'_> {
        RowKeyRef::from_stored(self.heads[i], &self.tails[i])
    }

    /// Which child holds the key: there are as many separators at or below it.
    #[inline]
    fn child_of(&self, key: RowKeyRef<'_>) -> usize {
        let mut i = count_below(&self.heads, key.head);
        while i < self.heads.len()
            && self.heads[i] == key.head
            && self.separator(i).cmp_tail(key) != Ordering::Greater
        {
            i += 1;
        }
        i
    }

    /// Puts a new child behind child `i`.
    fn put(&mut self, i: usize, split: Split) {
        self.heads.insert(i, split.separator.head);
        self.tails.insert(i, split.separator.tail);
        self.children.insert(i + 1, split.right);
    }

    fn insert(&mut self, key: RowKey, value: RowValue) -> (Option<RowValue>, Option<Split>) {
        let i = self.child_of(key.borrow());
        let (old, split) = self.children[i].insert(key, value);
        let Some(split) = split else { return (old, None) };
        if self.children.len() < CHILDREN_MAX {
            self.put(i, split);
            return (old, None);
        }
        let last = i + 1 == CHILDREN_MAX;
        let mut right = self.split_off(if last { CHILDREN_MAX - 1 } else { CHILDREN_MAX / 2 });
        let kept = self.children.len();
        // The separator between the halves moves up; `split_off` left it behind the last child of the left half.
        let separator = self.pop_separator();
        if i < kept {
            self.put(i, split)
        } else {
            right.put(i - kept, split)
        }
        (old, separator.map(|separator| Split { separator, right: Node::Inner(Arc::new(right)) }))
    }

    /// Takes the children from `at` on and the separators between them.
    fn split_off(&mut self, at: usize) -> Inner {
        Inner {
            heads: self.heads.drain(at..).collect(),
            tails: self.tails.drain(at..).collect(),
            children: self.children.drain(at..).collect(),
        }
    }

    fn pop_separator(&mut self) -> Option<RowKey> {
        Some(RowKey { head: self.heads.pop()?, tail: self.tails.pop()? })
    }

    fn remove(&mut self, key: RowKeyRef<'_>) -> Option<RowValue> {
        let i = self.child_of(key);
        let old = self.children[i].remove(key);
        let (len, max) = self.children[i].fill();
        if len == 0 {
            self.drop_child(i);
        } else if is_sparse(len, max) {
            if i + 1 < self.children.len() && fit_together(len + self.children[i + 1].fill().0, max) {
                self.join(i);
            } else if i > 0 && fit_together(len + self.children[i - 1].fill().0, max) {
                self.join(i - 1);
            }
        }
        old
    }

    fn drop_child(&mut self, i: usize) {
        self.children.remove(i);
        if !self.heads.is_empty() {
            // The first child has no separator of its own: then the one behind it goes.
            let separator = i.saturating_sub(1);
            self.heads.remove(separator);
            self.tails.remove(separator);
        }
    }

    /// Makes one child of child `i` and the one behind it.
    fn join(&mut self, i: usize) {
        let right = self.children.remove(i + 1);
        let separator = RowKey { head: self.heads.remove(i), tail: self.tails.remove(i) };
        match (&mut self.children[i], right) {
            (Node::Leaf(left), Node::Leaf(right)) => Arc::make_mut(left).append(Arc::unwrap_or_clone(right)),
            (Node::Inner(left), Node::Inner(right)) => {
                Arc::make_mut(left).append(separator, Arc::unwrap_or_clone(right));
            }
            _ => unreachable!("T3: neighbours have the same depth"),
        }
    }

    fn append(&mut self, separator: RowKey, mut right: Inner) {
        self.heads.push(separator.head);
        self.tails.push(separator.tail);
        self.heads.extend(right.heads.drain(..));
        self.tails.extend(right.tails.drain(..));
        self.children.extend(right.children.drain(..));
    }
}

impl Node {
    /// A root above the two halves of the former one.
    pub(super) fn parent_of(left: Node, separator: RowKey, right: Node) -> Node {
        Node::Inner(Arc::new(Inner {
            heads: [separator.head].into_iter().collect(),
            tails: [separator.tail].into_iter().collect(),
            children: [left, right].into_iter().collect(),
        }))
    }

    /// How many rows or children it has, and may have.
    fn fill(&self) -> (usize, usize) {
        match self {
            Node::Leaf(leaf) => (leaf.heads.len(), LEAF_ROWS_MAX),
            Node::Inner(inner) => (inner.children.len(), CHILDREN_MAX),
        }
    }

    #[inline]
    pub(super) fn get(&self, key: RowKeyRef<'_>) -> Option<&RowValue> {
        let mut node = self;
        loop {
            match node {
                Node::Inner(inner) => node = &inner.children[inner.child_of(key)],
                Node::Leaf(leaf) => return leaf.find(key).ok().map(|i| &leaf.entries[i].value),
            }
        }
    }

    pub(super) fn insert(&mut self, key: RowKey, value: RowValue) -> (Option<RowValue>, Option<Split>) {
        match self {
            Node::Leaf(leaf) => Arc::make_mut(leaf).insert(key, value),
            Node::Inner(inner) => Arc::make_mut(inner).insert(key, value),
        }
    }

    pub(super) fn remove(&mut self, key: RowKeyRef<'_>) -> Option<RowValue> {
        match self {
            Node::Leaf(leaf) => {
                let i = leaf.find(key).ok()?;
                let leaf = Arc::make_mut(leaf);
                leaf.heads.remove(i);
                Some(leaf.entries.remove(i).value)
            }
            Node::Inner(inner) => Arc::make_mut(inner).remove(key),
        }
    }

    /// The child of a node that has just one: a root like that is of no use.
    pub(super) fn take_only_child(&self) -> Option<Node> {
        match self {
            Node::Inner(inner) if inner.children.len() == 1 => Some(inner.children[0].clone()),
            Node::Inner(inner) if inner.children.is_empty() => Some(Node::default()),
            _ => None,
        }
    }

    pub(super) fn ascend<'a>(&'a self, range: &RowRange, visit: Visit<'_, 'a>) -> ControlFlow<()> {
        match self {
            Node::Leaf(leaf) => {
                for i in leaf.position(range.from.borrow())..leaf.heads.len() {
                    let key = leaf.key(i);
                    if range.to.as_ref().is_some_and(|to| key >= to.borrow()) {
                        return ControlFlow::Break(());
                    }
                    visit(key, &leaf.entries[i].value)?;
                }
            }
            Node::Inner(inner) => {
                for child in &inner.children[inner.child_of(range.from.borrow())..] {
                    child.ascend(range, visit)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    pub(super) fn descend<'a>(&'a self, range: &RowRange, visit: Visit<'_, 'a>) -> ControlFlow<()> {
        match self {
            Node::Leaf(leaf) => {
                let end = range.to.as_ref().map_or(leaf.heads.len(), |to| leaf.position(to.borrow()));
                for i in (0..end).rev() {
                    let key = leaf.key(i);
                    if key < range.from.borrow() {
                        return ControlFlow::Break(());
                    }
                    visit(key, &leaf.entries[i].value)?;
                }
            }
            Node::Inner(inner) => {
                let last =
                    range.to.as_ref().map_or(inner.children.len() - 1, |to| inner.child_of(to.borrow()));
                for child in inner.children[..=last].iter().rev() {
                    child.descend(range, visit)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Checks the invariants below this node; gives its depth.
    #[cfg(test)]
    pub(super) fn check(
        &self,
        is_root: bool,
        low: Option<RowKeyRef<'_>>,
        high: Option<RowKeyRef<'_>>,
    ) -> usize {
        assert!(is_root || self.fill().0 > 0, "T4");
        match self {
            Node::Leaf(leaf) => {
                assert_eq!(leaf.heads.len(), leaf.entries.len());
                for i in 0..leaf.heads.len() {
                    assert!(i == 0 || leaf.key(i - 1) < leaf.key(i), "T1");
                    assert!(low.is_none_or(|low| leaf.key(i) >= low), "T2");
                    assert!(high.is_none_or(|high| leaf.key(i) < high), "T2");
                }
                1
            }
            Node::Inner(inner) => {
                assert_eq!(inner.heads.len() + 1, inner.children.len());
                assert_eq!(inner.tails.len() + 1, inner.children.len());
                let mut depths = inner.children.iter().enumerate().map(|(i, child)| {
                    let low = if i == 0 { low } else { Some(inner.separator(i - 1)) };
                    let high = if i == inner.heads.len() { high } else { Some(inner.separator(i)) };
                    child.check(false, low, high)
                });
                let depth = depths.next().unwrap();
                assert!(depths.all(|other| other == depth), "T3");
                depth + 1
            }
        }
    }
}
