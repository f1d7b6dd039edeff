//! A disk that fills up: writes are refused, reads go on, and it recovers without a restart.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::{Cluster, Options, wait_for};
use std::path::PathBuf;
use std::process::Command;

fn options(reserve: &str) -> Options {
    let mut options = Options::new(env!("CARGO_BIN_EXE_warlock"), 1);
    options.flags = vec!["--disk-reserve".into(), reserve.into()];
    options
}

/// A small file system in memory, gone with the value.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(path: PathBuf) -> Option<SmallDisk> {
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=400m", "tmpfs"]).arg(&path).output();
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
    let Some(disk) = SmallDisk::mount(cluster.root().to_path_buf()) else {
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
