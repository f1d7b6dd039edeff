//! Links between nodes: what is cut, what is clogged, and what the wire does to a message.
//!
//! A cut loses what is sent over it; a clog keeps it and lets it go, late, when it is undone. Cuts and clogs end one by one, in whatever order
//! their times say.

use crate::rng::Rng;
use crate::swarm::Wire;
use consensus::{Address, Message, NodeId, RoleId};

/// Links are bit sets by node id, so ids stay below this.
pub const NODES_MAX: usize = 64;

/// A message on a link.
#[derive(Clone, Debug)]
pub struct Parcel {
    /// Who says it.
    pub from: Address,
    /// To which node.
    pub to: NodeId,
    /// To which role there.
    pub role: RoleId,
    /// What.
    pub message: Message,
}

/// A cut or a clog that is in force.
#[derive(Clone, Debug)]
struct Hold {
    number: u64,
    links: Vec<u64>,
    clogs: bool,
}

/// What a link does with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Lost.
    Lost,
    /// Kept until the link is unclogged.
    Kept,
    /// Arrives after so long, and perhaps once more.
    Arrives(u64, Option<u64>),
}

/// All links.
#[derive(Debug, Default)]
pub struct Network {
    holds: Vec<Hold>,
    cut: Vec<u64>,
    clogged: Vec<u64>,
    kept: Vec<Parcel>,
    next: u64,
}

impl Network {
    /// A network without cuts.
    #[must_use]
    pub fn new() -> Network {
        Network { cut: vec![0; NODES_MAX], clogged: vec![0; NODES_MAX], ..Network::default() }
    }

    /// Cuts or clogs the links that `links` names (for each sender the set of receivers). The number undoes it.
    pub fn hold(&mut self, links: Vec<u64>, clogs: bool) -> u64 {
        self.next += 1;
        self.holds.push(Hold { number: self.next, links, clogs });
        self.recompute();
        self.next
    }

    /// Undoes one cut or clog. What was kept and can go now is handed back in the order in which it was sent.
    pub fn undo(&mut self, number: u64) -> Vec<Parcel> {
        self.holds.retain(|hold| hold.number != number);
        self.recompute();
        let (stays, goes): (Vec<_>, Vec<_>) = std::mem::take(&mut self.kept)
            .into_iter()
            .partition(|parcel| has(&self.clogged, parcel.from.node, parcel.to));
        self.kept = stays;
        goes
    }

    /// Undoes everything.
    pub fn heal(&mut self) -> Vec<Parcel> {
        self.holds.clear();
        self.recompute();
        std::mem::take(&mut self.kept)
    }

    /// Keeps a message whose fate that is.
    pub fn keep(&mut self, parcel: Parcel) {
        self.kept.push(parcel);
    }

    /// What becomes of a message from one node to another.
    pub fn fate(&self, from: NodeId, to: NodeId, wire: &Wire, rng: &mut Rng) -> Fate {
        if has(&self.cut, from, to) {
            return Fate::Lost;
        }
        if has(&self.clogged, from, to) {
            return Fate::Kept;
        }
        travel(wire, rng)
    }

    fn recompute(&mut self) {
        for matrix in [&mut self.cut, &mut self.clogged] {
            matrix.iter_mut().for_each(|row| *row = 0);
        }
        for hold in &self.holds {
            let matrix = if hold.clogs { &mut self.clogged } else { &mut self.cut };
            for (row, links) in matrix.iter_mut().zip(&hold.links) {
                *row |= links;
            }
        }
    }
}

/// What the wire does to a message, without any cut.
pub fn travel(wire: &Wire, rng: &mut Rng) -> Fate {
    if rng.chance(wire.loss) {
        return Fate::Lost;
    }
    let again = rng.chance(wire.duplicate).then(|| delay(wire, rng));
    Fate::Arrives(delay(wire, rng), again)
}

fn delay(wire: &Wire, rng: &mut Rng) -> u64 {
    if rng.chance(wire.late) {
        return rng.between(wire.delay_max, wire.late_max);
    }
    rng.between(wire.delay_min, wire.delay_max)
}

fn has(matrix: &[u64], from: NodeId, to: NodeId) -> bool {
    let row = usize::try_from(from.0).ok().and_then(|index| matrix.get(index));
    row.is_some_and(|row| to.0 < NODES_MAX as u64 && row & (1 << to.0) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use consensus::Ballot;

    fn parcel(from: u64, to: u64) -> Parcel {
        let from = Address { node: NodeId(from), role: RoleId::Leader };
        Parcel {
            from,
            to: NodeId(to),
            role: RoleId::Acceptor,
            message: Message::Probe { ballot: Ballot::ZERO },
        }
    }

    fn links(pairs: &[(usize, u64)]) -> Vec<u64> {
        let mut rows = vec![0; NODES_MAX];
        for (from, to) in pairs {
            rows[*from] |= 1 << to;
        }
        rows
    }

    #[test]
    fn a_cut_is_one_way_and_ends() {
        let (mut network, mut rng) = (Network::new(), Rng::new(1));
        let wire = Wire { delay_min: 5, delay_max: 5, ..Wire::default() };
        let cut = network.hold(links(&[(1, 2)]), false);
        assert_eq!(network.fate(NodeId(1), NodeId(2), &wire, &mut rng), Fate::Lost);
        assert_eq!(network.fate(NodeId(2), NodeId(1), &wire, &mut rng), Fate::Arrives(5, None));
        assert!(network.undo(cut).is_empty());
        assert_eq!(network.fate(NodeId(1), NodeId(2), &wire, &mut rng), Fate::Arrives(5, None));
    }

    #[test]
    fn a_clog_keeps_and_lets_go_when_the_last_one_on_the_link_ends() {
        let (mut network, mut rng) = (Network::new(), Rng::new(1));
        let wire = Wire::default();
        let first = network.hold(links(&[(1, 2), (1, 3)]), true);
        let second = network.hold(links(&[(1, 3)]), true);
        assert_eq!(network.fate(NodeId(1), NodeId(3), &wire, &mut rng), Fate::Kept);
        network.keep(parcel(1, 2));
        network.keep(parcel(1, 3));
        let freed = network.undo(first);
        assert_eq!(freed.iter().map(|p| p.to.0).collect::<Vec<_>>(), [2]);
        let freed = network.undo(second);
        assert_eq!(freed.iter().map(|p| p.to.0).collect::<Vec<_>>(), [3]);
    }
}
