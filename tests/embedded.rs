//! A node inside a program: what is left when it stops.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

#[test]
fn a_node_that_stops_closes_its_clients_connections() {
    let directory = tempfile::tempdir().unwrap();
    let node =
        warlock::Node::builder().dir(directory.path().join("node")).bind("127.0.0.1:0").start().unwrap();
    let mut client = TcpStream::connect(node.address()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    client.write_all(b"SET greeting hello\r\nSUBSCRIBE news\r\n").unwrap();
    let mut heard = Vec::new();
    while !heard.ends_with(b":1\r\n") {
        let mut some = [0; 256];
        let read = client.read(&mut some).unwrap();
        assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&heard));
        heard.extend_from_slice(&some[..read]);
    }
    node.stop().unwrap();
    assert_eq!(client.read(&mut [0; 256]).expect("the connection is closed, not left open"), 0);
}
