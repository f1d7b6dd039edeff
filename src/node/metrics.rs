//! What a node tells its operators' tools. The names are part of the interface: the Grafana dashboard uses them.

use super::Running;
use crate::host::clock;
use crate::http::exposition::Page;
use crate::http::{Probed, traffic};
use consensus::Condition;

impl Probed for Running {
    fn not_ready(&self) -> Option<String> {
        if self.is_removed.get() {
            return Some("this node was removed from its cluster".to_string());
        }
        let core = self.core.borrow();
        let view = core.node.replica().view();
        match view.current.members.get(&self.identity.node).map(|member| member.condition) {
            Some(Condition::Valid | Condition::Observer) => {}
            Some(Condition::Join) => return Some("this node still copies the data".to_string()),
            Some(Condition::Down) => return Some("this node was silent and catches up".to_string()),
            None => return Some("this node is no member of its cluster".to_string()),
        }
        let now = clock::now();
        let is_led = core.node.leader().is_master(now) || core.node.replica().age(now).is_some();
        (!is_led)
            .then(|| "no master was heard within a lease: is a majority of the nodes running?".to_string())
    }

    fn metrics(&self) -> String {
        let (facts, now) = (self.known_facts(), clock::now());
        let core = self.core.borrow();
        let (leader, replica) = (core.node.leader(), core.node.replica());
        let is_master = leader.is_master(now);
        let flag = |value: bool| f64::from(u8::from(value));
        let mut page = Page::default();
        page.info(env!("CARGO_PKG_VERSION"), &format!("n{}", facts.node), &facts.address);
        page.gauge("warlock_master", "1 on the node that is the master.", flag(is_master));
        page.ready(self.not_ready().is_none());
        page.gauge("warlock_view", "The number of the cluster configuration.", facts.view as f64);
        page.gauge("warlock_members", "Members of the cluster.", replica.view().current.members.len() as f64);
        page.gauge(
            "warlock_ballot_round",
            "The round of the master that this node follows; grows with every election.",
            core.node.ballot().round as f64,
        );
        page.counter(
            "warlock_master_changes_total",
            "Masters that this node saw come.",
            core.meters.master_changes as f64,
        );
        let lease_left =
            leader.lease_until().filter(|_| is_master).map_or(0.0, |until| until.since(now.at).as_secs_f64());
        page.gauge(
            "warlock_lease_left_seconds",
            "How long the master lease still holds; 0 on other nodes.",
            lease_left,
        );
        page.gauge("warlock_applied_slot", "The last slot that this node applied.", facts.applied as f64);
        page.gauge(
            "warlock_decided_slot",
            "The last slot that this node knows as decided.",
            replica.decided() as f64,
        );
        page.gauge(
            "warlock_durable_slot",
            "Decisions up to this slot are durable here.",
            replica.durable() as f64,
        );
        page.counter(
            "warlock_applied_commands_total",
            "Commands that this node applied.",
            core.meters.applied_commands as f64,
        );
        page.histogram(
            "warlock_commit_seconds",
            "From a client's write on this node to its answer.",
            &core.meters.commit,
        );
        page.histogram(
            "warlock_sync_seconds",
            "From handing a batch to the journal until it is durable.",
            &core.meters.sync,
        );
        page.histogram("warlock_batch_commands", "Commands in an applied slot.", &core.meters.batch);
        page.gauge(
            "warlock_waiting_requests",
            "Commands and reads that wait on this node.",
            facts.waiting as f64,
        );
        page.gauge(
            "warlock_pending_commands",
            "Commands of this node that are not executed yet.",
            replica.pending_len() as f64,
        );
        page.gauge(
            "warlock_sync_queue_batches",
            "Batches that the journal was given and that are not durable yet.",
            core.meters.syncing_len() as f64,
        );
        page.gauge("warlock_log_slots", "Decided slots that are kept in memory.", replica.log_len() as f64);
        page.gauge(
            "warlock_journal_bytes",
            "Bytes that the journal would have to replay.",
            facts.journal_bytes as f64,
        );
        page.gauge(
            "warlock_cluster_time_seconds",
            "Cluster time, which expiry goes by.",
            core.ledger.cluster_ms() as f64 / 1_000.0,
        );
        page.counter(
            "warlock_snapshot_sent_bytes_total",
            "Bytes of snapshots that this node sent to peers.",
            self.courier.borrow().sent_bytes() as f64,
        );
        page.counter(
            "warlock_snapshot_received_bytes_total",
            "Bytes of snapshots that this node got from peers.",
            self.snapshots.borrow().kept_bytes() as f64,
        );
        if let Some(free) = self.snapshots.borrow().disk_free() {
            let help = "Bytes that are free on the disk of this node's data.";
            page.gauge("warlock_disk_free_bytes", help, free as f64);
        }
        page.gauge(
            "warlock_disk_low",
            "1 while the disk of this node is nearly full, so that it refuses writes, or does not answer.",
            flag(self.room.get() != super::room::Room::Enough),
        );
        if let Some(face) = self.face.get() {
            traffic::write(&mut page, face);
        }
        self.peer_metrics(&mut page);
        page.gauge("process_resident_memory_bytes", "Resident memory.", resident_bytes());
        page.into_text()
    }
}

impl Running {
    fn peer_metrics(&self, page: &mut Page) {
        let outboxes = self.outboxes.borrow();
        let names: Vec<(String, _)> = outboxes.iter().map(|(id, outbox)| (id.to_string(), outbox)).collect();
        page.family("warlock_peer_up", "1 when the link to a peer is up.", "gauge");
        for (peer, outbox) in &names {
            page.sample("warlock_peer_up", &[("peer", peer)], f64::from(u8::from(outbox.is_up())));
        }
        page.family("warlock_peer_queue_bytes", "Bytes that wait for a peer.", "gauge");
        for (peer, outbox) in &names {
            page.sample("warlock_peer_queue_bytes", &[("peer", peer)], outbox.queued_bytes() as f64);
        }
        page.family(
            "warlock_peer_dropped_total",
            "Messages that were dropped because a peer was away or too far behind.",
            "counter",
        );
        for (peer, outbox) in &names {
            page.sample("warlock_peer_dropped_total", &[("peer", peer)], outbox.dropped() as f64);
        }
        let core = self.core.borrow();
        page.family(
            "warlock_peer_lag_slots",
            "On the master: how far behind a peer's applied slot is.",
            "gauge",
        );
        for id in outboxes.keys() {
            if let Some(applied) = core.node.leader().applied_by(*id) {
                let lag = core.ledger.applied().saturating_sub(applied);
                page.sample("warlock_peer_lag_slots", &[("peer", &id.to_string())], lag as f64);
            }
        }
    }
}

/// As the system says; 0 where it does not.
fn resident_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = status.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0.0);
    pages * rustix::param::page_size() as f64
}
