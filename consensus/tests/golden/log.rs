//! What a script prints: one line per thing that happened, the same thing on several nodes in one line.

use crate::words;
use std::collections::BTreeSet;
use std::time::Duration;
use warlock_consensus::NodeId;

struct Line {
    who: BTreeSet<NodeId>,
    to: BTreeSet<NodeId>,
    text: String,
}

/// The lines of one command. Lines are folded within a round: everything that the messages of one flight caused.
#[derive(Default)]
pub struct Log {
    round: Vec<Line>,
    at: Option<Duration>,
    out: String,
}

impl Log {
    /// Something happened on a node.
    pub fn fact(&mut self, node: NodeId, text: impl Into<String>) {
        self.add(node, BTreeSet::new(), text.into());
    }

    /// A node said something to nodes.
    pub fn say(&mut self, from: NodeId, to: &[NodeId], text: String) {
        self.add(from, to.iter().copied().collect(), text);
    }

    fn add(&mut self, node: NodeId, to: BTreeSet<NodeId>, text: String) {
        let same = |line: &&mut Line| line.who.contains(&node) && line.text == text;
        match self.round.iter_mut().find(same) {
            Some(line) if line.to.is_empty() == to.is_empty() => line.to.extend(to),
            _ => self.round.push(Line { who: BTreeSet::from([node]), to, text }),
        }
    }

    /// From here on it is so long after the beginning of the command.
    pub fn at(&mut self, passed: Duration) {
        self.end_round();
        self.at = Some(passed);
    }

    /// The messages of one flight are handled.
    pub fn end_round(&mut self) {
        let mut folded: Vec<Line> = Vec::new();
        for line in self.round.drain(..) {
            match folded.iter_mut().find(|known| known.to == line.to && known.text == line.text) {
                Some(known) => known.who.extend(line.who),
                None => folded.push(line),
            }
        }
        for line in folded {
            if let Some(at) = self.at.take() {
                self.out += &format!("[+{}] ", words::millis(at));
            }
            let to =
                if line.to.is_empty() { String::new() } else { format!(" → {}", words::nodes(&line.to)) };
            self.out += &format!("{}{to} {}\n", words::nodes(&line.who), line.text);
        }
    }

    /// Everything since the last time.
    pub fn take(&mut self) -> String {
        self.end_round();
        self.at = None;
        std::mem::take(&mut self.out)
    }
}
