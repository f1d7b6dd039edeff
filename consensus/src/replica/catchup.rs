//! Getting decisions that were missed: from a peer's log or, when that is compacted, from its snapshot in pieces.

use crate::config::Config;
use crate::types::{NodeId, Time};
use crate::view::{Condition, View};
use std::time::Duration;

/// A peer that sends a snapshot may be silent for so many retries: a piece takes its time on a slow link, and a rate limit more.
const SILENT_RETRIES: u32 = 10;

/// The state of one replica's catching up.
#[derive(Clone, Debug, Default)]
pub struct CatchUp {
    /// When to ask (again).
    due: Option<Time>,
    /// Counts the attempts, to ask another peer each time.
    attempts: u64,
    peer: Option<NodeId>,
    /// The snapshot under way.
    snapshot: Option<Partial>,
    /// The host loads this snapshot.
    installing: Option<u64>,
}

/// A snapshot of which a part is here.
#[derive(Clone, Copy, Debug)]
struct Partial {
    slot: u64,
    /// Bytes that are here.
    next: u64,
    total: u64,
    /// Who sends it.
    source: NodeId,
    began: Time,
    heard: Time,
}

impl Partial {
    /// How long its silent source is waited for: as long as it would take to fetch from another what is here, within bounds. So a source that
    /// restarts goes on where it was, and one that is gone costs at most the time of the copy again.
    fn patience(&self, config: &Config) -> Duration {
        self.heard.since(self.began).min(config.source_silent_max).max(config.retry * SILENT_RETRIES)
    }
}

/// What to do with a piece of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// It is not the one that is needed.
    Ignore,
    /// Keep it, and ask for the next.
    Keep {
        /// Where the next piece begins.
        next: u64,
    },
    /// Keep it; it was the last.
    Last,
}

impl CatchUp {
    /// Something is missing: ask after `grace`, if it has not come by itself.
    pub fn want(&mut self, now: Time, grace: Duration) {
        if self.due.is_none() {
            self.due = Some(now.plus(grace));
        }
    }

    /// Ask at once.
    pub fn hurry(&mut self, now: Time) {
        self.due = Some(now);
    }

    /// Nothing is missing.
    pub fn satisfied(&mut self) {
        self.due = None;
        self.attempts = 0;
        self.peer = None;
        self.snapshot = None;
    }

    /// When to ask.
    #[must_use]
    pub fn due(&self) -> Option<Time> {
        self.due
    }

    /// This peer is known to have what is missing.
    pub fn prefer(&mut self, peer: NodeId) {
        if self.peer.is_none() {
            self.peer = Some(peer);
        }
    }

    /// Whom to ask now; asks again after a while. Who sends a snapshot is asked for its next piece. Otherwise peers take turns: those first that are
    /// well and not the master, which has enough to do.
    pub fn next_peer(
        &mut self,
        me: NodeId,
        master: Option<NodeId>,
        view: &View,
        now: Time,
        config: &Config,
    ) -> Option<NodeId> {
        self.due = Some(now.plus(config.retry));
        if let Some(partial) = &self.snapshot {
            if view.is_member(partial.source) && now.since(partial.heard) < partial.patience(config) {
                return Some(partial.source);
            }
            self.snapshot = None; // begin anew with another
        }
        if let Some(peer) = self.peer.take().filter(|peer| *peer != me) {
            return Some(peer);
        }
        let members = view.members.iter().filter(|(id, _)| **id != me);
        let mut peers: Vec<(bool, bool, NodeId)> = members
            .map(|(id, member)| {
                let lags = matches!(member.condition, Condition::Down | Condition::Join);
                (lags, Some(*id) == master, *id)
            })
            .collect();
        peers.sort_unstable();
        let count = u64::try_from(peers.len()).unwrap_or(0);
        let index = usize::try_from(self.attempts.checked_rem(count)?).ok()?;
        self.attempts += 1;
        peers.get(index).map(|(_, _, peer)| *peer)
    }

    /// A peer answered: it is alive, so go on with it.
    pub fn answered(&mut self, now: Time, retry: Duration) {
        self.due = Some(now.plus(retry));
    }

    /// A piece of a snapshot, `offset`, length and total, arrived from `source`.
    pub fn piece(
        &mut self,
        applied: u64,
        slot: u64,
        (offset, len, total): (u64, u64, u64),
        source: NodeId,
        now: Time,
    ) -> Piece {
        if self.installing.is_some() || slot <= applied || len == 0 || offset.saturating_add(len) > total {
            return Piece::Ignore;
        }
        let known = self.snapshot.filter(|known| known.slot == slot && known.total == total);
        let is_older = self.snapshot.is_some_and(|known| known.slot > slot);
        if is_older || offset != known.map_or(0, |known| known.next) {
            return Piece::Ignore;
        }
        let (next, began) = (offset + len, known.map_or(now, |known| known.began));
        self.snapshot = Some(Partial { slot, next, total, source, began, heard: now });
        if next == total { Piece::Last } else { Piece::Keep { next } }
    }

    /// The snapshot under way and how much of it is here.
    #[must_use]
    pub fn snapshot(&self) -> Option<(u64, u64)> {
        self.snapshot.map(|partial| (partial.slot, partial.next))
    }

    /// The host loads a snapshot. Who sent it is the first to be asked for what lies above.
    pub fn install(&mut self, slot: u64) {
        self.peer = self.snapshot.take().map(|partial| partial.source);
        self.installing = Some(slot);
    }

    /// Whether the host loads a snapshot now.
    #[must_use]
    pub fn is_installing(&self) -> bool {
        self.installing.is_some()
    }

    /// The host is done with it.
    pub fn installed(&mut self) {
        self.installing = None;
        self.due = None; // what lies above the snapshot is wanted at once
    }

    /// The host could not use it. Its source would send the same again, so the others have their turn first.
    pub fn install_failed(&mut self) {
        self.installed();
        self.peer = None;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::view::Member;
    use bytes::Bytes;

    const ME: NodeId = NodeId(1);

    fn view(conditions: &[Condition]) -> View {
        let members = (1..).map(NodeId).zip(conditions).map(|(id, condition)| {
            (id, Member { condition: *condition, contact: Bytes::from(id.to_string()) })
        });
        let members = members.collect();
        View { number: 1, members, next_member: 9, lease: Duration::from_secs(1) }
    }

    fn at(ms: u64) -> Time {
        Time::default().plus(Duration::from_millis(ms))
    }

    #[test]
    fn members_that_are_well_are_asked_first_and_the_master_after_them() {
        use Condition::{Down, Join, Observer, Valid};
        let view = view(&[Valid, Down, Valid, Valid, Observer, Join]);
        let (mut catch_up, config) = (CatchUp::default(), Config::default());
        let asked: Vec<u64> = (0..6)
            .map(|_| catch_up.next_peer(ME, Some(NodeId(3)), &view, at(1), &config).unwrap().0)
            .collect();
        assert_eq!(asked, [4, 5, 3, 2, 6, 4]);
    }

    /// Half of a snapshot came from node 2, for `ms`.
    fn halfway(ms: u64) -> CatchUp {
        let mut catch_up = CatchUp::default();
        assert_eq!(catch_up.piece(0, 9, (0, 10, 40), NodeId(2), at(0)), Piece::Keep { next: 10 });
        assert_eq!(catch_up.piece(0, 9, (10, 10, 40), NodeId(2), at(ms)), Piece::Keep { next: 20 });
        catch_up
    }

    #[test]
    fn a_silent_source_is_waited_for_as_long_as_its_pieces_took() {
        let (view, config) = (view(&[Condition::Valid; 3]), Config::default());
        let least = u64::try_from((config.retry * SILENT_RETRIES).as_millis()).unwrap();
        let most = u64::try_from(config.source_silent_max.as_millis()).unwrap();
        for (took, patience) in [(10, least), (20_000, 20_000), (9 * most, most)] {
            let mut catch_up = halfway(took);
            let mut ask = |after| catch_up.next_peer(ME, Some(NodeId(3)), &view, at(took + after), &config);
            assert_eq!(ask(1), Some(NodeId(2)));
            assert_eq!(ask(patience - 1), Some(NodeId(2)), "{took} ms");
            assert_eq!(catch_up.snapshot(), Some((9, 20)), "what is here is kept");
            catch_up.next_peer(ME, Some(NodeId(3)), &view, at(took + patience), &config);
            assert_eq!(catch_up.snapshot(), None, "it is asked anew");
        }
    }

    #[test]
    fn whose_snapshot_cannot_be_used_is_not_asked_again_before_the_others() {
        let (view, config) = (view(&[Condition::Valid; 3]), Config::default());
        let mut catch_up = CatchUp::default();
        let mut sources = Vec::new();
        for round in 0..4 {
            let source = catch_up.next_peer(ME, None, &view, at(round), &config).unwrap();
            assert_eq!(catch_up.piece(0, 9, (0, 10, 10), source, at(round)), Piece::Last);
            catch_up.install(9);
            catch_up.install_failed();
            sources.push(source.0);
        }
        assert_eq!(sources, [2, 3, 2, 3]);
    }

    #[test]
    fn a_source_that_is_a_member_no_more_is_not_waited_for() {
        let mut view = view(&[Condition::Valid; 3]);
        view.members.remove(&NodeId(2));
        let next = halfway(10).next_peer(ME, None, &view, at(11), &Config::default());
        assert_eq!(next, Some(NodeId(3)));
    }
}
