//! Measures what clients feel when the master dies (kill -9) and when it hands over (TRANSFER-MASTER), under load.
//!
//! What is measured is the longest time that any client of a node that lives waited between two answers. At the end every counter is compared with
//! what its client was told: no acknowledged write may be lost, none may have run twice.
//!
//! `failover [--rounds 50] [--clients 4] [--binary path]`

use std::process::ExitCode;
use std::time::Duration;
use warlock_harness::counting::Counting;
use warlock_harness::report::{distribution, measured_binary, option, progress};
use warlock_harness::{Cluster, wait_for};

/// The lease of a cluster with default settings.
const LEASE: Duration = Duration::from_millis(1_000);
const ANSWERS: u64 = 20;

fn main() -> ExitCode {
    let rounds: usize = option("--rounds", 50);
    let mut cluster = Cluster::start(measured_binary(), 3);
    let nodes: Vec<(u16, String)> = cluster.all().into_iter().zip(cluster.addresses()).collect();
    let clients = Counting::start(&nodes, option("--clients", 4));
    clients.wait_for_answers(&cluster.all(), ANSWERS);

    let mut pauses = Vec::new();
    let before = clients.failed(&cluster.all());
    for round in 1..=rounds {
        let pause = transfer(&cluster, &clients);
        progress("transfer", round, rounds, &format!("last {} ms", pause.as_millis()));
        pauses.push(pause);
    }
    let failed = clients.failed(&cluster.all()) - before;
    let mut gaps = Vec::new();
    for round in 1..=rounds {
        let gap = kill(&mut cluster, &clients);
        progress("kill -9 ", round, rounds, &format!("last {} ms", gap.as_millis()));
        gaps.push(gap);
    }
    let checked = clients.finish(&cluster.address(1));

    let target = LEASE + Duration::from_millis(500);
    let within = |values: &[Duration], limit| values.iter().filter(|value| **value <= limit).count();
    println!(
        "transfer: {}; {} of {rounds} within 100 ms; {failed} requests failed",
        distribution(pauses.clone()),
        within(&pauses, Duration::from_millis(100)),
    );
    println!(
        "kill -9:  {}; {} of {rounds} within lease + 500 ms",
        distribution(gaps.clone()),
        within(&gaps, target)
    );
    match checked {
        Ok(total) => println!("{total} acknowledged writes: none lost, none done twice"),
        Err(wrong) => {
            println!("{wrong}");
            return ExitCode::FAILURE;
        }
    }
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Hands the mastership to the next node. The pause that clients felt.
fn transfer(cluster: &Cluster, clients: &Counting) -> Duration {
    let (master, all) = (cluster.master(), cluster.all());
    let heir = master % 3 + 1;
    let mut admin = cluster.client(heir % 3 + 1);
    clients.wait_for_answers(&all, ANSWERS);
    clients.listen();
    wait_for("the heir to be in step", || {
        admin.must(&["WARLOCK", "TRANSFER-MASTER", &format!("n{heir}")]).is_ok().then_some(())
    });
    wait_for("the heir to be master", || cluster.is_master(heir).then_some(()));
    clients.wait_for_answers(&all, ANSWERS);
    clients.longest_silence(&all)
}

/// Kills the master and starts it again. How long clients of the other nodes had no answer.
fn kill(cluster: &mut Cluster, clients: &Counting) -> Duration {
    let master = cluster.master();
    let others: Vec<u16> = cluster.all().into_iter().filter(|node| *node != master).collect();
    clients.wait_for_answers(&cluster.all(), ANSWERS);
    clients.listen();
    cluster.kill(master);
    cluster.wait_for_master();
    clients.wait_for_answers(&others, ANSWERS);
    let gap = clients.longest_silence(&others);
    cluster.run(master);
    clients.wait_for_answers(&cluster.all(), ANSWERS);
    gap
}
