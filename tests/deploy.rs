//! The files of `deploy/`: every setting, flag and metric that they name exists, their linters have nothing to say, and the cluster of the compose file
//! forms when its commands are run here.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use harness::{Client, Cluster, Options, Reply, wait_for};
use serde_yaml_ng::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use warlock::settings::{self, Settings, TABLE};

const WARLOCK: &str = env!("CARGO_BIN_EXE_warlock");

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name)
}

fn read(name: &str) -> String {
    let path = path(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// One service of the compose file, with what the Dockerfile sets below it.
struct Service {
    environment: BTreeMap<String, String>,
    command: Vec<String>,
}

fn texts(value: &Value) -> Vec<String> {
    value.as_sequence().unwrap().iter().map(|word| word.as_str().unwrap().to_string()).collect()
}

fn image_environment() -> BTreeMap<String, String> {
    let words = read("docker/Dockerfile").replace("\\\n", " ");
    let line = words.lines().find(|line| line.starts_with("ENV ")).expect("the image has an environment");
    let pairs = line.split_whitespace().skip(1).map(|pair| pair.split_once('=').unwrap());
    pairs.map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

fn compose() -> BTreeMap<String, Service> {
    let mut file: Value = serde_yaml_ng::from_str(&read("docker/compose.yaml")).unwrap();
    file.apply_merge().unwrap();
    let services = file["services"].as_mapping().unwrap();
    let service = |value: &Value| {
        let mut environment = image_environment();
        for (name, value) in value["environment"].as_mapping().unwrap() {
            environment.insert(name.as_str().unwrap().into(), value.as_str().unwrap().into());
        }
        let command = value.get("command").map_or_else(|| vec!["server".to_string()], texts);
        Service { environment, command }
    };
    services.iter().map(|(name, value)| (name.as_str().unwrap().to_string(), service(value))).collect()
}

/// The settings of a node's environment, as the node itself reads them.
fn check_settings(whose: &str, environment: &BTreeMap<String, String>) {
    let known: BTreeSet<String> = TABLE.iter().map(settings::Setting::variable).collect();
    for name in environment.keys().filter(|name| name.starts_with("WARLOCK_")) {
        assert!(known.contains(name), "{whose} sets {name}, which is no setting");
    }
    let plain = |text: &String| match text.strip_prefix("${") {
        Some(_) => "what the operator gives".to_string(), // ${NAME:?why}
        None => text.replace("$(", "").replace(')', ""),
    };
    let given = settings::given(|_| None, |name| environment.get(name).map(plain), None).unwrap();
    let settings = Settings::new(&given).unwrap_or_else(|error| panic!("{whose}: {error}"));
    assert!(settings.is_guest(), "{whose}: an empty node must found no cluster of its own");
    assert!(settings.requirepass.is_some(), "{whose}: clients of other machines would be refused");
    assert!(
        settings.dir.starts_with("/var/lib/warlock/"),
        "{whose}: the node makes its directory below the volume"
    );
}

#[test]
fn every_setting_and_flag_is_real() {
    for (name, service) in compose() {
        if service.command == ["server"] {
            check_settings(&name, &service.environment);
        }
    }
    for document in serde_yaml_ng::Deserializer::from_str(&read("kubernetes/warlock.yaml")) {
        let document: Value = serde::Deserialize::deserialize(document).unwrap();
        if document["kind"] != "StatefulSet" {
            continue;
        }
        let container = &document["spec"]["template"]["spec"]["containers"][0];
        let pairs = container["env"].as_sequence().unwrap().iter().map(|pair| {
            let value = pair.get("value").and_then(Value::as_str).unwrap_or("what the operator gives");
            (pair["name"].as_str().unwrap().to_string(), value.to_string())
        });
        check_settings("the StatefulSet", &pairs.collect());
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            let path = container[probe]["httpGet"]["path"].as_str().unwrap();
            assert!(["/healthz", "/readyz"].contains(&path), "{probe} asks for {path}");
        }
    }
    let given = settings::given(|_| None, |_| None, Some(&path("systemd/warlock.toml"))).unwrap();
    assert!(Settings::new(&given).unwrap().is_guest());
}

#[test]
fn the_linters_have_nothing_to_say() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("deploy-lint");
    let output = Command::new(path("lint")).arg(directory).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => {}
        Some(75) => println!("SKIPPED: the linters cannot be installed: {said}"),
        _ => panic!("{said}"),
    }
}

#[test]
fn systemd_takes_the_unit_and_finds_it_closed() {
    let directory = tempfile::tempdir().unwrap();
    let unit = directory.path().join("warlock.service");
    // It looks for the binary, which is not installed here.
    std::fs::write(&unit, read("systemd/warlock.service").replace("/usr/local/bin/warlock", WARLOCK))
        .unwrap();
    let analyze = |arguments: &[&str]| {
        let mut command = Command::new("systemd-analyze");
        command.args(arguments).arg(&unit).env("SYSTEMD_PAGER", "").output()
    };
    let Ok(verified) = analyze(&["verify"]) else {
        return println!("SKIPPED: there is no systemd-analyze");
    };
    let said = String::from_utf8_lossy(&verified.stderr);
    // What it says of other units of this machine is not ours.
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("warlock")).collect();
    assert!(ours.is_empty(), "{said}");
    // 0 is closed, 100 is open.
    let closed = analyze(&["security", "--offline=true", "--threshold=20"]).unwrap();
    assert!(closed.status.success(), "{}", String::from_utf8_lossy(&closed.stdout));
}

/// A value of the compose file for node `number`, here instead of in a container.
fn here(cluster: &Cluster, text: &str) -> String {
    let mut text = text.to_string();
    for node in cluster.all() {
        text = text.replace(&format!("warlock{node}:16379"), &cluster.peer_address(node));
        text = text.replace(&format!("warlock{node}:6379"), &cluster.address(node));
    }
    text.replace("127.0.0.1", "localhost") // a name, as in the compose file
}

#[test]
fn the_compose_files_cluster_forms_and_forming_it_again_is_no_error() {
    let services = compose();
    let mut cluster = Cluster::unformed(Options::new(WARLOCK, 3));
    let secrets = [
        ("WARLOCK_CLUSTER_SECRET", "a secret of this test"),
        ("WARLOCK_REQUIREPASS", "a password of this test"),
    ];
    for node in cluster.all() {
        let service = &services[&format!("warlock{node}")];
        assert_eq!(service.command, ["server"]);
        let mut environment = service.environment.clone();
        // Where a container has the same address and directory as all others, a process here needs its own: the harness gives them as flags.
        for name in ["WARLOCK_BIND", "WARLOCK_PEER_BIND", "WARLOCK_HTTP"] {
            assert!(environment[name].starts_with("0.0.0.0:"), "{name} is {}", environment[name]);
            environment.remove(name);
        }
        environment.extend(secrets.map(|(name, value)| (name.to_string(), value.to_string())));
        let environment: Vec<(String, String)> =
            environment.into_iter().map(|(name, value)| (name, here(&cluster, &value))).collect();
        cluster.set_env(environment);
        cluster.run(node);
    }
    for node in cluster.all() {
        wait_for("an empty node that lives", || (cluster.http(node, "/healthz")?.0 == 200).then_some(()));
        let (status, why) = cluster.http(node, "/readyz").unwrap();
        assert_eq!((status, why.contains("waits for an invitation")), (503, true), "{why}");
        let (_, page) = cluster.http(node, "/metrics").unwrap();
        assert!(page.contains("warlock_ready 0\n"), "{page}");
        let healthy = warlock(&["cli", "--nodes", &cluster.address(node), "ping"], &secrets);
        assert_eq!(healthy.as_deref(), Ok("PONG\n"), "what the image's health check asks");
    }
    let form = &services["form"].command;
    let form: Vec<String> = form.iter().map(|word| here(&cluster, word)).collect();
    let form: Vec<&str> = form.iter().map(String::as_str).collect();
    let formed = warlock(&form, &secrets).unwrap();
    assert!(formed.contains("OK 3 nodes"), "{formed}");
    for node in cluster.all() {
        wait_for("a node that is ready", || (cluster.http(node, "/readyz")?.0 == 200).then_some(()));
    }
    let again = warlock(&form, &secrets).unwrap();
    assert!(again.contains("already"), "{again}");
    let strangers = [form[0], form[1], form[2], form[3], "localhost:1"];
    let refused = warlock(&strangers, &secrets).unwrap_err();
    assert!(refused.contains("of a cluster already"), "{refused}");

    let mut client = login(&cluster, 1, secrets[1].1);
    assert_eq!(client.must(&["SET", "greeting", "hello"]), Reply::Simple("OK".into()));
    cluster.kill(1);
    assert_eq!(login(&cluster, 3, secrets[1].1).must(&["GET", "greeting"]).text().as_deref(), Some("hello"));
}

fn login(cluster: &Cluster, node: u16, password: &str) -> Client {
    let mut client = cluster.client(node);
    client.must(&["AUTH", password]);
    client
}

/// Runs a command of ours; what it printed, or what it complained about.
fn warlock(arguments: &[&str], environment: &[(&str, &str)]) -> Result<String, String> {
    let output = Command::new(WARLOCK).args(arguments).envs(environment.iter().copied()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}
