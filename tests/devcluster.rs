//! The scripts in `devcluster/`, as a developer uses them.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::{Client, PATIENCE, Reply, wait_for};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;

/// A cluster that the scripts started; they stop it, too, whatever happens.
struct Scripts {
    directory: tempfile::TempDir,
    base: u16,
}

impl Scripts {
    fn command(&self, name: &str, arguments: &[&str]) -> Command {
        // Tests that run in the background may have been told to ignore Ctrl-C, and a shell cannot hear what it was told to ignore.
        let mut command = Command::new("env");
        command.arg("--default-signal=INT");
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("devcluster").join(name)).args(arguments);
        command
            .env("WARLOCK_DEV_DIR", self.directory.path())
            .env("WARLOCK_BINARY", env!("CARGO_BIN_EXE_warlock"));
        command
    }

    fn run(&self, name: &str, arguments: &[&str]) -> String {
        let output = self.command(name, arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "devcluster/{name} {arguments:?}: {}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    /// What a script says that must fail.
    fn fails(&self, name: &str, arguments: &[&str]) -> String {
        let output = self.command(name, arguments).output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(!output.status.success(), "devcluster/{name} {arguments:?} calls this a success: {said}");
        said
    }

    fn pids(&self) -> Vec<String> {
        self.run("status", &["--pids"]).lines().map(ToString::to_string).collect()
    }

    fn client(&self, node: u16) -> Client {
        Client::connect(&format!("127.0.0.1:{}", self.base + node))
    }

    fn is_master(&self, node: u16) -> bool {
        let info = Client::try_connect(&format!("127.0.0.1:{}", self.base + node))
            .and_then(|mut client| client.ask(&["INFO", "warlock"]));
        info.is_ok_and(|info| info.to_string().contains("warlock_role:master\r\n"))
    }

    fn master(&self, among: &[u16]) -> u16 {
        wait_for(&format!("a master among nodes {among:?}"), || {
            among.iter().copied().find(|node| self.is_master(*node))
        })
    }
}

impl Drop for Scripts {
    fn drop(&mut self) {
        let _ = self.command("down", &[]).output();
    }
}

#[test]
fn a_local_cluster_can_be_started_hurt_healed_and_stopped() {
    let (base, _guard) = harness::ports::reserve(3);
    let scripts = Scripts { directory: tempfile::tempdir().unwrap(), base };
    let shown = scripts
        .run("up", &["--nodes", "3", "--base-port", &base.to_string(), "--", "--request-timeout", "20s"]);
    let pids = scripts.pids();
    assert_eq!(pids.len(), 3);
    assert!(pids.iter().all(|pid| shown.contains(pid)), "up prints the pids: {shown}");
    assert!(shown.contains("master"), "up returns when a master serves: {shown}");
    assert!(scripts.client(1).must(&["SET", "a", "1"]).is_ok());

    scripts.run("kill", &["1"]);
    assert_eq!(scripts.pids(), pids[1..]);
    assert_eq!(scripts.client(2).must(&["INCR", "a"]), ":2");
    scripts.run("start", &["1"]);
    assert_eq!(scripts.client(1).must(&["GET", "a"]), "2");

    let master = scripts.master(&[1, 2, 3]);
    let others: Vec<u16> = (1..=3).filter(|node| *node != master).collect();
    scripts.run("stop", &[&master.to_string()]);
    assert_eq!(scripts.client(others[0]).must(&["INCR", "a"]), ":3");
    scripts.run("cont", &[&master.to_string()]);
    assert_eq!(scripts.client(master).must(&["GET", "a"]), "3");

    let master = scripts.master(&[1, 2, 3]);
    let others: Vec<u16> = (1..=3).filter(|node| *node != master).collect();
    let said = scripts.run("partition", &[&master.to_string()]);
    assert!(said.contains("CUT-OFF"), "it says how: {said}");
    let mut inside = scripts.client(master);
    inside.send(&["INCR", "a"]).unwrap();
    assert_eq!(scripts.client(others[1]).must(&["INCR", "a"]), ":4");
    scripts.run("heal", &[]);
    assert_eq!(inside.receive().unwrap(), ":5", "held while it was cut off, and done once");

    scripts.run("wipe", &["3"]);
    assert_eq!(scripts.pids().len(), 2);
    assert_eq!(scripts.client(1).must(&["INCR", "a"]), ":6");
    scripts.run("start", &["3"]);
    assert_eq!(scripts.pids().len(), 3);
    // It has replayed the log from its beginning, with what the member that is gone had done.
    assert_eq!(scripts.client(3).must(&["GET", "a"]), "6", "it is back as a new member");
    wait_for("all nodes to be in the comparison", || {
        let sums = scripts.client(1).must(&["WARLOCK", "CHECKSUM"]);
        assert!(!sums.to_string().contains("different"), "{sums}");
        sums.field("result").is_some_and(|result| *result == "the same").then_some(())
    });

    assert!(scripts.fails("kill", &["1", "7"]).contains("node 7 does not exist"));
    assert_eq!(scripts.pids().len(), 3, "all of what was asked, or nothing");
    scripts.run("down", &[]);
    assert!(scripts.pids().is_empty());
    for pid in pids {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "process {pid} is still there");
    }
    scripts.run("up", &[]);
    assert_eq!(scripts.client(1).must(&["GET", "a"]), "6", "the data is found again");
}

#[test]
fn a_password_works_and_a_node_that_is_not_back_is_no_success() {
    let (base, _guard) = harness::ports::reserve(3);
    let scripts = Scripts { directory: tempfile::tempdir().unwrap(), base };
    let port = base.to_string();
    // One flag with spaces stays one flag.
    scripts.run("up", &["--base-port", &port, "--", "--requirepass", "hunter 2"]);
    let mut client = scripts.client(1);
    assert!(client.must(&["GET", "a"]).is_error("NOAUTH"));
    assert!(client.must(&["AUTH", "hunter 2"]).is_ok());
    let said = scripts.fails("up", &["--nodes", "5", "--base-port", "9000"]);
    assert!(said.contains("3 nodes") && said.contains(&port) && said.contains("--dir"), "{said}");

    scripts.run("wipe", &["3"]);
    scripts.run("kill", &["1", "2"]);
    assert!(scripts.pids().is_empty());
    for _ in 0..2 {
        let said = scripts.fails("start", &["3"]);
        assert!(said.contains("without a master it cannot be added") && !said.contains("syntax"), "{said}");
    }
    scripts.run("start", &["1", "2", "3"]);
    let shown = scripts.run("status", &[]);
    assert!(
        shown.contains(" master ") && !shown.contains(" empty ") && !shown.contains("no answer"),
        "{shown}"
    );
}

#[test]
fn a_node_that_ends_at_once_is_named_with_what_it_said() {
    let (base, _guard) = harness::ports::reserve(3);
    let scripts = Scripts { directory: tempfile::tempdir().unwrap(), base };
    let port = base.to_string();
    let said = scripts.fails("up", &["--base-port", "65400"]);
    assert!(said.contains("--base-port must be"), "{said}");
    let said = scripts.fails("up", &["--base-port", &port, "--", "--bogus", "3"]);
    assert!(said.contains("node 1 ended") && said.contains("unexpected argument '--bogus'"), "{said}");
    let taken = std::net::TcpListener::bind(("127.0.0.1", base + 2)).unwrap();
    let said = scripts.fails("up", &[]);
    assert!(said.contains("node 2 ended") && said.contains("another process uses the port"), "{said}");
    drop(taken);
    scripts.run("up", &[]);
    assert_eq!(scripts.pids().len(), 3);
}

#[test]
fn in_the_foreground_it_stops_cleanly_and_finds_its_data_again() {
    let (base, _guard) = harness::ports::reserve(3);
    let scripts = Scripts { directory: tempfile::tempdir().unwrap(), base };
    for round in 1..=2 {
        let mut command = scripts.command("run", &["--base-port", &base.to_string()]);
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let (send, said) = mpsc::channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| send.send(line)));
        let hear = |wanted: &str| -> Vec<String> {
            let mut heard = Vec::new();
            while !heard.last().is_some_and(|line: &String| line.starts_with(wanted)) {
                let line = said.recv_timeout(PATIENCE);
                heard
                    .push(line.unwrap_or_else(|_| panic!("waited for {wanted:?} in vain, after {heard:#?}")));
            }
            heard
        };
        let table = hear("Ctrl-C stops").join("\n");
        for word in [" role ", " data", " master ", "redis-cli -p", &format!("127.0.0.1:{}", base + 3)] {
            assert!(table.contains(word), "{word:?} is not in\n{table}");
        }
        assert_eq!(scripts.client(2).must(&["INCR", "rounds"]), Reply::Integer(round));
        assert!(Command::new("kill").args(["-INT", &process.id().to_string()]).status().unwrap().success());
        hear("stopped; the data is kept");
        assert!(process.wait().unwrap().success());
        assert!(scripts.pids().is_empty(), "nodes that go on");
        // Whoever went on would hold the pipe open.
        let end = said.recv_timeout(PATIENCE);
        assert_eq!(
            end,
            Err(mpsc::RecvTimeoutError::Disconnected),
            "something that the script started goes on"
        );
    }
}
