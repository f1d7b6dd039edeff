//! The two servers: a real Redis and a real node, each a process of its own.

use crate::wire::{Client, PATIENCE};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// A server.
pub struct Side {
    pub name: &'static str,
    pub port: u16,
    child: Child,
    /// Removed when the server is gone.
    _directory: tempfile::TempDir,
}

/// In memory where the system offers it: a write then costs no disk.
fn directory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

impl Side {
    /// A Redis of the version that is the reference.
    pub fn redis() -> Side {
        let (directory, port) = (directory(), free_port());
        let mut command = Command::new("redis-server");
        // SORT ALPHA compares as the locale says.
        command.env("LC_ALL", "C");
        command.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
        ]);
        command.arg(directory.path()).stdout(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| {
            panic!("cannot start redis-server ({error}); install it, the test compares with it")
        });
        let side = Side { name: "redis", port, child, _directory: directory }.ready();
        let info =
            Client::connect(side.port).and_then(|mut client| client.ask(&["INFO", "server"])).unwrap().show();
        assert!(info.contains("redis_version:7.0."), "the reference is Redis 7.0, this is another: {info}");
        side
    }

    /// A cluster of one node.
    pub fn warlock() -> Side {
        let (directory, port, peers) = (directory(), free_port(), free_port());
        let child = Command::new(env!("CARGO_BIN_EXE_warlock"))
            .args([
                "server",
                "--bind",
                &format!("127.0.0.1:{port}"),
                "--peer-bind",
                &format!("127.0.0.1:{peers}"),
                "--dir",
            ])
            .arg(directory.path().join("node"))
            .env("WARLOCK_LOG", "warn")
            .spawn()
            .unwrap();
        Side { name: "warlock", port, child, _directory: directory }.ready()
    }

    /// Waits until it answers a write.
    fn ready(self) -> Side {
        let start = Instant::now();
        loop {
            let answer = Client::connect(self.port).and_then(|mut client| client.ask(&["FLUSHALL"]));
            match answer {
                Ok(reply) if !reply.is_error() => return self,
                other => assert!(
                    start.elapsed() < PATIENCE,
                    "{} is not ready after {PATIENCE:?}: {other:?}",
                    self.name
                ),
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    pub fn client(&self) -> Client {
        Client::connect(self.port)
            .unwrap_or_else(|error| panic!("{} takes no connection: {error}", self.name))
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
