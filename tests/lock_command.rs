//! `warlock lock` and `warlock elect` with real processes: the command's exit code is passed on, and the command is over before its lock can be
//! somebody else's.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::{Client, Cluster, Reply, wait_for};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const WARLOCK: &str = env!("CARGO_BIN_EXE_warlock");

fn warlock(arguments: &[&str]) -> Command {
    let mut command = Command::new(WARLOCK);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn output(arguments: &[&str]) -> Output {
    warlock(arguments).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("no exit code: {output:?}"))
}

/// A process that is killed if the test fails.
struct Process(Child);

impl Process {
    fn start(arguments: &[&str]) -> Process {
        Process(warlock(arguments).spawn().unwrap())
    }

    fn code(&mut self, what: &str) -> Option<i32> {
        wait_for(what, || self.0.try_wait().unwrap()).code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The first line of a file, as soon as it has one.
fn line(path: &Path) -> String {
    wait_for(&format!("a line in {}", path.display()), || {
        let text = std::fs::read_to_string(path).ok()?;
        text.split_once('\n').map(|(line, _)| line.to_string())
    })
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A process that nobody has waited for yet does nothing any more, either.
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('Z') && !rest.is_empty())
}

fn holder(client: &mut Client, key: &str) -> Option<i64> {
    let info = client.must(&["LOCK.INFO", key]);
    info.field("holders")?.items().first()?.field("token")?.integer()
}

#[test]
fn the_commands_exit_code_is_passed_on_and_the_lock_given_back() {
    let cluster = Cluster::start(WARLOCK, 1);
    let nodes = cluster.address(1);
    let mut client = cluster.client(1);
    let ran = output(&["lock", "-n", &nodes, "k", "--", "sh", "-c", "echo $WARLOCK_TOKEN; exit 7"]);
    assert_eq!(code(&ran), 7, "{ran:?}");
    let token: i64 = String::from_utf8_lossy(&ran.stdout).trim().parse().unwrap();
    assert!(token > 0);
    assert_eq!(client.must(&["EXISTS", "k"]), Reply::Integer(0));
    assert_eq!(code(&output(&["lock", "-n", &nodes, "k", "--", "sh", "-c", "kill -9 $$"])), 128 + 9);
    assert_eq!(code(&output(&["lock", "-n", &nodes, "k", "--", "no-such-command-here"])), 127);
    assert_eq!(code(&output(&["lock", "-n", &nodes, "k", "--", "/"])), 126);
    assert_eq!(client.must(&["EXISTS", "k"]), Reply::Integer(0));

    client.must(&["LOCK.ACQUIRE", "k", "somebody", "120000"]);
    for wait in ["0s", "200ms"] {
        let busy = output(&["lock", "-n", &nodes, "k", "--wait", wait, "--", "true"]);
        assert_eq!(code(&busy), 124, "{busy:?}");
    }
    client.must(&["SET", "string", "v"]);
    assert_eq!(code(&output(&["lock", "-n", &nodes, "string", "--", "true"])), 125);
    assert_eq!(code(&output(&["lock", "-n", "127.0.0.1:1", "k", "--wait", "0s", "--", "true"])), 125);
}

#[test]
fn shared_locks_run_side_by_side_and_a_signal_is_passed_on() {
    let cluster = Cluster::start(WARLOCK, 1);
    let nodes = cluster.address(1);
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (directory.path().join("one"), directory.path().join("two"));
    let script = |path: &Path| {
        format!(
            "trap 'exit 9' TERM; trap 'exit 8' QUIT; echo $$ > {}; while :; do sleep 0.05; done",
            path.display()
        )
    };
    let mut first = Process::start(&["lock", "-n", &nodes, "k", "--shared", "--", "sh", "-c", &script(&one)]);
    let mut second =
        Process::start(&["lock", "-n", &nodes, "k", "--shared", "--", "sh", "-c", &script(&two)]);
    line(&one);
    line(&two);
    for (process, signal, code) in [(&mut first, "TERM", 9), (&mut second, "QUIT", 8)] {
        send_signal(signal, process.0.id());
        assert_eq!(process.code(&format!("the command to end after SIG{signal}")), Some(code));
    }
    assert_eq!(cluster.client(1).must(&["EXISTS", "k"]), Reply::Integer(0));
}

#[test]
fn the_command_outlives_a_killed_master() {
    let mut cluster = Cluster::start(WARLOCK, 3);
    let nodes = cluster.addresses().join(",");
    let directory = tempfile::tempdir().unwrap();
    let (started, go) = (directory.path().join("started"), directory.path().join("go"));
    let script = format!(
        "echo $WARLOCK_TOKEN > {}; while [ ! -e {} ]; do sleep 0.05; done; exit 5",
        started.display(),
        go.display()
    );
    let mut process = Process::start(&["lock", "-n", &nodes, "k", "--ttl", "20s", "--", "sh", "-c", &script]);
    let token: i64 = line(&started).parse().unwrap();
    let master = cluster.master();
    cluster.kill(master);
    cluster.wait_for_master();
    let mut client = cluster.client(cluster.master());
    assert_eq!(holder(&mut client, "k"), Some(token));
    // It was renewed after the fail-over: more time is left than before.
    let left = |client: &mut Client| {
        let info = client.must(&["LOCK.INFO", "k"]);
        info.field("holders").unwrap().items()[0].field("ttl").unwrap().integer().unwrap()
    };
    let mut before = left(&mut client);
    wait_for("a renewal after the fail-over", || {
        let now = left(&mut client);
        (now > std::mem::replace(&mut before, now)).then_some(())
    });
    std::fs::write(&go, "").unwrap();
    assert_eq!(process.code("the command to end"), Some(5));
    assert_eq!(holder(&mut client, "k"), None);
}

/// The command ignores SIGTERM and shows that it lives; only SIGKILL ends it.
const STUBBORN: &str = "trap '' TERM; echo $$ > FILE; while :; do sleep 0.02; done";

#[test]
fn the_command_is_over_before_somebody_else_gets_its_lock() {
    let mut cluster = Cluster::start(WARLOCK, 3);
    // Only one node is known to it, which falls silent; the others go on.
    let silent = cluster.all().into_iter().find(|node| !cluster.is_master(*node)).unwrap();
    let nodes = cluster.address(silent);
    let directory = tempfile::tempdir().unwrap();
    let started = directory.path().join("started");
    let script = STUBBORN.replace("FILE", &started.display().to_string());
    let mut process = Process::start(&["lock", "-n", &nodes, "k", "--ttl", "8s", "--", "sh", "-c", &script]);
    let pid = line(&started);
    // Not at the silent node, even if that has become the master meanwhile.
    let mut next = cluster.client(silent % 3 + 1);
    let before = holder(&mut next, "k").unwrap();
    next.send(&["LOCK.ACQUIRE", "k", "next", "60000", "WAIT", "60000"]).unwrap();
    cluster.stop(silent);
    let granted = next.receive().unwrap();
    assert!(!is_alive(&pid), "the command lives although its lock is somebody else's: {granted}");
    assert!(granted.items()[0].integer().unwrap() > before, "{granted}");
    assert_eq!(process.code("warlock lock to end"), Some(123));
}

#[test]
fn the_command_is_stopped_when_the_whole_cluster_stops_answering() {
    let mut cluster = Cluster::start(WARLOCK, 3);
    let nodes = cluster.addresses().join(",");
    let directory = tempfile::tempdir().unwrap();
    let started = directory.path().join("started");
    let script = STUBBORN.replace("FILE", &started.display().to_string());
    let mut process = Process::start(&["lock", "-n", &nodes, "k", "--ttl", "2s", "--", "sh", "-c", &script]);
    let pid = line(&started);
    cluster.all().into_iter().for_each(|node| cluster.stop(node));
    assert_eq!(process.code("warlock lock to give up"), Some(123));
    assert!(!is_alive(&pid));
    cluster.all().into_iter().for_each(|node| cluster.cont(node));
}

#[test]
fn one_leads_at_a_time_and_each_is_seen() {
    let cluster = Cluster::start(WARLOCK, 3);
    let nodes = cluster.addresses().join(",");
    let directory = tempfile::tempdir().unwrap();
    let mut watch = Process::start(&["elect", "-n", &nodes, "job", "--watch"]);
    let mut leaders = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let lead = |value: &str| {
        let path = directory.path().join(value);
        let script = STUBBORN.replace("FILE", &path.display().to_string());
        (
            Process::start(&["elect", "-n", &nodes, "job", value, "--ttl", "2s", "--", "sh", "-c", &script]),
            path,
        )
    };
    let (mut first, path) = lead("first");
    let pid = line(&path);
    let seen = leaders.next().unwrap().unwrap();
    let (token, value) = seen.split_once(' ').unwrap();
    assert_eq!(value, "first");
    let (_second, path) = lead("second");
    // Killed without a word: the kernel takes its command along, and the next one leads when the time is over.
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    line(&path);
    assert!(!is_alive(&pid));
    let seen = leaders.next().unwrap().unwrap();
    let (next, value) = seen.split_once(' ').unwrap();
    assert_eq!(value, "second");
    assert!(next.parse::<i64>().unwrap() > token.parse::<i64>().unwrap());
}

fn send_signal(name: &str, pid: u32) {
    assert!(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap().success());
}

/// The owners that wait for a lock.
fn waiters(client: &mut Client, key: &str) -> Vec<String> {
    let info = client.must(&["LOCK.INFO", key]);
    let waiters = info.field("waiters").unwrap().items();
    waiters.iter().map(|waiter| waiter.field("owner").unwrap().to_string()).collect()
}

fn wait_for_waiters(client: &mut Client, key: &str, count: usize) {
    wait_for(&format!("{count} in the line for {key}"), || {
        (waiters(client, key).len() == count).then_some(())
    });
}

#[test]
fn a_lock_that_is_taken_away_ends_its_command_at_once() {
    let mut cluster = Cluster::start(WARLOCK, 3);
    let directory = tempfile::tempdir().unwrap();
    let mut client = cluster.client(cluster.master());
    let nodes = cluster.addresses().join(",");
    let ways: [(&str, &[&str]); 4] = [
        ("revoked", &["LOCK.REVOKE", "revoked"]),
        ("deleted", &["DEL", "deleted"]),
        ("moved", &["LOCK.REVOKE", "moved"]),
        ("flushed", &["FLUSHALL"]),
    ];
    for (key, way) in ways {
        let (started, told) = (directory.path().join(key), directory.path().join(format!("{key}-told")));
        // It does not end by itself.
        let script = format!(
            "trap 'echo told > {}' TERM; echo $$ > {}; while :; do sleep 0.02; done",
            told.display(),
            started.display()
        );
        let mut process =
            Process::start(&["lock", "-n", &nodes, key, "--ttl", "5m", "--", "sh", "-c", &script]);
        let pid = line(&started);
        if key == "moved" {
            // It listens to another node when its node is gone.
            let channel = format!("__lock__:{key}");
            let listened = |cluster: &Cluster| {
                cluster.running().into_iter().find(|node| {
                    let count = cluster.client(*node).must(&["PUBSUB", "NUMSUB", &channel]);
                    count.items()[1].integer() == Some(1)
                })
            };
            let node = wait_for("a listener", || listened(&cluster));
            cluster.kill(node);
            cluster.wait_for_master();
            wait_for("a listener at another node", || listened(&cluster));
            client = cluster.client(cluster.master());
        }
        let before = Instant::now();
        client.must(way);
        assert_eq!(process.code("warlock lock to end"), Some(123), "{key}");
        // The next renewal would have come after a hundred seconds.
        assert!(before.elapsed() < Duration::from_secs(30), "{key}: {:?}", before.elapsed());
        assert_eq!(line(&told), "told");
        assert!(!is_alive(&pid), "{key}");
    }
}

#[test]
fn who_waits_ends_at_the_first_signal_and_leaves_the_line() {
    let cluster = Cluster::start(WARLOCK, 1);
    let nodes = cluster.address(1);
    let mut client = cluster.client(1);
    client.must(&["LOCK.ACQUIRE", "k", "somebody", "600000"]);
    for (name, number) in [("TERM", 15), ("INT", 2), ("QUIT", 3), ("HUP", 1)] {
        let mut process = Process::start(&["lock", "-n", &nodes, "k", "--", "true"]);
        wait_for_waiters(&mut client, "k", 1);
        send_signal(name, process.0.id());
        assert_eq!(process.code("warlock lock to end"), Some(128 + number));
        wait_for_waiters(&mut client, "k", 0);
    }
    let mut ignoring = Command::new("nohup");
    ignoring.args([WARLOCK, "lock", "-n", &nodes, "k", "--", "true"]);
    ignoring.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = Process(ignoring.spawn().unwrap());
    wait_for_waiters(&mut client, "k", 1);
    send_signal("HUP", process.0.id());
    client.must(&["LOCK.REVOKE", "k"]);
    assert_eq!(process.code("warlock lock to run its command"), Some(0));
}

#[test]
fn who_has_led_and_lost_ends_at_the_first_signal() {
    let cluster = Cluster::start(WARLOCK, 1);
    let nodes = cluster.address(1);
    let (mut client, mut other) = (cluster.client(1), cluster.client(1));
    let directory = tempfile::tempdir().unwrap();
    let started = directory.path().join("started");
    let script = format!("echo $$ > {}; sleep 100", started.display());
    let mut leader = Process::start(&["elect", "-n", &nodes, "k", "me", "--", "sh", "-c", &script]);
    line(&started);
    other.send(&["LOCK.ACQUIRE", "k", "other", "600000", "WAIT", "600000"]).unwrap();
    wait_for_waiters(&mut client, "k", 1);
    client.must(&["LOCK.REVOKE", "k"]);
    other.receive().unwrap();
    wait_for_waiters(&mut client, "k", 1);
    send_signal("TERM", leader.0.id());
    assert_eq!(leader.code("warlock elect to end"), Some(128 + 15));
    wait_for_waiters(&mut client, "k", 0);
}

#[test]
fn a_signal_ends_the_wait_for_a_cluster_that_does_not_take_the_lock_back() {
    let mut cluster = Cluster::start(WARLOCK, 1);
    let nodes = cluster.address(1);
    let directory = tempfile::tempdir().unwrap();
    let (started, go) = (directory.path().join("started"), directory.path().join("go"));
    let script = format!(
        "echo $$ > {}; while [ ! -e {} ]; do sleep 0.02; done; exit 6",
        started.display(),
        go.display()
    );
    let mut process = Process::start(&["lock", "-n", &nodes, "k", "--ttl", "5m", "--", "sh", "-c", &script]);
    let pid = line(&started);
    cluster.stop(1);
    std::fs::write(&go, "").unwrap();
    wait_for("the command to end", || (!is_alive(&pid)).then_some(()));
    let before = Instant::now();
    send_signal("TERM", process.0.id());
    assert_eq!(process.code("warlock lock to end"), Some(6));
    assert!(before.elapsed() < Duration::from_secs(30), "{:?}", before.elapsed());
    cluster.cont(1);
}

/// Ctrl-C and Ctrl-\ reach everybody in the foreground of a terminal. The command must not get them from us once more.
#[test]
fn a_key_reaches_the_command_once() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let cluster = Cluster::start(WARLOCK, 1);
    let directory = tempfile::tempdir().unwrap();
    let (started, heard) = (directory.path().join("started"), directory.path().join("heard"));
    let script = format!(
        "ulimit -c 0; trap 'echo INT >> {heard}' INT; trap 'echo QUIT >> {heard}' QUIT; trap 'echo TERM >> {heard}; exit 9' TERM; echo $$ > {}; while :; do sleep 0.02; done",
        started.display(),
        heard = heard.display()
    );
    let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&keyboard).unwrap();
    unlockpt(&keyboard).unwrap();
    let name = ptsname(&keyboard, Vec::new()).unwrap().into_string().unwrap();
    let terminal = std::fs::File::options().read(true).write(true).open(name).unwrap();
    let mut command = warlock(&["lock", "-n", &cluster.address(1), "k", "--", "sh", "-c", &script]);
    command.stdin(terminal);
    // SAFETY: two system calls between fork and exec, and nothing is allocated.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(std::io::stdin())?;
            Ok(())
        });
    }
    let mut process = Process(command.spawn().unwrap());
    line(&started);
    // It hears of a key when the command has dealt with it: two signals at once would count as one.
    send_signal("STOP", process.0.id());
    let mut keyboard = std::fs::File::from(keyboard);
    for (key, all) in [(b"\x03", "INT\n"), (b"\x1c", "INT\nQUIT\n")] {
        keyboard.write_all(key).unwrap();
        wait_for(&format!("the command to hear {all:?}"), || {
            (std::fs::read_to_string(&heard).ok()? == all).then_some(())
        });
    }
    send_signal("CONT", process.0.id());
    send_signal("TERM", process.0.id());
    assert_eq!(process.code("warlock lock to end"), Some(9));
    assert_eq!(std::fs::read_to_string(&heard).unwrap(), "INT\nQUIT\nTERM\n");
}

#[test]
fn an_unreachable_cluster_is_said_and_given_up_after_the_patience() {
    for command in [["lock", "k", "--", "true"].as_slice(), &["elect", "k", "--watch"]] {
        let mut arguments = vec![command[0], "-n", "127.0.0.1:1", "--patience", "300ms"];
        arguments.extend(&command[1..]);
        let ran = output(&arguments);
        assert_eq!(code(&ran), 125, "{ran:?}");
        assert!(String::from_utf8_lossy(&ran.stderr).contains("no node can be reached"), "{ran:?}");
    }
    let mut process = Process::start(&["lock", "-n", "127.0.0.1:1", "--patience", "10m", "k", "--", "true"]);
    let mut said = BufReader::new(process.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.next().unwrap().contains("no node can be reached"));
    assert!(said.any(|line| line.contains("goes on trying")));
    send_signal("TERM", process.0.id());
    assert_eq!(process.code("warlock lock to end"), Some(128 + 15));
}

#[test]
fn a_time_to_live_that_is_too_short_is_refused() {
    for ttl in ["0s", "1ms", "99ms"] {
        for command in [
            ["lock", "k", "--ttl", ttl, "--", "true"].as_slice(),
            &["elect", "k", "v", "--ttl", ttl, "--", "true"],
        ] {
            let ran = output(command);
            assert_eq!(code(&ran), 2, "{ran:?}");
            assert!(String::from_utf8_lossy(&ran.stderr).contains("at least 100ms"), "{ran:?}");
        }
    }
}

#[test]
fn a_leader_is_one_line_whatever_its_value() {
    let cluster = Cluster::start(WARLOCK, 1);
    let mut client = cluster.client(1);
    client.must(&["LOCK.ACQUIRE", "job", "me", "600000", "DATA", "a\nb\\c é"]);
    let mut watch = Process::start(&["elect", "-n", &cluster.address(1), "job", "--watch"]);
    let leader = BufReader::new(watch.0.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert_eq!(leader.split_once(' ').unwrap().1, r"a\nb\\c é");
}
