//! Taking a lock. A thread stands in the line; the caller reads the signals, and leaves the line at the first one.
//!
//! Who leaves must not take the lock along: it hangs up the half of the connection that sends, so that the node knows it is gone and undoes a grant
//! that is not written yet, and reads on until the other half ends. A grant that was written is read then, and given back.

use super::outage::Outage;
use super::signals::Signals;
use super::{ASK_AGAIN, Held, NotHeld, Renewal, Wanted, client, is_passing, ms, release, renew};
use crate::cli::access::AccessFlags;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use warlock::client::{Access, Client, ClientError, Value};

/// A request that waits is repeated after so long: a node that fell silent is noticed then.
const WAIT_PIECE: Duration = Duration::from_secs(300);
/// How long one node has to greet: another may be quicker.
const GREETING: Duration = Duration::from_secs(3);
/// How long to wait for the word that we are out of the line; a node that is there gives it at once.
const LEAVING: Duration = Duration::from_millis(500);

/// A place in the line.
#[derive(Default)]
struct Place {
    is_left: AtomicBool,
    socket: Mutex<Option<TcpStream>>,
}

impl Place {
    fn socket(&self) -> MutexGuard<'_, Option<TcpStream>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leave(&self) {
        self.is_left.store(true, Ordering::SeqCst);
        if let Some(socket) = self.socket().as_ref() {
            // It may be closed already.
            let _ = socket.shutdown(Shutdown::Write);
        }
    }

    fn is_left(&self) -> bool {
        self.is_left.load(Ordering::SeqCst)
    }
}

/// Takes the lock; waits for it if that is wanted.
pub async fn acquire(signals: &mut Signals, flags: &AccessFlags, wanted: &Wanted) -> Result<Held, NotHeld> {
    let place = Arc::new(Place::default());
    let (send, mut outcome) = oneshot::channel();
    {
        let (flags, wanted, place) = (flags.clone(), wanted.clone(), place.clone());
        std::thread::spawn(move || send.send(stand_in_line(&flags, &wanted, &place)));
    }
    let arrived = tokio::select! {
        biased;
        arrived = signals.next() => arrived,
        outcome = &mut outcome => {
            return outcome.unwrap_or_else(|_| Err(NotHeld::Failed("nobody stands in the line".to_string())));
        }
    };
    place.leave();
    let gone = async {
        if let Ok(Ok(held)) = outcome.await {
            let (send, given_back) = oneshot::channel();
            let (flags, wanted) = (flags.clone(), wanted.clone());
            std::thread::spawn(move || {
                release(&mut client(&flags, wanted.ttl), &wanted, held.token, Instant::now() + LEAVING);
                send.send(())
            });
            let _ = given_back.await;
        }
    };
    tokio::select! {
        () = gone => {}
        () = tokio::time::sleep(LEAVING) => {}
        _ = signals.next() => {}
    }
    Err(NotHeld::Signalled(arrived.signal))
}

fn stand_in_line(flags: &AccessFlags, wanted: &Wanted, place: &Place) -> Result<Held, NotHeld> {
    let give_up_at = wanted.wait.map(|wait| Instant::now() + wait);
    let left =
        || give_up_at.map_or(WAIT_PIECE, |at| at.saturating_duration_since(Instant::now()).min(WAIT_PIECE));
    let access = flags.access();
    let patience = access.patience;
    let mut outage = Outage::new(patience);
    let mut client = Client::new(Access { patience: patience.min(GREETING), ..access });
    loop {
        let answer = client.socket().and_then(|socket| {
            outage.is_reached();
            *place.socket() = Some(socket);
            // Whoever leaves from now on hangs up; whoever left before asks for nothing.
            if place.is_left() { Ok(Value::Nil) } else { ask(&mut client, wanted, left(), patience) }
        });
        let trouble = match answer {
            Ok(Value::Nil) if left().is_zero() || place.is_left() => return Err(NotHeld::Busy),
            Ok(Value::Nil) => {
                outage.is_over();
                continue;
            }
            Ok(Value::Error(text)) if is_passing(&text) => {
                // This node may be cut off.
                client.disconnect();
                text
            }
            Ok(Value::Error(text)) => return Err(NotHeld::Failed(text)),
            Ok(granted) => match granted.field("token").and_then(Value::integer) {
                // When it was granted is not known, only that it was: the time counts from a renewal.
                Some(token) => match first_renewal(flags, wanted, token, place) {
                    Some(held) => return Ok(held),
                    None => continue,
                },
                None => return Err(NotHeld::Failed(format!("unexpected answer {granted:?}"))),
            },
            Err(error @ (ClientError::NotRedis(..) | ClientError::Refused(..))) => {
                return Err(NotHeld::Failed(error.to_string()));
            }
            Err(error) => error.to_string(),
        };
        if left().is_zero() || place.is_left() || outage.is_enough(&trouble) {
            return Err(NotHeld::Failed(trouble));
        }
        std::thread::sleep(ASK_AGAIN.min(left()));
    }
}

fn ask(
    client: &mut Client,
    wanted: &Wanted,
    wait: Duration,
    patience: Duration,
) -> Result<Value, ClientError> {
    let (ttl, wait_ms) = (ms(wanted.ttl), wait.as_millis().to_string());
    let mut request =
        vec!["LOCK.ACQUIRE", &wanted.name, &wanted.owner, &ttl, "WAIT", &wait_ms, "DATA", &wanted.data];
    if wanted.is_shared {
        request.push("SHARED");
    }
    client.ask_within(&request, patience + wait)
}

/// Nothing: it is lost already.
fn first_renewal(flags: &AccessFlags, wanted: &Wanted, token: i64, place: &Place) -> Option<Held> {
    let mut client = client(flags, wanted.ttl);
    let give_up_at = Instant::now() + wanted.ttl;
    while Instant::now() < give_up_at {
        if place.is_left() {
            return Some(Held { token, until: Instant::now() });
        }
        match renew(&mut client, wanted, token) {
            Renewal::Until(until) => return Some(Held { token, until }),
            Renewal::Lost(_) => return None,
            Renewal::Unknown => std::thread::sleep(ASK_AGAIN.min(wanted.ttl / 10)),
        }
    }
    None
}
