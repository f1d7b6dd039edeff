//! How the scripts word things: terse, values named by their payload, ballots as `view.round.node`.

use std::time::Duration;
use warlock_consensus::message::{Adopted, P1b};
use warlock_consensus::{
    AdminError, Ballot, Body, Command, Condition, Message, NodeId, Outcome, PValue, Record, Slot, Value,
    View, ViewState,
};

/// `n1,n2,n3`.
pub fn nodes<'a>(nodes: impl IntoIterator<Item = &'a NodeId>) -> String {
    join(nodes.into_iter().map(ToString::to_string), ",")
}

fn join(parts: impl IntoIterator<Item = String>, between: &str) -> String {
    parts.into_iter().collect::<Vec<_>>().join(between)
}

/// Milliseconds, rounded down.
pub fn millis(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

fn command(command: &Command) -> String {
    match command.payload.as_ref() {
        [] => "(given up)".to_string(),
        bytes => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// A value by what it holds.
pub fn value(value: &Value) -> String {
    match &value.body {
        Body::Noop => "noop".to_string(),
        Body::Start { establishes: None } => format!("start({})", value.made_in),
        Body::Start { establishes: Some(view) } => {
            format!("start({}) of view {}", value.made_in, view.number)
        }
        Body::Commands(commands) => join(commands.iter().map(command), "+"),
        Body::Reconfig(next) => view(next),
    }
}

/// A decided value, with what became of each of its commands.
pub fn applied(decided: &Value, outcomes: &[Outcome]) -> String {
    let Body::Commands(commands) = &decided.body else { return value(decided) };
    let with_outcome = |(one, outcome): (&Command, &Outcome)| match outcome {
        Outcome::Executed(_) => command(one),
        Outcome::Repeated(_) => format!("{} (ran before)", command(one)),
        Outcome::Skipped => format!("{} (skipped)", command(one)),
    };
    join(commands.iter().zip(outcomes).map(with_outcome), "+")
}

/// A member set.
pub fn view(view: &View) -> String {
    let member = |(id, condition): (&NodeId, Condition)| match condition {
        Condition::Valid => id.to_string(),
        Condition::Join => format!("{id}:join"),
        Condition::Observer => format!("{id}:observer"),
        Condition::Down => format!("{id}:down"),
    };
    let members = join(view.members.iter().map(|(id, m)| member((id, m.condition))), " ");
    let lease =
        if view.lease.as_secs() == 1 { String::new() } else { format!(" lease={}", millis(view.lease)) };
    format!("view {} [{members}]{lease}", view.number)
}

/// What is known of the configuration.
pub fn view_state(state: &ViewState) -> String {
    let established = if state.established { "established" } else { "not established" };
    format!("{}, {established}", view(&state.current))
}

fn pvalue(pvalue: &PValue) -> String {
    format!("{}@{}", place(pvalue.slot, &pvalue.value), pvalue.ballot)
}

fn place(slot: Slot, held: &Value) -> String {
    match slot {
        Slot::Data(number) => format!("{number}:{}", value(held)),
        Slot::Reconfig(_) => value(held),
    }
}

fn slot(slot: Slot) -> String {
    match slot {
        Slot::Data(number) => number.to_string(),
        Slot::Reconfig(number) => format!("view {number}"),
    }
}

/// What a new leader learned from its quorum.
pub fn adopted(adopted: &Adopted) -> String {
    let mut text = format!("leads {}", adopted.ballot);
    if adopted.watermark > 0 {
        text += &format!(", watermark {} of {}", adopted.watermark, adopted.holder);
    }
    let inherited = adopted.accepted.values().chain(&adopted.reconfig).map(pvalue);
    let inherited = join(inherited, " ");
    if !inherited.is_empty() {
        text += &format!(", inherits {inherited}");
    }
    text
}

fn p1b(answer: &P1b) -> String {
    if answer.promised > answer.ballot {
        return format!("no to {}, promised {}", answer.ballot, answer.promised);
    }
    let mut text = format!("promise {}", answer.ballot);
    if answer.watermark > 0 {
        text += &format!(", watermark {}", answer.watermark);
    }
    let accepted = join(answer.accepted.iter().chain(&answer.reconfig).map(pvalue), " ");
    if !accepted.is_empty() {
        text += &format!(", accepted {accepted}");
    }
    if let Some(next) = answer.more_from {
        text += &format!(", more from {next}");
    }
    text
}

/// Whether a node answers or a higher ballot is in its way.
fn answer(yes: String, ballot: Ballot, promised: Ballot, granted: bool) -> String {
    match (promised > ballot, granted) {
        (true, _) => format!("no to {ballot}, promised {promised}"),
        (false, true) => yes,
        (false, false) => format!("{yes}, no lease"),
    }
}

/// The name by which scripts pick messages.
pub fn kind(message: &Message) -> &'static str {
    match message {
        Message::Probe { .. } => "probe",
        Message::ProbeAnswer { .. } => "probe-answer",
        Message::P1a { .. } => "p1a",
        Message::P1b(_) => "p1b",
        Message::Refused { .. } => "refused",
        Message::P2a { .. } => "p2a",
        Message::P2b { .. } => "p2b",
        Message::Commit { .. } => "commit",
        Message::Heartbeat(_) => "heartbeat",
        Message::HeartbeatAnswer { .. } => "heartbeat-answer",
        Message::Release { .. } => "release",
        Message::Request { .. } => "request",
        Message::OutOfOrder { .. } => "out-of-order",
        Message::ReadIndex { .. } => "read-index",
        Message::ReadIndexAt { .. } => "read-index-at",
        Message::Progress { .. } => "progress",
        Message::Fetch { .. } => "fetch",
        Message::Log { .. } => "log",
        Message::SnapshotFetch { .. } => "snapshot-fetch",
        Message::SnapshotChunk { .. } => "snapshot-chunk",
        Message::ViewIs(_) => "view-is",
        Message::MayIStop => "may-i-stop",
        Message::Dismissed(_) => "dismissed",
        Message::Reconfigure { .. } => "reconfigure",
        Message::Transfer { .. } => "transfer",
        Message::AdminAnswer { .. } => "admin-answer",
        Message::Adopted(_) => "adopted",
        Message::Preempted { .. } => "preempted",
        Message::ScoutRefused { .. } => "scout-refused",
        Message::Decided { .. } => "decided",
        Message::Decision { .. } => "decision",
        Message::Learn { .. } => "learn",
        Message::MasterAlive(_) => "master-alive",
        Message::Durable { .. } => "durable",
        Message::WriteDown { .. } => "write-down",
        Message::CatchUp { .. } => "catch-up",
        Message::Applied { .. } => "applied",
        Message::Submit { .. } => "submit",
        Message::Abandon { .. } => "abandon",
        Message::Read { .. } => "read",
        Message::SnapshotTaken { .. } => "snapshot-taken",
        Message::Installed { .. } => "installed",
        Message::InstallFailed { .. } => "install-failed",
    }
}

/// The data slot of a proposal or its answer.
pub fn slot_of(message: &Message) -> Option<u64> {
    match message {
        Message::P2a { pvalue: PValue { slot: Slot::Data(slot), .. }, .. }
        | Message::P2b { slot: Slot::Data(slot), .. } => Some(*slot),
        _ => None,
    }
}

/// Whether a message is left out unless the script is verbose: the pulse, and what roles of one node tell each other.
pub fn is_routine(message: &Message, is_within_node: bool) -> bool {
    match message {
        Message::Heartbeat(_) | Message::Progress { .. } => true,
        Message::HeartbeatAnswer { ballot, promised, granted, .. } => promised == ballot && *granted,
        Message::ViewIs(_) => is_within_node,
        _ => message.is_local(),
    }
}

/// What is said.
pub fn message(message: &Message) -> String {
    match message {
        Message::Probe { ballot } => format!("probe {ballot}"),
        Message::ProbeAnswer { ballot, promised, wait } => {
            let wait = if wait.is_zero() { String::new() } else { format!(", bound {}", millis(*wait)) };
            let yes = if wait.is_empty() { "would promise" } else { "would not promise" };
            answer(format!("{yes} {ballot}{wait}"), *ballot, *promised, true)
        }
        Message::P1a { ballot, from_slot: 0, .. } => format!("p1a {ballot}"),
        Message::P1a { ballot, from_slot, .. } => format!("p1a {ballot} from slot {from_slot}"),
        Message::P1b(answer) => p1b(answer),
        Message::Refused { ballot, wait } => format!("refuses {ballot}, bound {}", millis(*wait)),
        Message::P2a { pvalue, commit, .. } => {
            let commit = if commit.slot > 0 { format!(", commit {}", commit.slot) } else { String::new() };
            format!("p2a {}/{}{commit}", pvalue.ballot, place(pvalue.slot, &pvalue.value))
        }
        Message::P2b { ballot, slot: place, promised, granted, .. } => {
            answer(format!("accepted {ballot}/{}", slot(*place)), *ballot, *promised, *granted)
        }
        Message::Commit { commit } => format!("commit {}/{}", commit.ballot, commit.slot),
        Message::Heartbeat(beat) => {
            let echo = beat.echo.map_or(String::new(), |echo| format!(", echo {}", echo.seq));
            format!("heartbeat {} of {}, commit {}{echo}", beat.seq, beat.ballot, beat.commit.slot)
        }
        Message::HeartbeatAnswer { ballot, seq, promised, granted, .. } => {
            answer(format!("heartbeat {seq} heard"), *ballot, *promised, *granted)
        }
        Message::Release { ballot, successor } => format!("release {ballot} for {successor}"),
        Message::Request { commands } => format!("request {}", join(commands.iter().map(command), "+")),
        Message::OutOfOrder { expected, .. } => format!("out of order, send again from command {expected}"),
        Message::ReadIndex { seq, .. } => format!("read index {seq}?"),
        Message::ReadIndexAt { seq, slot, .. } => format!("read index {seq} is slot {slot}"),
        Message::Progress { applied, durable, .. } => format!("progress applied {applied} durable {durable}"),
        Message::Fetch { from_slot } => format!("fetch from {from_slot}"),
        Message::Log { first, values, decided } => {
            let slots = values.iter().zip(*first..).map(|(held, slot)| format!("{slot}:{}", value(held)));
            format!("log [{}] of {decided}", join(slots, " "))
        }
        Message::SnapshotFetch { slot, offset } => format!("fetch snapshot {slot} from byte {offset}"),
        Message::SnapshotChunk { slot, offset, total, data } => {
            format!("snapshot {slot}, bytes {offset}–{} of {total}", offset + data.len() as u64)
        }
        Message::ViewIs(view) => format!("it is {}", view_state(view)),
        Message::MayIStop => "may I stop?".to_string(),
        Message::Dismissed(view) => format!("dismissed by view {}", view.current.number),
        Message::AdminAnswer { result: Ok(number), .. } => format!("ok, view {number}"),
        Message::AdminAnswer { result: Err(error), .. } => match error {
            AdminError::NotMaster(Some(node)) => format!("not done: ask {node}"),
            AdminError::NotMaster(None) => "not done: not master".to_string(),
            AdminError::Busy => "not done: busy".to_string(),
            AdminError::Refused(why) => format!("not done: {why}"),
            AdminError::NotInStep => "not done: not enough voters in step".to_string(),
        },
        Message::Preempted { ballot, promised } => format!("pre-empted: {ballot} by {promised}"),
        Message::ScoutRefused { ballot, wait } => format!("refused: {ballot} for {}", millis(*wait)),
        Message::Learn { commit, entries } => {
            let entries = entries.iter().map(|(slot, held)| format!("{slot}:{}", value(held)));
            format!("learn [{}] of {}/{}", join(entries, " "), commit.ballot, commit.slot)
        }
        Message::Decided { pvalue: decided, .. } => format!("decided {}", pvalue(decided)),
        Message::Decision { slot, value: held } => format!("decision {slot}:{}", value(held)),
        Message::Durable { slot } => format!("durable {slot}"),
        Message::WriteDown { slot } => format!("write down {slot}"),
        Message::CatchUp { slot, holder: Some(holder) } => format!("catch up to {slot} from {holder}"),
        Message::CatchUp { slot, holder: None } => format!("catch up to {slot}"),
        other => kind(other).to_string(),
    }
}

/// A record on its way to the disk.
pub fn record(record: &Record) -> String {
    match record {
        Record::Promise(ballot) => format!("promise {ballot}"),
        Record::Round(ballot) => format!("round {ballot}"),
        Record::Accept { pvalue: taken, .. } => format!("accept {}", pvalue(taken)),
        Record::Decided { slot } => format!("decided {slot}"),
        Record::Learned { slot, value: held } => format!("learned {slot}:{}", value(held)),
        Record::View(state) => view_state(state),
        Record::Lease(lease) => format!("lease {}", millis(*lease)),
        Record::Clock { stamp_ms, .. } => format!("clock {stamp_ms}"),
        Record::Incarnation(life) => format!("incarnation {life}"),
    }
}
