#![allow(clippy::unwrap_used)]

use super::*;
use std::path::Path;

fn read(
    flags: &[(&str, &str)],
    variables: &[(&str, &str)],
    file: Option<&Path>,
) -> Result<Settings, SettingError> {
    let find = |list: &[(&str, &str)], name: &str| {
        list.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_string())
    };
    Settings::new(&given(|name| find(flags, name), |name| find(variables, name), file)?)
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn a_flag_outweighs_the_environment_which_outweighs_the_file_which_outweighs_the_default() {
    let config = file("maxclients = 3\nrequest-timeout = \"3s\"\ndown-after = '3s'\n");
    let variables = [("WARLOCK_MAXCLIENTS", "2"), ("WARLOCK_REQUEST_TIMEOUT", "2s")];
    let settings = read(&[("maxclients", "1")], &variables, Some(config.path())).unwrap();
    assert_eq!(settings.maxclients, 1);
    assert_eq!(settings.request_timeout, Duration::from_secs(2));
    assert_eq!(settings.down_after, Duration::from_secs(3));
    assert_eq!(settings.lease, Duration::from_secs(1));
}

#[test]
fn a_wrong_value_is_named_with_its_source_and_the_way_out() {
    let message = |flags: &[(&str, &str)], variables: &[(&str, &str)], text: &str| {
        let config = file(text);
        read(flags, variables, Some(config.path())).unwrap_err().0
    };
    let flag = message(&[("lease", "fast")], &[], "");
    assert!(flag.contains("lease = \"fast\" (the flag --lease)") && flag.contains("10s"), "{flag}");
    let variable = message(&[], &[("WARLOCK_BIND", "6379")], "");
    assert!(variable.contains("WARLOCK_BIND") && variable.contains("host:port"), "{variable}");
    let unknown = message(&[], &[], "max_clients = 7");
    assert!(unknown.contains("\"max_clients\"") && unknown.contains("did you mean maxclients?"), "{unknown}");
    let kind = message(&[], &[], "lease = 1.5");
    assert!(kind.contains("lease") && kind.contains("wrong kind"), "{kind}");
    let toml = message(&[], &[], "lease = ");
    assert!(toml.contains("no TOML"), "{toml}");
    let pair = message(&[("request-timeout", "1s")], &[], "");
    assert!(pair.contains("request-timeout") && pair.contains("lease"), "{pair}");
    let secret = message(&[("cluster-secret", "short")], &[], "");
    assert!(secret.contains("cluster-secret") && !secret.contains("short"), "{secret}");
    let open = message(&[("wait-for-invitation", "true")], &[], "");
    assert!(open.contains("cluster-secret"), "{open}");
    let size = message(&[("client-query-buffer-limit", "1gb")], &[], "");
    assert!(size.contains("client-query-buffer-limit"), "{size}");
    let slow = message(&[("snapshot-rate", "1kb")], &[], "");
    assert!(slow.contains("snapshot-rate") && slow.contains("64kb"), "{slow}");
    for other in ["http", "peer-bind"] {
        let twice = message(&[("bind", "127.0.0.1:7001"), (other, "0.0.0.0:7001")], &[], "");
        assert!(twice.contains("bind (127.0.0.1:7001)") && twice.contains(other), "{twice}");
    }
    let derived = message(&[("bind", "127.0.0.1:7001"), ("http", "127.0.0.1:17001")], &[], "");
    assert!(derived.contains("peer-bind (127.0.0.1:17001)") && derived.contains("http"), "{derived}");
    let guest = [("join", "a:1"), ("cluster-secret", "correct horse"), ("bind", "127.0.0.1:0")];
    let lost = message(&guest, &[], "");
    assert!(lost.contains("bind") && lost.contains("announce"), "{lost}");
    for filter in ["blah", "info,blah", "", "warlock=blah"] {
        let silent = message(&[("log", filter)], &[], "");
        assert!(silent.contains("log = ") && silent.contains("debug"), "{filter}: {silent}");
    }
    for filter in ["off", "WARN", "info,warlock::host::links=debug", "info, warlock::host"] {
        read(&[("log", filter)], &[], None).unwrap();
    }
    let nowhere = message(&[("peer-announce", "0.0.0.0:7000")], &[], "");
    assert!(nowhere.contains("dial"), "{nowhere}");
}

#[test]
fn what_is_printed_can_be_read_back_and_tells_no_secret() {
    let flags = [("requirepass", "swordfish"), ("join", "a:1,b:2"), ("cluster-secret", "correct horse")];
    let find =
        |name: &str| flags.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
    let first = given(find, |_| None, None).unwrap();
    let printed = print(&first);
    assert!(!printed.contains("swordfish") && !printed.contains("horse"), "{printed}");
    let config = file(&format!("{printed}\ncluster-secret = 'correct horse'"));
    let again = read(&[], &[], Some(config.path())).unwrap();
    assert_eq!(again.join, ["a:1", "b:2"]);
    assert_eq!(again.lease, Duration::from_secs(1));
}

#[test]
fn every_setting_has_a_name_of_its_own_and_a_default_that_is_right() {
    let names: std::collections::BTreeSet<_> = TABLE.iter().map(|setting| setting.name).collect();
    assert_eq!(names.len(), TABLE.len());
    read(&[], &[], None).unwrap();
}

#[test]
fn a_variable_that_is_nearly_a_setting_is_noticed_and_others_are_let_be() {
    let names =
        ["WARLOCK_LEESE", "WARLOCK_LEASE", "WARLOCK_BIN", "WARLOCK_NODES", "WARLOCK_SERVICE_HOST", "LEESE"];
    let found = misspelt(names.map(String::from));
    assert_eq!(found, [("WARLOCK_LEESE".to_string(), "WARLOCK_LEASE".to_string())]);
    for injected in [
        "WARLOCK_PORT",
        "WARLOCK_SERVICE_PORT",
        "WARLOCK_PORT_6379_TCP_ADDR",
        "WARLOCK_TOKEN",
        "WARLOCK_TEST_FAULTS",
    ] {
        assert_eq!(misspelt([injected.to_string()]), [], "{injected}");
    }
}

#[test]
fn the_peer_port_follows_the_clients_port() {
    let peer = |bind: &str| read(&[("bind", bind)], &[], None).unwrap().peer_address();
    assert_eq!(read(&[], &[], None).unwrap().peer_address(), "127.0.0.1:16379");
    assert_eq!(peer("10.0.0.1:7001"), "10.0.0.1:17001");
    assert_eq!(peer("[::1]:60000"), "[::1]:50000");
    assert_eq!(peer("127.0.0.1:0"), "127.0.0.1:0");
}
