//! A node inside a program: `cargo run --example embedded`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let node = warlock::Node::builder().dir("data/embedded").bind("127.0.0.1:0").start()?;
    println!("a node serves on {}; its data stays in data/embedded", node.address());

    let mut client = node.client();
    let runs = client.ask(&["INCR", "runs"])?;
    println!("this program ran {} times", runs.text().unwrap_or_default());

    let lock = client.ask(&["LOCK.ACQUIRE", "report", "embedded", "10000"])?;
    let token = lock.field("token").and_then(warlock::client::Value::integer);
    println!("the lock `report` is ours, with the fencing token {}", token.unwrap_or(0));
    node.stop()?;
    Ok(())
}
