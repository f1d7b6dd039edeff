//! The examples of docs/locks.md, run as they stand there, against a real cluster.
//!
//! What Python and Node need is installed by `harness::libraries`. Go is there after `tests/tools`, a JDK after `make test-examples`; without them their
//! examples say that they were skipped.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::Cluster;
use harness::libraries::{scripts, set_up};
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = env!("CARGO_TARGET_TMPDIR");
/// The port that the examples name.
const PORT: &str = "7001";

/// The first example in a language.
fn example(language: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/locks.md");
    let text = std::fs::read_to_string(page).unwrap();
    let fence = format!("```{language}\n");
    let (_, rest) = text.split_once(&fence).unwrap_or_else(|| panic!("no example in {language}"));
    rest.split_once("```").unwrap().0.to_owned()
}

fn cluster() -> Cluster {
    let cluster = Cluster::start(env!("CARGO_BIN_EXE_warlock"), 3);
    // An example does not wait until a node listens.
    cluster.client(1).must(&["PING"]);
    cluster
}

/// After an example, what it did under the lock is done, and the lock is free.
fn check_done(cluster: &Cluster) {
    let mut client = cluster.client(2);
    assert_eq!(client.must(&["GET", "version"]).to_string(), "42");
    let info = client.must(&["LOCK.INFO", "deploy"]);
    assert_eq!(info.field("holders").map_or(0, |holders| holders.items().len()), 0, "{info}");
}

/// Runs one, with the port of a real cluster.
fn check(language: &str, command: impl FnOnce(String) -> Command) {
    let cluster = cluster();
    let code = example(language);
    assert!(code.contains(PORT), "the example in {language} names no port: {code}");
    let output = command(code.replace(PORT, &cluster.port(1).to_string())).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "the example in {language}: {}", String::from_utf8_lossy(&said));
    check_done(&cluster);
}

#[test]
fn python() {
    if let Some(directory) = set_up("python", TARGET) {
        check("python", |code| {
            let mut command = Command::new(directory.join("venv/bin/python"));
            command.arg("-c").arg(code);
            command
        });
    }
}

#[test]
fn node() {
    if let Some(directory) = set_up("node", TARGET) {
        check("js", |code| {
            let mut command = Command::new("node");
            let main = format!(
                "(async () => {{ {code}\nawait r.quit(); }})().catch((error) => {{ console.error(error); process.exit(1); }});"
            );
            command.arg("-e").arg(main).env("NODE_PATH", directory.join("node_modules"));
            command
        });
    }
}

/// A directory for a program of `name`, if `needs` can be run.
fn room(name: &str, needs: &str, hint: &str) -> Option<PathBuf> {
    if Command::new(needs).arg("--help").output().is_err() {
        println!("SKIPPED: there is no {needs} here; {hint}");
        return None;
    }
    let directory = Path::new(TARGET).join("examples").join(name);
    std::fs::create_dir_all(&directory).unwrap();
    Some(directory)
}

/// With Debian's packages of Go and of redigo, and nothing from elsewhere.
#[test]
fn go() {
    if let Some(directory) = room("go", "go", "tests/tools installs it on Debian") {
        check("go", |code| {
            let file = directory.join("main.go");
            std::fs::write(&file, code).unwrap();
            let mut command = Command::new("go");
            command.arg("run").arg(file).env("GO111MODULE", "off").env("GOPATH", "/usr/share/gocode");
            command.env("GOCACHE", directory.join("cache"));
            command
        });
    }
}

/// With a stand-in for Jedis, which Debian has not: the library's calls, to a real node.
#[test]
fn java() {
    if let Some(directory) = room("java", "javac", "`make test-examples` installs it on Debian") {
        check("java", |code| {
            let imports = "import java.util.List;\nimport redis.clients.jedis.Jedis;\nimport redis.clients.jedis.util.SafeEncoder;\n";
            let main = format!(
                "{imports}class Main {{ @SuppressWarnings(\"unchecked\") public static void main(String[] args) {{\n{code}\n}} }}\n"
            );
            let file = directory.join("Main.java");
            std::fs::write(&file, main).unwrap();
            let mut compile = Command::new("javac");
            compile.arg("-d").arg(&directory).arg("-sourcepath").arg(scripts().join("jedis")).arg(file);
            let output = compile.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let mut command = Command::new("java");
            command.arg("-cp").arg(&directory).arg("Main");
            command
        });
    }
}

include!("clients/locks.rs");

/// The page shows the very function that is compiled here.
#[test]
fn rust() {
    assert_eq!(
        example("rust"),
        include_str!("clients/locks.rs"),
        "docs/locks.md beside tests/clients/locks.rs"
    );
    let cluster = cluster();
    let client = redis::Client::open(format!("redis://127.0.0.1:{}/", cluster.port(1))).unwrap();
    deploy(&mut client.get_connection().unwrap()).unwrap();
    check_done(&cluster);
}
