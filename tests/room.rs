//! A disk that fills up: writes are refused, reads go on, and it recovers without a restart.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::{Cluster, Options, Recorded, wait_for};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

fn options(reserve: &str) -> Options {
    let mut options = Options::new(env!("CARGO_BIN_EXE_warlock"), 1);
    options.flags = vec!["--disk-reserve".into(), reserve.into()];
    options
}

/// What a disk must hold that is not to fill up by itself while others are full: 512 MiB of journal that a peer which copies may still want, the segment
/// that is written, two spares, snapshots.
const DISK_MEGABYTES: u32 = 768;

/// A small file system in memory, gone with the value.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(path: PathBuf, megabytes: u32) -> Option<SmallDisk> {
        let size = format!("size={megabytes}m");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&path).output();
        mount.is_ok_and(|output| output.status.success()).then_some(SmallDisk(path))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn writes_are_refused_while_the_disk_is_nearly_full_and_taken_again_when_there_is_room() {
    let mut cluster = Cluster::unformed(options("60mb"));
    let Some(disk) = SmallDisk::mount(cluster.root().to_path_buf(), 400) else {
        println!("SKIPPED: only root can mount a small file system");
        return;
    };
    cluster.run(1);
    let mut client = cluster.client(1);
    assert!(client.must(&["SET", "before", "1"]).is_ok());
    // Whatever else is on the disk takes the room.
    let hog = disk.0.join("hog");
    let mut bytes = 0;
    wait_for("writes to be refused", || {
        bytes += 20 << 20;
        let _ = Command::new("fallocate").args(["-l", &bytes.to_string()]).arg(&hog).output();
        client.ask(&["SET", "during", "1"]).unwrap().is_error("MISCONF").then_some(())
    });
    assert_eq!(client.must(&["GET", "before"]).to_string(), "1");
    std::fs::remove_file(&hog).unwrap();
    wait_for("writes to be taken again", || {
        client.ask(&["SET", "after", "1"]).unwrap().is_ok().then_some(())
    });
    cluster.kill(1);
    cluster.run(1);
    assert_eq!(cluster.client(1).must(&["GET", "after"]).to_string(), "1");
    drop(cluster);
}

/// Takes all the room that is left.
fn fill(disk: &SmallDisk) {
    let piece = vec![0; 1 << 20];
    let mut hog = std::fs::OpenOptions::new().append(true).create(true).open(disk.0.join("hog")).unwrap();
    while hog.write_all(&piece).is_ok() {}
    while hog.write_all(&piece[..512]).is_ok() {}
}

fn free(disk: &SmallDisk) {
    std::fs::remove_file(disk.0.join("hog")).unwrap();
}

fn is_full(cluster: &Cluster, node: u16) -> bool {
    cluster.client(node).ask(&["SET", "probe", "1"]).is_ok_and(|reply| reply.is_error("MISCONF"))
}

fn takes_writes(cluster: &Cluster, node: u16) {
    wait_for(&format!("node {node} to take writes again"), || {
        cluster.client(node).ask(&["SET", "probe", "1"]).is_ok_and(|reply| reply.is_ok()).then_some(())
    });
}

/// Cuts all journals back, so that the next part begins with the same room on every disk.
fn compact(cluster: &Cluster) {
    for node in cluster.all() {
        let mut client = cluster.client(node);
        client.must(&["WARLOCK", "SNAPSHOT"]);
        wait_for(&format!("node {node} to cut its journal back"), || {
            let bytes = client.must(&["WARLOCK", "STATUS"]).field("journal_bytes")?.integer()?;
            (bytes < 64 << 20).then_some(())
        });
    }
}

/// Disks that are really full, one after the other, under a recorded workload: what a journal cannot write down waits, the others go on, reads go on
/// everywhere, and nothing needs a restart.
#[test]
fn really_full_disks_of_a_member_of_the_master_and_of_a_majority() {
    let mut options = Options::new(env!("CARGO_BIN_EXE_warlock"), 3);
    options.flags = ["--wait-for-invitation", "--disk-reserve", "0", "--request-timeout", "5s"]
        .map(String::from)
        .to_vec();
    options.env = vec![("WARLOCK_CLUSTER_SECRET".into(), "correct horse battery".into())];
    let mut cluster = Cluster::unformed(options);
    let mut disks = Vec::new();
    for node in cluster.all() {
        std::fs::create_dir_all(cluster.path(node)).unwrap();
        let Some(disk) = SmallDisk::mount(cluster.path(node), DISK_MEGABYTES) else {
            println!("SKIPPED: only root can mount a small file system");
            return;
        };
        disks.push(disk);
        cluster.run(node);
    }
    let disk = |node: u16| &disks[usize::from(node) - 1];
    for node in cluster.all() {
        cluster.client(node).must(&["PING"]);
    }
    let join = ["WARLOCK", "JOIN", &cluster.peer_address(2), &cluster.peer_address(3)];
    assert_eq!(cluster.client(1).must(&join), "+OK 3 nodes");
    cluster.wait_for_master();
    let seed = u64::from(std::process::id());
    eprintln!("SEED={seed}");
    let work = Recorded::start(&cluster.addresses(), 1, seed, "room:");
    work.wait_for_answers(50);

    let megabyte = "x".repeat(1 << 20);
    let mut round = 0;
    // Writes through `by` until it is so. Every write must succeed: the other two have room.
    let mut write_until = |cluster: &Cluster, by: u16, what: &str, is_so: &dyn Fn() -> bool| {
        let mut client = cluster.client(by);
        wait_for(what, || {
            for _ in 0..8 {
                round += 1;
                let written = client.must(&["MSET", "big", &megabyte, "round", &round.to_string()]);
                assert!(written.is_ok(), "{what}: {written}");
            }
            is_so().then_some(())
        });
        round
    };

    // A member.
    let master = cluster.master();
    let others: Vec<u16> = cluster.all().into_iter().filter(|node| *node != master).collect();
    let (member, third) = (others[0], others[1]);
    eprintln!("the disk of node {member}, a member, is filled");
    fill(disk(member));
    let round = write_until(&cluster, third, "the member's disk to be full", &|| is_full(&cluster, member));
    let refusal = cluster.client(member).must(&["SET", "a", "1"]).to_string();
    assert!(
        refusal.contains("disk of this node is full") && refusal.contains("nothing was written"),
        "{refusal}"
    );
    assert_eq!(cluster.client(member).must(&["GET", "round"]), round.to_string(), "it still follows");
    free(disk(member));
    takes_writes(&cluster, member);
    compact(&cluster);

    // The master: it hands over.
    let master = cluster.master();
    let others: Vec<u16> = cluster.all().into_iter().filter(|node| *node != master).collect();
    eprintln!("the disk of node {master}, the master, is filled");
    fill(disk(master));
    write_until(&cluster, others[0], "the master's disk to be full", &|| is_full(&cluster, master));
    let round = write_until(&cluster, others[0], "another master", &|| cluster.master() != master);
    assert_eq!(cluster.client(master).must(&["GET", "round"]), round.to_string());
    free(disk(master));
    takes_writes(&cluster, master);
    cluster.wait_for_agreement();
    compact(&cluster);

    // A majority: first a member, then the master, which has nobody to hand over to. Nothing can be written, everything can be read.
    let master = cluster.master();
    let others: Vec<u16> = cluster.all().into_iter().filter(|node| *node != master).collect();
    let (member, third) = (others[0], others[1]);
    eprintln!("the disks of node {member} and of node {master}, the master, are filled");
    fill(disk(member));
    let round = write_until(&cluster, third, "the member's disk to be full", &|| is_full(&cluster, member));
    fill(disk(master));
    let mut client = cluster.client(third);
    let refused = wait_for("a write without a majority to fail", || {
        let reply = client.must(&["MSET", "big", &megabyte, "late", "1"]);
        reply.error().map(String::from)
    });
    assert!(refused.starts_with("UNCERTAIN"), "{refused}");
    wait_for("the master's disk to be full", || is_full(&cluster, master).then_some(()));
    for node in cluster.all() {
        let reply = cluster.client(node).must(&["GET", "round"]);
        // What the master could still write after the member's disk was full is the member's backlog, and that has a bound.
        let is_told = node == member && reply.to_string().contains("too far behind to answer");
        assert!(is_told || reply == round.to_string(), "node {node}: {reply}");
    }
    assert_eq!(cluster.master(), master, "without a majority that can write there is nobody to hand over to");
    free(disk(member));
    free(disk(master));
    for node in cluster.all() {
        takes_writes(&cluster, node);
    }
    work.wait_for_answers(50);
    work.finish(&cluster.address(member)).must_be_linearizable();
    cluster.wait_for_agreement();
    drop(cluster);
}

#[test]
fn a_node_without_enough_room_still_reads() {
    let mut cluster = Cluster::unformed(options("1000000gb"));
    cluster.run(1);
    let mut client = cluster.client(1);
    wait_for("writes to be refused", || {
        client.ask(&["SET", "a", "1"]).unwrap().is_error("MISCONF").then_some(())
    });
    assert!(client.ask(&["GET", "a"]).unwrap().error().is_none());
}
