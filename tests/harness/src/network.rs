//! A network of its own for each node: namespaces on one bridge, whose packets can be lost in one direction.
//!
//! A loss is made by a wrong entry in the sender's neighbour table: its packets leave for a machine that does not exist, without any error, as in a
//! network that drops them. Clients are on the bridge itself and reach every node all the time.

use std::io::Write;
use std::process::Command;

/// The namespaces of one cluster. They are gone with this value.
pub struct Network {
    name: String,
    net: u32,
    nodes: u16,
}

impl Network {
    /// Makes it, or says why that is not possible here.
    ///
    /// # Errors
    /// Not root, no `ip`, or a kernel without namespaces or bridges.
    pub fn new(nodes: u16) -> Result<Network, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("network namespaces need root".into());
        }
        remove_orphans();
        let pid = std::process::id();
        let network = Network { name: format!("wl{pid}"), net: pid % 250, nodes };
        let bridge = network.bridge();
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        ip(&["addr", "add", &format!("{}/24", network.host(254)), "dev", &bridge])?;
        ip(&["link", "set", &bridge, "up"])?;
        for node in 1..=nodes {
            let (space, port) = (network.namespace(node), format!("{}v{node}", network.name));
            ip(&["netns", "add", &space])?;
            ip(&["link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &space])?;
            ip(&["link", "set", &port, "master", &bridge, "up"])?;
            ip(&["-n", &space, "addr", "add", &format!("{}/24", network.host(node)), "dev", "eth0"])?;
            ip(&["-n", &space, "link", "set", "eth0", "up"])?;
            ip(&["-n", &space, "link", "set", "lo", "up"])?;
        }
        Ok(network)
    }

    /// The same for a test that says so and goes on without it, or passes, where it is not possible.
    #[must_use]
    pub fn or_skip(nodes: u16, what: &str) -> Option<Network> {
        let made = Network::new(nodes).inspect_err(|why| {
            // Not by a macro: the test runner hides what those print.
            let _ = writeln!(std::io::stderr(), "SKIPPED {what}: {why}");
        });
        made.ok()
    }

    /// For [`crate::Options::places`].
    #[must_use]
    pub fn places(&self) -> Vec<(String, String)> {
        (1..=self.nodes).map(|node| (self.host(node), self.namespace(node))).collect()
    }

    /// From now on nothing that `from` sends reaches `to`. The other direction stays.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn lose(&self, from: u16, to: u16) {
        let nobody = "02:00:00:00:00:99";
        self.neighbour(
            from,
            &["replace", &self.host(to), "lladdr", nobody, "nud", "permanent", "dev", "eth0"],
        );
    }

    /// Cuts a node off from all others, in both directions.
    pub fn isolate(&self, node: u16) {
        for other in (1..=self.nodes).filter(|other| *other != node) {
            self.lose(node, other);
            self.lose(other, node);
        }
    }

    /// Nothing is lost any more.
    pub fn heal(&self) {
        for from in 1..=self.nodes {
            self.neighbour(from, &["flush", "dev", "eth0", "nud", "permanent"]);
        }
    }

    fn neighbour(&self, node: u16, words: &[&str]) {
        let space = self.namespace(node);
        let all: Vec<&str> = ["-n", &space, "neigh"].iter().chain(words).copied().collect();
        ip(&all).expect("the neighbour table can be changed");
    }

    fn bridge(&self) -> String {
        format!("{}br", self.name)
    }

    fn namespace(&self, node: u16) -> String {
        format!("{}n{node}", self.name)
    }

    fn host(&self, node: u16) -> String {
        format!("10.213.{}.{node}", self.net)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for node in 1..=self.nodes {
            let _ = ip(&["netns", "del", &self.namespace(node)]);
        }
        let _ = ip(&["link", "del", &self.bridge()]);
    }
}

/// What a test that was killed left behind: names carry the process.
fn remove_orphans() {
    let is_gone = |name: &str| {
        let digits: String =
            name.strip_prefix("wl").unwrap_or("").chars().take_while(char::is_ascii_digit).collect();
        !digits.is_empty() && !std::path::Path::new(&format!("/proc/{digits}")).exists()
    };
    let list = |words: &[&str]| ip(words).unwrap_or_default();
    for line in list(&["netns", "list"]).lines() {
        let name = line.split_whitespace().next().unwrap_or("");
        if is_gone(name) {
            let _ = ip(&["netns", "del", name]);
        }
    }
    for line in list(&["-o", "link", "show", "type", "bridge"]).lines() {
        let name = line.split(':').nth(1).unwrap_or("").trim();
        if is_gone(name) {
            let _ = ip(&["link", "del", name]);
        }
    }
}

fn ip(words: &[&str]) -> Result<String, String> {
    let output =
        Command::new("ip").args(words).output().map_err(|error| format!("cannot run 'ip': {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("'ip {}': {}", words.join(" "), text(&output.stderr)))
    }
}
