//! Ports for a cluster: node N uses base + N for clients, base + 100 + N for peers and base + 200 + N for HTTP.
//!
//! Bases are spaced so that no two of them share a port, and `base` itself is held open for as long as the cluster lives, so that
//! tests that run at the same time, in this process or another, never get the same ports. All lie below the range from which the system
//! draws ports for outgoing connections.

use std::net::TcpListener;

const FIRST: u16 = 10_000;
const BLOCKS: u16 = 72;
/// Bases in a block of 300 ports, 10 apart: enough for 9 nodes each.
const IN_BLOCK: u16 = 10;

/// A base whose ports are free, and what keeps others from taking it.
///
/// # Panics
/// When there are none.
#[must_use]
pub fn reserve(nodes: u16) -> (u16, TcpListener) {
    assert!((1..=9).contains(&nodes), "a cluster on one machine has 1 to 9 nodes, not {nodes}");
    let count = BLOCKS * IN_BLOCK;
    let start = u16::try_from(std::process::id() * 37 % u32::from(count)).unwrap_or(0);
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    (0..count)
        .map(|n| (start + n) % count)
        .map(|n| FIRST + n / IN_BLOCK * 300 + n % IN_BLOCK * 10)
        .find_map(|base| {
            let guard = TcpListener::bind(("127.0.0.1", base)).ok()?;
            let all_free =
                (1..=nodes).all(|n| is_free(base + n) && is_free(base + 100 + n) && is_free(base + 200 + n));
            all_free.then_some((base, guard))
        })
        .expect("no free ports between 10000 and 31600")
}
