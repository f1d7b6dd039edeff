//! `WARLOCK …`: what an operator asks of the cluster, and the master's answers.

use super::Running;
use bytes::Bytes;
use consensus::{Address, Message, NodeId, RoleId};
use server::{Answer, Ticket};
use std::time::{Duration, Instant};
use storage::reply::Reply;

/// How long an administrative request waits for the master's answer.
const ADMIN_PATIENCE: Duration = Duration::from_secs(10);

impl Running {
    pub(super) fn run_admin(&self, words: &[Bytes], ticket: Ticket) {
        let Some(face) = self.face.get() else { return };
        let name = words.first().map(|word| String::from_utf8_lossy(word).to_uppercase()).unwrap_or_default();
        let argument = words.get(1).map(|word| String::from_utf8_lossy(word).into_owned());
        let result = match (name.as_str(), argument) {
            ("STATUS", None) => Ok(self.status()),
            ("MEMBERS", None) => Ok(self.members()),
            ("CHECKSUM", None) => self.checksum(),
            ("SNAPSHOT", None) => {
                let core = self.core.borrow();
                let view = core.node.replica().view().clone();
                self.snapshots.borrow_mut().take(&core.ledger, &view, &core.backend.machine);
                Ok(Reply::simple("Background saving started"))
            }
            ("TRANSFER-MASTER", to) => match to.map(|text| parse_node(&text)).transpose() {
                Ok(to) => return self.ask_master(ticket, |ticket| Message::Transfer { to, ticket }),
                Err(error) => Err(error),
            },
            ("REMOVE", Some(node)) => match parse_node(&node) {
                Ok(node) => {
                    let change = consensus::Change::Remove(node);
                    return self.ask_master(ticket, |ticket| Message::Reconfigure { change, ticket });
                }
                Err(error) => Err(error),
            },
            _ => Err(format!(
                "ERR unknown or incomplete 'WARLOCK {name}'; try WARLOCK STATUS, MEMBERS, CHECKSUM, SNAPSHOT, \
                 TRANSFER-MASTER [node], REMOVE node"
            )),
        };
        let reply = result.unwrap_or_else(|error| Reply::Error(error.into()));
        face.answer(ticket, Answer::Reply(reply));
    }

    fn ask_master(&self, ticket: Ticket, message: impl FnOnce(u64) -> Message) {
        let mut core = self.core.borrow_mut();
        let Some(master) = core.node.master() else {
            drop(core);
            if let Some(face) = self.face.get() {
                let text = "CLUSTERDOWN there is no master now; nothing was done, try again";
                face.answer(ticket, Answer::Reply(Reply::error(text)));
            }
            return;
        };
        let mut asked = self.asked.borrow_mut();
        let number = self.next_admin.get();
        self.next_admin.set(number.wrapping_add(1));
        asked.insert(number, (ticket, Instant::now() + ADMIN_PATIENCE));
        core.ask(Address { node: master, role: RoleId::Leader }, message(number));
    }

    pub(super) fn admin_answered(&self, message: Message) {
        let Message::AdminAnswer { ticket, result } = message else { return };
        let (Some((ticket, _)), Some(face)) = (self.asked.borrow_mut().remove(&ticket), self.face.get())
        else {
            return;
        };
        let reply = match result {
            Ok(_) => Reply::Ok,
            Err(consensus::AdminError::NotMaster(_)) => {
                Reply::error("TRYAGAIN the master is changing; nothing was done, try again")
            }
            Err(consensus::AdminError::Busy) => {
                Reply::error("TRYAGAIN another change is under way; nothing was done, try again")
            }
            Err(consensus::AdminError::NotInStep) => Reply::error(
                "TRYAGAIN a majority of the new voters, or the successor, is not heard or not in step; nothing was done",
            ),
            Err(consensus::AdminError::Refused(why)) => Reply::Error(format!("ERR not done: {why}").into()),
        };
        face.answer(ticket, Answer::Reply(reply));
    }

    pub(super) fn give_up_admin(&self) {
        let now = Instant::now();
        let late: Vec<Ticket> = self
            .asked
            .borrow_mut()
            .extract_if(.., |_, (_, until)| *until <= now)
            .map(|(_, (ticket, _))| ticket)
            .collect();
        if let Some(face) = self.face.get() {
            for ticket in late {
                let text =
                    "UNCERTAIN the master did not answer in time; check WARLOCK MEMBERS before you repeat it";
                face.answer(ticket, Answer::Reply(Reply::error(text)));
            }
        }
    }
}

fn parse_node(text: &str) -> Result<NodeId, String> {
    text.trim_start_matches('n')
        .parse()
        .map(NodeId)
        .map_err(|_| format!("ERR '{text}' is no node; WARLOCK MEMBERS lists them (n1, n2, …)"))
}
