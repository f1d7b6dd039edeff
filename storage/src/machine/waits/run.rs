//! Whose command a transaction runs, and what it leaves to do and to say.

use super::super::events::{Caller, Event, Undo};
use super::super::locks::Taken;
use super::Client;
use crate::reply::Reply;
use bytes::Bytes;
use std::collections::VecDeque;

/// Whose command a transaction runs, and what it leaves to do and to say.
#[derive(Default)]
pub(crate) struct Run<'m> {
    pub(crate) caller: Caller,
    pub(crate) client: Client,
    /// The command as it came through the log.
    pub(super) payload: &'m [u8],
    /// How deeply commands run inside commands.
    pub(crate) depth: u32,
    /// Set while a wait runs again.
    pub(super) is_serving: bool,
    pub(super) lets_pass: bool,
    /// The key whose line is being served.
    pub(super) serving_key: Option<(u8, Vec<u8>)>,
    /// Keys that were written or removed, for those who wait.
    pub(super) touched: VecDeque<(u8, Vec<u8>)>,
    /// Databases, as bits, all of whose keys were.
    pub(super) touched_databases: u16,
    pub(super) undo: Option<Undo>,
    /// Something that no command may do was tried: the reply in its place.
    pub(crate) refusal: Option<Reply>,
    /// What the command did stays done although its reply is an error: a script that failed half-way.
    pub(crate) keeps: bool,
    pub(crate) events: Vec<Event>,
    /// Locks that it took, and that are young.
    pub(crate) taken: Vec<Taken>,
    /// Keys that were looked for in vain, if somebody wants to know; told also if the command fails.
    pub(crate) missed: Vec<(u8, Bytes)>,
}

/// What a command that ran inside another leaves for those who wait.
pub(crate) struct Left {
    touched: VecDeque<(u8, Vec<u8>)>,
    touched_databases: u16,
    taken: Vec<Taken>,
}

impl<'m> Run<'m> {
    /// For a command that runs inside this one, as a transaction of its own.
    pub(crate) fn inside(&self) -> Run<'m> {
        Run {
            caller: self.caller,
            client: self.client.clone(),
            payload: self.payload,
            depth: self.depth,
            is_serving: self.is_serving,
            serving_key: self.serving_key.clone(),
            ..Run::default()
        }
    }

    /// What such a command leaves at its end.
    pub(crate) fn leave(&mut self) -> Left {
        let touched = std::mem::take(&mut self.touched);
        let taken = std::mem::take(&mut self.taken);
        Left { touched, touched_databases: self.touched_databases, taken }
    }

    /// Takes it over, with what the command said.
    pub(crate) fn take_over(&mut self, left: Left, events: Vec<Event>) {
        self.touched.extend(left.touched);
        self.touched_databases |= left.touched_databases;
        self.taken.extend(left.taken);
        self.events.extend(events);
    }
}
