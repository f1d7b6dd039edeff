//! What this node answers to the hosts of other nodes.

use super::Running;
use crate::host::calls::{Answer, Answerer, Question};
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpStream;

/// How long a try to reach an address may take.
const REACH: Duration = Duration::from_secs(2);

impl Running {
    pub(super) fn answerer(&self) -> Answerer {
        let me = self.me.clone();
        Rc::new(move |question| {
            let node = me.upgrade();
            Box::pin(async move {
                match node {
                    Some(node) => node.answer_call(question).await,
                    None => Answer::No("the node is stopping".into()),
                }
            })
        })
    }

    async fn answer_call(&self, question: Question) -> Answer {
        let identity = &self.identity;
        match question {
            Question::Who => Answer::Member { cluster: identity.cluster, node: identity.node },
            Question::Reach(addresses) => Answer::Unreachable(unreachable(&addresses).await),
            // The same invitation again: our answer was lost.
            Question::BeMember(invitation)
                if invitation.cluster == identity.cluster && invitation.node == identity.node =>
            {
                Answer::Done
            }
            Question::BeMember(_) => {
                Answer::No(format!("this node is {} of a cluster already", identity.node))
            }
            Question::AddMe(applicant) => self.admit(applicant).await,
            Question::Facts => Answer::Facts(self.member_facts()),
            Question::Checksum(slot) => Answer::Checksum(self.checksum_at(slot)),
        }
    }
}

/// Which of these peer addresses nobody listens on, and why.
pub async fn unreachable(addresses: &[String]) -> Vec<String> {
    let mut problems = Vec::new();
    for address in addresses {
        match tokio::time::timeout(REACH, TcpStream::connect(address)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => problems.push(format!("{address} cannot be reached: {error}")),
            Err(_) => problems.push(format!("{address} cannot be reached: no answer in {REACH:?}")),
        }
    }
    problems
}
