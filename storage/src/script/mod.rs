//! Scripts: Lua 5.1 with the functions that Redis gives it, the same on every node.
//!
//! | file | what |
//! | --- | --- |
//! | `arena`, `vm` | the interpreter in its room; `lua/` beside this crate's sources builds it |
//! | `native`, `call`, `places` | the way into our functions and what they see of it; errors and where they come from |
//! | `prelude.lua` | what is easier said in Lua: protected globals, `gsub` with a function, `sort` |
//! | `strings`, `pattern`, `format`, `tables`, `math` | Lua's own libraries, with their work counted |
//! | `json`, `msgpack`, `packing`, `bits` | `cjson`, `cmsgpack`, `struct`, `bit` |
//! | `redis`, `outcome` | `redis.call` and the others; what a script returns, as a reply |
//!
//! What a script does depends on its text, its arguments, the stamp and the state alone: no clock, no address, no order of a hash that differs between two
//! processes. A script that uses up its work ([`WORK_MAX`]) or its memory (64 MB) stops at the same point everywhere, and nothing of it is
//! applied. Changing anything here that a script can see changes the meaning of old logs (see H3 of the commands).

mod arena;
mod bits;
mod call;
mod format;
mod json;
mod math;
mod msgpack;
mod native;
mod number;
mod outcome;
mod packing;
mod pattern;
mod places;
mod redis;
mod strings;
mod tables;
#[cfg(test)]
mod tests;
mod value;
mod vm;

pub(crate) use redis::sha1_hex;

use crate::reply::Reply;
use bytes::Bytes;
use std::cell::RefCell;
use value::Entry;

/// The work of one script, in units of about one instruction of Lua.
pub const WORK_MAX: i64 = 5_000_000;
/// Bytes of a script's text.
pub const SOURCE_BYTES_MAX: usize = 1 << 20;

/// Answers what a script asks of the database.
pub trait Host {
    /// Runs a command, its name first, and takes what it does from `work`. An error has no effect. If no work is left, the reply means nothing.
    fn call(&mut self, command: &[&[u8]], work: &mut i64) -> Reply;
}

/// A script and what it is called with.
pub struct Script<'a> {
    /// Its text.
    pub source: &'a [u8],
    /// The SHA-1 of the text, in hexadecimal.
    pub sha: String,
    /// Its KEYS.
    pub keys: &'a [&'a [u8]],
    /// Its ARGV.
    pub args: &'a [&'a [u8]],
    /// Where `math.random` begins.
    pub seed: u64,
    /// Stop after compiling.
    pub only_compile: bool,
}

/// How a script ended.
#[derive(Debug, PartialEq)]
pub enum Ended {
    /// With a reply.
    Reply(Reply),
    /// With an error of its own, as text. What it did before stays done, as in Redis.
    Failed(Bytes),
    /// It was only to be compiled, and can be.
    Compiled,
    /// It cannot be compiled.
    NotCompiled(Bytes),
    /// Its work is used up.
    Exhausted,
    /// Its memory is used up.
    Full,
    /// The system has no room for an interpreter. This node cannot go on: others may have run the script.
    NoRoom,
}

impl Script<'_> {
    /// The text without its first line, if that names the engine; the line end stays, so that lines keep their numbers.
    fn code(&self) -> &[u8] {
        if !self.source.starts_with(b"#!") {
            return self.source;
        }
        let end = self.source.iter().position(|byte| *byte == b'\n').unwrap_or(self.source.len());
        &self.source[end..]
    }
}

thread_local! {
    /// One interpreter a thread, made when first needed.
    static ROOM: RefCell<Option<Box<vm::Room>>> = const { RefCell::new(None) };
}

/// Runs a script.
pub fn run(script: &Script<'_>, host: &mut dyn Host) -> Ended {
    let Some(room) = ROOM.with(|kept| kept.borrow_mut().take()).or_else(vm::Room::new) else {
        return Ended::NoRoom;
    };
    let ended = room.run(script, host);
    ROOM.with(|kept| *kept.borrow_mut() = Some(room));
    ended
}

/// What the last script on this thread left: work, and bytes in use.
#[cfg(test)]
fn left() -> Option<(i64, usize)> {
    ROOM.with(|kept| kept.borrow().as_ref().map(|room| room.left()))
}

/// Every function of ours, by number.
fn entries(index: usize) -> Option<Entry> {
    let tables: [&[Entry]; 9] = [
        redis::ENTRIES,
        strings::ENTRIES,
        format::ENTRIES,
        tables::ENTRIES,
        math::ENTRIES,
        json::ENTRIES,
        msgpack::ENTRIES,
        packing::ENTRIES,
        bits::ENTRIES,
    ];
    tables.into_iter().flatten().nth(index).copied()
}
