//! What happens to a hold while the command runs: one thread renews it and gives it back, another listens for its loss.
//!
//! The listener hears the lock's channel, which every node tells in the order of the log, so it does not matter which node granted the lock or which one
//! it is connected to. After each subscription it asks whether the lock is still held: what was told before nobody tells again.

use super::{ASK_AGAIN, Held, Renewal, Wanted, client, release, renew};
use crate::cli::access::AccessFlags;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;
use warlock::client::{Client, Value};

/// How often the listener asks although it heard nothing, at most: a node that fell silent is noticed so.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What becomes of the hold.
pub enum News {
    /// It is ours until then.
    Renewed(Instant),
    /// It is certainly lost.
    Lost(String),
}

/// Renews until it is told to stop; then gives the lock back.
pub fn renewing(
    flags: &AccessFlags,
    wanted: &Wanted,
    held: Held,
    news: &UnboundedSender<News>,
    stop: &Receiver<()>,
) {
    let mut client = client(flags, wanted.ttl);
    let mut until = held.until;
    let mut pause = wanted.ttl / 3;
    loop {
        match stop.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                return release(&mut client, wanted, held.token, until);
            }
        }
        pause = match renew(&mut client, wanted, held.token) {
            Renewal::Until(renewed) => {
                until = renewed;
                let _ = news.send(News::Renewed(renewed));
                wanted.ttl / 3
            }
            Renewal::Lost(why) => {
                let _ = news.send(News::Lost(why));
                return;
            }
            Renewal::Unknown => ASK_AGAIN.min(wanted.ttl / 20),
        };
    }
}

/// Listens until the lock is lost or the command is over.
pub fn listening(
    flags: &AccessFlags,
    wanted: &Wanted,
    token: i64,
    news: &UnboundedSender<News>,
    is_over: &AtomicBool,
) {
    let mut client = client(flags, wanted.ttl);
    let channel = format!("__lock__:{}", wanted.name);
    let mut subscribed = None;
    while !is_over.load(Ordering::Relaxed) {
        if subscribed != Some(client.connections()) {
            let is_sent = client.send(&["SUBSCRIBE", &channel]).is_ok();
            subscribed = is_sent.then(|| client.connections());
        }
        match client.ask(&["LOCK.CHECK", &wanted.name, &token.to_string()]) {
            Ok(Value::Integer(0)) => {
                let _ = news.send(News::Lost(format!("token {token} is not held any more")));
                return;
            }
            Ok(Value::Integer(_)) if subscribed == Some(client.connections()) => {}
            _ => {
                // This node is gone, or cut off.
                client.disconnect();
                subscribed = None;
                std::thread::sleep(ASK_AGAIN.min(wanted.ttl / 20));
                continue;
            }
        }
        if let Some(end) = next_end(&mut client, token, LOOK_EVERY.min(wanted.ttl / 3)) {
            let _ = news.send(News::Lost(format!("token {token}: {end}")));
            return;
        }
    }
}

/// How the hold ended, if it is told within `patience`; nothing, too, when the connection breaks.
fn next_end(client: &mut Client, token: i64, patience: Duration) -> Option<String> {
    let until = Instant::now() + patience;
    loop {
        let heard = client.listen(until.saturating_duration_since(Instant::now())).ok()??;
        if let Some(end) = end(&heard, token) {
            return Some(end);
        }
    }
}

/// What a message of a lock's channel says of the end of this hold: `message · __lock__:key · revoked 41`.
fn end(heard: &Value, token: i64) -> Option<String> {
    let [kind, _, text] = heard.elements() else { return None };
    let text = text.text().filter(|_| kind.text().as_deref() == Some("message"))?;
    let (what, whose) = text.split_once(' ')?;
    (what != "acquired" && whose == token.to_string()).then(|| what.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn only_the_end_of_this_very_hold_is_a_loss() {
        let heard = |kind: &'static str, text: &'static str| {
            let bulk = |text: &'static str| Value::Bulk(Bytes::from_static(text.as_bytes()));
            end(&Value::Push(vec![bulk(kind), bulk("__lock__:k"), bulk(text)]), 41)
        };
        assert_eq!(heard("message", "revoked 41").as_deref(), Some("revoked"));
        assert_eq!(heard("message", "expired 41").as_deref(), Some("expired"));
        assert_eq!(heard("message", "acquired 41"), None);
        assert_eq!(heard("message", "revoked 4"), None);
        assert_eq!(heard("subscribe", "revoked 41"), None);
    }
}
