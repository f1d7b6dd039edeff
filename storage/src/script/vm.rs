//! The interpreter: Lua 5.1, as the system's C compiler makes it, in a room of its own.
//!
//! A room is set up once a thread: the libraries, our functions, the prelude. An image of it is kept, and every script begins from a copy of the image.
//! So no script sees what another left behind, and everything that a script can see (addresses, the collector's timing, the point at which memory
//! or work ends) is a function of the script, its arguments and the replies it got: the same on every node.
//!
//! Rules of this module, the only one that may let Lua raise an error (with `native` and `places`; `call` must not):
//! * V1: Lua raises by `longjmp`. A frame of ours that can be skipped holds nothing with a destructor; what a function of ours returns is owned by
//!   the room, not by a frame.
//! * V2: everything that can raise runs below `lua_cpcall`; at the top Lua would abort the process.
//! * V3: work is counted in units of about one instruction: a hook takes it away every [`EVERY`] instructions, the allocator for what it hands out, our
//!   functions for what they do, the interpreter for what it does inside of an instruction (`lua/meter.h`). When it is used up, every further
//!   instruction, allocation and charge fails, so that no `pcall` goes on.
//! * V4: a charge of the interpreter raises, too. Functions of Lua that raise nothing otherwise are called in quiet ([`Room::quietly`]) from frames
//!   that V1 forbids to skip.

use super::arena::Arena;
use super::call::{Call, SLOTS};
use super::native::{native, push_text};
use super::places::{PRELUDE_NAME, Raised, SCRIPT_NAME, locate};
use super::value::Value;
use super::{Ended, Host, Script, WORK_MAX, entries, outcome};
use bytes::Bytes;
use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use warlock_lua as lua;

/// Instructions between two counts.
const EVERY: c_int = 100;
/// Work for a piece of memory, and bytes of it that are one unit more.
const PIECE: usize = 4;
const BYTES_PER_UNIT: usize = 64;

const PRELUDE: &[u8] = include_bytes!("prelude.lua");

/// Everything about one interpreter. At a fixed address: Lua keeps a pointer to it.
pub(super) struct Room {
    arena: UnsafeCell<Arena>,
    state: Cell<*mut lua::lua_State>,
    /// The thread's meter. A room does not leave its thread.
    meter: *mut lua::Meter,
    /// Memory was asked for that a script may not have.
    is_full: Cell<bool>,
    pub(super) results: UnsafeCell<Vec<Value>>,
    pub(super) fault: UnsafeCell<Option<Raised>>,
    /// What runs now, and who answers its calls. Set only during [`Room::run`].
    job: Cell<*mut Job<'static>>,
}

/// One run of a script.
pub(super) struct Job<'j> {
    script: &'j Script<'j>,
    /// Answers `redis.call`.
    pub(super) host: &'j mut dyn Host,
    /// Where `math.random` is.
    pub(super) random: u64,
    /// The protocol whose types `redis.call` returns.
    pub(super) protocol: u8,
    /// How `cjson` encodes.
    pub(super) json: super::json::Settings,
    ended: Option<Ended>,
}

impl Room {
    /// An interpreter that is ready to run scripts. Nothing if the system has no room.
    pub(super) fn new() -> Option<Box<Room>> {
        let room = Box::new(Room {
            arena: UnsafeCell::new(Arena::new()?),
            state: Cell::new(null_mut()),
            meter: lua::meter(),
            is_full: Cell::new(false),
            results: UnsafeCell::default(),
            fault: UnsafeCell::new(None),
            job: Cell::new(null_mut()),
        });
        let this = (&raw const *room).cast_mut().cast::<c_void>();
        room.begin();
        // SAFETY: the room outlives its state, which is in the arena; `set_up` runs below `lua_cpcall`.
        unsafe {
            let state = lua::lua_newstate(allocate, this);
            if state.is_null() {
                return None;
            }
            room.state.set(state);
            let status = lua::lua_cpcall(state, set_up, null_mut());
            assert!(status == 0, "the prelude of scripts is wrong: {}", top_text(state));
            lua::lua_settop(state, 0);
            (*room.arena.get()).take_image();
        }
        Some(room)
    }

    /// Runs a script from a fresh start.
    pub(super) fn run(&self, script: &Script<'_>, host: &mut dyn Host) -> Ended {
        let state = self.state.get();
        let mut job =
            Job { script, host, random: script.seed, protocol: 2, json: Default::default(), ended: None };
        self.begin();
        // SAFETY: nothing refers into the arena between runs. The job is only used below, and outlives it.
        let status = unsafe {
            (*self.arena.get()).restore();
            self.job.set((&raw mut job).cast());
            lua::lua_cpcall(state, run_job, null_mut())
        };
        self.job.set(null_mut());
        // SAFETY: no call is under way.
        unsafe { (*self.results.get()).clear() };
        match job.ended {
            _ if self.is_full.get() => Ended::Full,
            _ if self.is_exhausted() => Ended::Exhausted,
            Some(ended) if status == 0 => ended,
            _ => Ended::Failed(Bytes::from_static(b"ERR the script's result cannot be read")),
        }
    }

    /// All work is there again.
    fn begin(&self) {
        let left = WORK_MAX * lua::GRAINS_PER_STEP;
        // SAFETY: the meter is this thread's, and nobody else refers to it now.
        unsafe { self.meter.write(lua::Meter { left, running: null_mut(), is_quiet: 0 }) };
        self.is_full.set(false);
    }

    /// Takes work away. False if there is none left.
    pub(super) fn spend(&self, work: usize) -> bool {
        let grains = (work as u64).saturating_mul(lua::GRAINS_PER_STEP as u64);
        // Far from where the interpreter's own subtractions would overflow.
        // SAFETY: as above; a plain number.
        let left = unsafe { (*self.meter).left.saturating_sub_unsigned(grains).max(i64::MIN / 2) };
        // SAFETY: as above.
        unsafe { (*self.meter).left = left };
        left >= 0
    }

    /// The work that is left, below zero if more was done.
    pub(super) fn work(&self) -> i64 {
        // SAFETY: as for `spend`.
        unsafe { (*self.meter).left.div_euclid(lua::GRAINS_PER_STEP) }
    }

    /// Whether more was done than there was.
    pub(super) fn is_exhausted(&self) -> bool {
        self.work() < 0
    }

    /// Does something during which no charge raises an error (V4). The caller looks afterwards whether there is work left.
    pub(super) fn quietly<T>(&self, work: impl FnOnce() -> T) -> T {
        // SAFETY: as for `spend`.
        unsafe { (*self.meter).is_quiet = 1 };
        let result = work();
        // SAFETY: as for `spend`.
        unsafe { (*self.meter).is_quiet = 0 };
        result
    }

    /// What the last script left: work, and bytes in use.
    #[cfg(test)]
    pub(super) fn left(&self) -> (i64, usize) {
        // SAFETY: no script runs.
        unsafe { ((*self.meter).left, (*self.arena.get()).live()) }
    }

    /// Where something lies.
    pub(super) fn offset(&self, piece: *const c_void) -> usize {
        // SAFETY: a short look; nobody changes the arena meanwhile.
        unsafe { (*self.arena.get()).offset(piece) }
    }

    /// The run that is under way.
    pub(super) fn with_job<T>(&self, work: impl FnOnce(&mut Job<'_>) -> T) -> Option<T> {
        let job = self.job.replace(null_mut());
        if job.is_null() {
            return None;
        }
        // SAFETY: the pointer is set only while the job lives; it was taken out, so that nobody else has it now.
        let result = work(unsafe { &mut *job });
        self.job.set(job);
        Some(result)
    }
}

/// The room of a state.
pub(super) unsafe fn room_of<'r>(state: *mut lua::lua_State) -> &'r Room {
    let mut room = null_mut();
    // SAFETY: the state was made with its room as the allocator's data; the room is not dropped before its state is gone.
    unsafe {
        lua::lua_getallocf(state, &raw mut room);
        &*room.cast::<Room>()
    }
}

unsafe extern "C" fn allocate(room: *mut c_void, piece: *mut c_void, old: usize, new: usize) -> *mut c_void {
    // SAFETY: Lua gives back what it got, with the size it asked for. Nothing here panics or raises.
    unsafe {
        let room = &*room.cast::<Room>();
        let arena = &mut *room.arena.get();
        if new == 0 {
            if !piece.is_null() {
                arena.free(piece.cast(), old);
            }
            return null_mut();
        }
        if new > old && !room.spend(PIECE + (new - old) / BYTES_PER_UNIT) {
            return null_mut();
        }
        let got = if piece.is_null() { arena.allocate(new) } else { arena.resize(piece.cast(), old, new) };
        if got.is_null() {
            room.is_full.set(true);
            // What follows cannot be the same everywhere unless it ends: a full room is the end.
            (*room.meter).left = (*room.meter).left.min(0);
        }
        got.cast()
    }
}

unsafe extern "C-unwind" fn count(state: *mut lua::lua_State, _: *mut lua::lua_Debug) {
    // SAFETY: V1: nothing here has a destructor.
    unsafe {
        if !room_of(state).spend(EVERY as usize) {
            // From now on every instruction of this thread of the script fails.
            lua::lua_sethook(state, Some(count), lua::LUA_MASKCOUNT, 1);
            lua::lua_pushnil(state);
            lua::lua_error(state);
        }
    }
}

/// Prepares a state: libraries, our functions, the prelude.
unsafe extern "C-unwind" fn set_up(state: *mut lua::lua_State) -> c_int {
    // SAFETY: below `lua_cpcall`, and V1.
    unsafe {
        let libraries: [(lua::lua_CFunction, &CStr); 4] = [
            (lua::luaopen_base, c""),
            (lua::luaopen_table, c"table"),
            (lua::luaopen_string, c"string"),
            (lua::luaopen_math, c"math"),
        ];
        for (open, name) in libraries {
            lua::lua_pushcclosure(state, open, 0);
            lua::lua_pushstring_(state, name.as_ptr());
            lua::lua_call(state, 1, 0);
        }
        let mut index = 0;
        while let Some((table, name, _)) = entries(index) {
            push_text(state, table.as_bytes());
            lua::lua_rawget_(state, lua::LUA_GLOBALSINDEX);
            if lua::lua_type(state, -1) != lua::LUA_TTABLE {
                lua::lua_settop(state, -2);
                lua::lua_createtable(state, 0, 0);
                push_text(state, table.as_bytes());
                lua::lua_pushvalue(state, -2);
                lua::lua_rawset(state, lua::LUA_GLOBALSINDEX);
            }
            push_text(state, name.as_bytes());
            lua::lua_pushnumber(state, index as f64);
            lua::lua_pushcclosure(state, native, 1);
            lua::lua_rawset(state, -3);
            lua::lua_settop(state, -2);
            index += 1;
        }
        let status =
            lua::luaL_loadbuffer(state, PRELUDE.as_ptr().cast(), PRELUDE.len(), PRELUDE_NAME.as_ptr());
        if status != 0 {
            lua::lua_error(state);
        }
        // It gives back the table that scripts see as their globals.
        lua::lua_call(state, 0, 1);
        lua::lua_replace(state, lua::LUA_GLOBALSINDEX);
        0
    }
}

/// The text on top of the stack, for a message.
unsafe fn top_text(state: *mut lua::lua_State) -> String {
    let mut length = 0;
    // SAFETY: whatever is there: `lua_tolstring` says null for what is no text.
    unsafe {
        let start = lua::lua_tolstring(state, -1, &raw mut length);
        if start.is_null() {
            return String::new();
        }
        String::from_utf8_lossy(std::slice::from_raw_parts(start.cast::<u8>(), length)).into_owned()
    }
}

/// Runs the room's job: compiles, sets KEYS and ARGV, calls, and takes the reply.
unsafe extern "C-unwind" fn run_job(state: *mut lua::lua_State) -> c_int {
    // SAFETY: below `lua_cpcall`, and V1: what the job owns is borrowed here, and `take_*` raise nothing.
    unsafe {
        // `lua_cpcall` hands over a pointer that is not needed.
        lua::lua_settop(state, 0);
        let room = room_of(state);
        let job = &mut *room.job.get();
        let script = job.script;
        let _ = room.spend(script.source.len());
        let code = script.code();
        let loaded = if code.first() == Some(&0x1B) {
            lua::lua_pushstring_(state, c"user_script:1: bytecode is not accepted".as_ptr());
            1
        } else {
            lua::luaL_loadbuffer(state, code.as_ptr().cast(), code.len(), SCRIPT_NAME.as_ptr())
        };
        if loaded != 0 {
            room.quietly(|| take_compile_error(state, job));
            return 0;
        }
        if script.only_compile {
            job.ended = Some(Ended::Compiled);
            return 0;
        }
        // KEYS and ARGV stand behind the protected globals, where scripts cannot replace them.
        lua::lua_getmetatable(state, lua::LUA_GLOBALSINDEX);
        push_text(state, b"__index");
        lua::lua_rawget_(state, -2);
        for (name, words) in [(&b"KEYS"[..], script.keys), (b"ARGV", script.args)] {
            push_text(state, name);
            lua::lua_createtable(state, c_int::try_from(words.len()).unwrap_or(0), 0);
            for (index, word) in words.iter().enumerate() {
                push_text(state, word);
                lua::lua_rawseti_(state, -2, index as c_int + 1);
            }
            lua::lua_rawset(state, -3);
        }
        lua::lua_settop(state, 1);
        lua::lua_pushcclosure(state, locate, 0);
        lua::lua_insert(state, 1);
        lua::lua_sethook(state, Some(count), lua::LUA_MASKCOUNT, EVERY);
        let status = lua::lua_pcall(state, 0, 1, 1);
        lua::lua_sethook(state, None, 0, 0);
        if room.is_exhausted() || room.is_full.get() {
            return 0;
        }
        if lua::lua_checkstack(state, SLOTS) == 0 {
            return 0;
        }
        room.quietly(|| take_outcome(state, room, status != 0));
        0
    }
}

/// Raises nothing.
unsafe fn take_compile_error(state: *mut lua::lua_State, job: &mut Job<'_>) {
    // SAFETY: the message is a text already.
    let text = unsafe { top_text(state) };
    job.ended = Some(Ended::NotCompiled(format!("ERR Error compiling script (new function): {text}").into()));
}

/// Raises nothing: the value on top of the stack becomes the script's reply or error.
unsafe fn take_outcome(state: *mut lua::lua_State, room: &Room, has_failed: bool) {
    // SAFETY: the caller made sure of the slots.
    let call = unsafe { Call::new(state, room) };
    let top = call.len();
    let value = call.value(top);
    // SAFETY: the job is there while it runs.
    let job = unsafe { &mut *room.job.get() };
    job.ended = match value {
        Err(_) => None,
        Ok(value) if has_failed => Some(Ended::Failed(outcome::error_of(&value, &job.script.sha))),
        Ok(value) => Some(outcome::reply_of(value, job.protocol)),
    };
}
