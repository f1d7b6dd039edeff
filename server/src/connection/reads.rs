//! Reading: at once where that is allowed, else as soon as it is; and what a client that caches may keep of it.
//!
//! A key whose time has passed by the clock, but not yet by the log, is not decided here: the clock of another master could say otherwise later. The
//! read asks the log to go on (the master sweeps, and with it the log's time), and is done again when it has.

use super::places::{Call, Filling, Finding, Place, Read};
use super::{Connection, State};
use crate::resp::Request;
use bytes::Bytes;
use std::time::Duration;
use storage::commands::{CommandSpec, Group, lookup};
use storage::machine::View;
use storage::reply::Reply;

/// The keys that a command reads. Of a script that goes through the log it is known only which it names; what it read there without a name is not known.
pub(super) fn keys_read(request: &Request) -> Vec<Bytes> {
    let words: Vec<&[u8]> = request.iter().collect();
    let Some((name, args)) = words.split_first() else { return Vec::new() };
    let reads = lookup(name).filter(|spec| !spec.is_write() || spec.group == Group::Scripting);
    let positions = reads.map(|spec| spec.keys.positions(args)).unwrap_or_default();
    positions.into_iter().filter_map(|at| args.get(at)).map(|key| Bytes::copy_from_slice(key)).collect()
}

impl Connection {
    /// Reads at once if that is allowed here, else as soon as it is.
    pub(super) fn read(&self, read: Read, call: Call, state: &mut State) {
        if state.is_readonly && matches!(read, Read::Command { .. }) {
            return self.read_stale(&read, &call, state);
        }
        if !state.places.has_reads() {
            let mut finding = None;
            self.face.engine().read_now(&mut |view| finding = Some(self.look_at(view, &read, false)));
            match finding {
                Some(Finding::Due) => {
                    let place = state.places.push(Place::Read(read), Some(call));
                    return self.face.engine().expire(self.ticket(place));
                }
                Some(finding) => {
                    let reply = self.found(finding, state);
                    self.face.look_at_clock();
                    self.count(&call, &reply, state);
                    state.done(reply);
                    return self.face.shrink_tracking();
                }
                None => {}
            }
        }
        let place = state.places.push(Place::Read(read), Some(call));
        self.face.engine().read_later(self.ticket(place));
    }

    /// Reads behind the connection's own writes, and before what it writes next, if the node can do that now. Nothing is held up by it then. If it cannot, the request comes back.
    pub(super) fn read_behind(
        &self,
        spec: &CommandSpec,
        request: Request,
        call: Call,
        state: &mut State,
    ) -> Result<(), Request> {
        let has_room = state.places.may_ride() && !state.must_hear_first(self);
        if state.is_readonly || self.is_tracked(state) || !has_room {
            return Err(request);
        }
        let words: Vec<&[u8]> = request.iter().collect();
        let payload = self.encode(spec, state.db, &words);
        let bytes = payload.len() + request.bytes_held();
        if !self.face.engine().read_behind(payload, self.ticket(state.places.next())) {
            return Err(request);
        }
        self.face.show(state.db, &self.address, request.iter());
        state.places.push(Place::Ride(bytes), Some(Call { request: Some(request), ..call }));
        Ok(())
    }

    /// Does the reads that are allowed, in order, as long as there is room for what they find.
    pub(super) fn read_allowed(&self, state: &mut State) {
        while let Some(place) = state.next_read(self)
            && let Some((Place::Allowed(read), call)) = state.places.take(place)
        {
            let mut finding = Finding::Reply(Reply::Null);
            self.face.engine().read(&mut |view| finding = self.look_at(view, &read, false));
            if matches!(finding, Finding::Due) {
                state.places.put_back(place, Place::Read(read), call);
                return self.face.engine().expire(self.ticket(place));
            }
            let reply = self.found(finding, state);
            if let Some(call) = call {
                self.face.look_at_clock();
                self.count(&call, &reply, state);
            }
            self.take_pushed(state);
            let protocol = state.protocol;
            state.places.fill(place, Filling::Reply(reply), protocol);
        }
    }

    /// Reads this node's own state, if a master vouched for it not too long ago. Nobody else is asked.
    fn read_stale(&self, read: &Read, call: &Call, state: &mut State) {
        let age_max = Duration::from_millis(self.face.tunable.borrow().stale_ms_max);
        let age = self.face.engine().age();
        let reply = if age.is_some_and(|age| age <= age_max) {
            self.read_here(read, state)
        } else {
            let age = age.map_or("of unknown age".to_string(), |age| format!("{} ms old", age.as_millis()));
            let text = format!(
                "STALE this node's state may be {age}, more than readonly-max-age-ms ({}); ask another node, or send READWRITE",
                age_max.as_millis()
            );
            Reply::Error(text.into())
        };
        self.face.look_at_clock();
        self.count(call, &reply, state);
        state.done(reply);
        self.face.shrink_tracking();
    }

    /// Reads this node's own state as it is.
    pub(super) fn read_here(&self, read: &Read, state: &mut State) -> Reply {
        let mut finding = Finding::Reply(Reply::Null);
        self.face.engine().read(&mut |view| finding = self.look_at(view, read, true));
        self.found(finding, state)
    }

    /// Does a read. Its keys are remembered in the same step, for a client that caches.
    pub(super) fn look_at(&self, view: &View<'_>, read: &Read, takes_log_time: bool) -> Finding {
        let finding = read.run(view);
        if view.has_due() && !takes_log_time {
            return Finding::Due;
        }
        self.face.missed(&view.take_misses());
        if let Read::Command { request, is_tracked: true, .. } = read {
            let mut tracking = self.face.tracking.borrow_mut();
            if tracking.of(self.id).is_some() {
                keys_read(request).iter().for_each(|key| tracking.remember(self.id, key));
            }
        }
        finding
    }

    pub(super) fn found(&self, finding: Finding, state: &mut State) -> Reply {
        match finding {
            Finding::Reply(reply) => {
                // Many names of one large value are a short request: it is looked at before it is written out.
                let (bytes, bytes_max) = (reply.bytes_at_most(), self.face.tunable.borrow().output_bytes_max);
                if bytes <= bytes_max {
                    return reply;
                }
                Reply::Error(
                    format!(
                        "ERR the reply has about {bytes} bytes, more than client-output-buffer-limit ({bytes_max}); ask for less at once"
                    )
                    .into(),
                )
            }
            Finding::Due => Reply::error("TRYAGAIN a key's time passes this moment; nothing was read"),
            Finding::Watched(watched) => {
                state.watching.add(watched, self.face.settings.limits.request_bytes_max)
            }
        }
    }
}
