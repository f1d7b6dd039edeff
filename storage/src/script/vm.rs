//! The interpreter: Lua 5.1, as the system's C compiler makes it, in a room of its own.
//!
//! A room is set up once a thread: the libraries, our functions, the prelude. An image of it is kept, and every script begins from a copy of the image.
//! So no script sees what another left behind, and everything that a script can see (addresses, the collector's timing, the point at which memory
//! or work ends) is a function of the script, its arguments and the replies it got: the same on every node.
//!
//! Rules of this module, the only one that may let Lua raise an error (with `call`, which must not):
//! * V1: Lua raises by `longjmp`. A frame of ours that can be skipped holds nothing with a destructor; what a function of ours returns is owned by
//!   the room, not by a frame.
//! * V2: everything that can raise runs below `lua_cpcall`; at the top Lua would abort the process.
//! * V3: work is counted in units of about one instruction: a hook takes it away every [`EVERY`] instructions, the allocator for what it hands out, our
//!   functions for what they do. When it is used up, every further instruction and allocation fails, so that no `pcall` goes on.

use super::arena::Arena;
use super::call::{Call, SLOTS, SLOTS_FLAT};
use super::value::{Fault, Value};
use super::{Ended, Host, Script, WORK_MAX, entries, outcome};
use bytes::Bytes;
use mlua_sys as lua;
use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;

/// Instructions between two counts.
const EVERY: c_int = 100;
/// Work for a piece of memory, and bytes of it that are one unit more.
const PIECE: usize = 4;
const BYTES_PER_UNIT: usize = 64;
/// Work for calling a function of ours.
const CALL: usize = 10;

const PRELUDE: &[u8] = include_bytes!("prelude.lua");
const PRELUDE_NAME: &CStr = c"=prelude";
/// Part of the errors that clients see.
const SCRIPT_NAME: &CStr = c"@user_script";

/// Everything about one interpreter. At a fixed address: Lua keeps a pointer to it.
pub(super) struct Room {
    arena: UnsafeCell<Arena>,
    state: Cell<*mut lua::lua_State>,
    work: Cell<i64>,
    /// Memory was asked for that a script may not have.
    is_full: Cell<bool>,
    results: UnsafeCell<Vec<Value>>,
    fault: UnsafeCell<Option<Raised>>,
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

/// An error that is ready to be raised.
enum Raised {
    Text(Bytes),
    Table(Bytes),
    Exhausted,
}

impl Room {
    /// An interpreter that is ready to run scripts. Nothing if the system has no room.
    pub(super) fn new() -> Option<Box<Room>> {
        let room = Box::new(Room {
            arena: UnsafeCell::new(Arena::new()?),
            state: Cell::new(null_mut()),
            work: Cell::new(WORK_MAX),
            is_full: Cell::new(false),
            results: UnsafeCell::default(),
            fault: UnsafeCell::new(None),
            job: Cell::new(null_mut()),
        });
        let this = (&raw const *room).cast_mut().cast::<c_void>();
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
        self.work.set(WORK_MAX);
        self.is_full.set(false);
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
            _ if self.work.get() < 0 => Ended::Exhausted,
            Some(ended) if status == 0 => ended,
            _ => Ended::Failed(Bytes::from_static(b"ERR the script's result cannot be read")),
        }
    }

    /// Takes work away. False if there is none left.
    pub(super) fn spend(&self, work: usize) -> bool {
        let left = self.work.get().saturating_sub_unsigned(work as u64);
        self.work.set(left);
        left >= 0
    }

    /// What the last script left: work, and bytes in use.
    #[cfg(test)]
    pub(super) fn left(&self) -> (i64, usize) {
        // SAFETY: no script runs.
        (self.work.get(), unsafe { (*self.arena.get()).live() })
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
unsafe fn room_of<'r>(state: *mut lua::lua_State) -> &'r Room {
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
            room.work.set(room.work.get().min(0));
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

unsafe fn push_text(state: *mut lua::lua_State, text: &[u8]) {
    // SAFETY: the slice is valid; the caller is protected.
    unsafe { lua::lua_pushlstring_(state, text.as_ptr().cast::<c_char>(), text.len()) }
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
            take_compile_error(state, job);
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
        if room.work.get() < 0 || room.is_full.get() {
            return 0;
        }
        if lua::lua_checkstack(state, SLOTS) == 0 {
            return 0;
        }
        take_outcome(state, room, status != 0);
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

/// The handler of errors: makes a table of them, with the place in the script.
unsafe extern "C-unwind" fn locate(state: *mut lua::lua_State) -> c_int {
    // SAFETY: V1. It runs on the stack of the error, inside the protected call.
    unsafe {
        if room_of(state).work.get() < 0 {
            return 1;
        }
        if lua::lua_type(state, 1) != lua::LUA_TTABLE {
            lua::lua_createtable(state, 0, 2);
            push_text(state, b"err");
            if lua::lua_isstring(state, 1) != 0 {
                push_text(state, b"ERR ");
                let mut length = 0;
                let start = lua::lua_tolstring(state, 1, &raw mut length);
                let text = std::slice::from_raw_parts(start.cast::<u8>(), length);
                push_text(state, without_place(text));
                lua::lua_concat(state, 2);
            } else {
                push_text(state, b"ERR the script failed with an error that is no text");
            }
            lua::lua_rawset(state, -3);
            lua::lua_replace(state, 1);
        }
        lua::lua_settop(state, 1);
        let line = line_of(state);
        if line > 0 {
            push_text(state, b"line");
            lua::lua_pushnumber(state, f64::from(line));
            lua::lua_rawset(state, 1);
        }
        1
    }
}

/// A message without a line of the prelude, which no author of a script knows.
fn without_place(text: &[u8]) -> &[u8] {
    let Some(rest) = text.strip_prefix(b"prelude:") else { return text };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    rest[digits..].strip_prefix(b": ").unwrap_or(text)
}

/// The line of the script that is being run, or 0. Raises nothing.
unsafe fn line_of(state: *mut lua::lua_State) -> c_int {
    // SAFETY: `S` and `l` ask for nothing that needs memory; the struct is filled before it is read.
    unsafe {
        let mut debug: lua::lua_Debug = std::mem::zeroed();
        let mut level = 1;
        while lua::lua_getstack(state, level, &raw mut debug) != 0 {
            lua::lua_getinfo(state, c"Sl".as_ptr(), &raw mut debug);
            if CStr::from_ptr(debug.source) == SCRIPT_NAME {
                return debug.currentline;
            }
            level += 1;
        }
        0
    }
}

/// Every function of ours comes in here.
unsafe extern "C-unwind" fn native(state: *mut lua::lua_State) -> c_int {
    // SAFETY: V1: what `enter` leaves is owned by the room, and only borrowed here.
    unsafe {
        let room = room_of(state);
        let index = lua::lua_tonumber(state, lua::lua_upvalueindex(1)) as usize;
        let slots = if reads_deeply(index) { SLOTS } else { SLOTS_FLAT };
        if lua::lua_checkstack(state, slots) == 0 {
            lua::lua_pushstring_(state, c"stack overflow".as_ptr());
            lua::lua_error(state);
        }
        let top = lua::lua_gettop(state);
        let is_done = enter(state, room, index);
        lua::lua_settop(state, top);
        if !is_done {
            match &*room.fault.get() {
                Some(Raised::Text(text)) => push_text(state, text),
                Some(Raised::Table(text)) => {
                    lua::lua_createtable(state, 0, 1);
                    push_text(state, b"err");
                    push_text(state, text);
                    lua::lua_rawset(state, -3);
                }
                Some(Raised::Exhausted) | None => lua::lua_pushnil(state),
            }
            lua::lua_error(state);
        }
        let results = &*room.results.get();
        let count = results.len() as c_int;
        if lua::lua_checkstack(state, count + 10) == 0 {
            lua::lua_pushstring_(state, c"too many results".as_ptr());
            lua::lua_error(state);
        }
        for value in results {
            push(state, value);
        }
        count
    }
}

/// Whether a function reads whole tables.
fn reads_deeply(index: usize) -> bool {
    entries(index).is_some_and(|(table, ..)| matches!(table, "cjson" | "cmsgpack"))
}

/// Runs a function of ours. Raises nothing; its results or its fault are in the room.
unsafe fn enter(state: *mut lua::lua_State, room: &Room, index: usize) -> bool {
    // SAFETY: the caller made sure of the slots. Results of calls before are used up.
    unsafe {
        let mut call = Call::new(state, room);
        let result = match entries(index) {
            Some((_, _, function)) => call.spend(CALL).and_then(|()| function(&mut call)),
            None => Err(Fault::text("no such function")),
        };
        match result {
            Ok(values) => {
                *room.results.get() = values;
                true
            }
            Err(fault) => {
                *room.fault.get() = Some(raised(state, fault));
                false
            }
        }
    }
}

/// A fault as Lua's own library would word it. Raises nothing.
unsafe fn raised(state: *mut lua::lua_State, fault: Fault) -> Raised {
    // SAFETY: as for `line_of`; `n` needs no memory either.
    let place = || unsafe {
        let mut debug: lua::lua_Debug = std::mem::zeroed();
        let mut level = 1;
        while lua::lua_getstack(state, level, &raw mut debug) != 0 {
            lua::lua_getinfo(state, c"Sl".as_ptr(), &raw mut debug);
            let source = CStr::from_ptr(debug.source);
            if source == PRELUDE_NAME {
                level += 1;
                continue;
            }
            if debug.currentline > 0 {
                let source = CStr::from_ptr(debug.short_src.as_ptr()).to_string_lossy();
                return format!("{source}:{}: ", debug.currentline);
            }
            break;
        }
        String::new()
    };
    let name = || unsafe {
        let mut debug: lua::lua_Debug = std::mem::zeroed();
        let mut level = 0;
        let mut found = ("?".to_string(), false);
        while lua::lua_getstack(state, level, &raw mut debug) != 0 {
            lua::lua_getinfo(state, c"nS".as_ptr(), &raw mut debug);
            let is_ours = level == 0 || CStr::from_ptr(debug.source) == PRELUDE_NAME;
            if !is_ours {
                break;
            }
            if !debug.name.is_null() {
                let is_method = !debug.namewhat.is_null() && CStr::from_ptr(debug.namewhat) == c"method";
                found = (CStr::from_ptr(debug.name).to_string_lossy().into_owned(), is_method);
            }
            level += 1;
        }
        found
    };
    match fault {
        Fault::Exhausted => Raised::Exhausted,
        Fault::Redis(text) => Raised::Table(text),
        Fault::Text(text) => Raised::Text([place().as_bytes(), &text].concat().into()),
        Fault::Argument(at, text) => {
            let (name, is_method) = name();
            let text = String::from_utf8_lossy(&text);
            let message = match (is_method, at) {
                (true, 1) => format!("calling '{name}' on bad self ({text})"),
                (true, _) => format!("bad argument #{} to '{name}' ({text})", at - 1),
                (false, _) => format!("bad argument #{at} to '{name}' ({text})"),
            };
            Raised::Text(format!("{}{message}", place()).into())
        }
    }
}

/// Pushes a value.
unsafe fn push(state: *mut lua::lua_State, value: &Value) {
    // SAFETY: V1: only borrowed values and plain numbers here. The caller is protected.
    unsafe {
        lua::lua_checkstack(state, 4);
        match value {
            Value::Nil | Value::Other(_) => lua::lua_pushnil(state),
            Value::Null => lua::lua_pushlightuserdata(state, null_mut()),
            Value::Bool(truth) => lua::lua_pushboolean(state, c_int::from(*truth)),
            Value::Number(number) => lua::lua_pushnumber(state, *number),
            Value::Str(bytes) => push_text(state, bytes),
            Value::Argument(at) => lua::lua_pushvalue(state, *at),
            Value::Piece(at, from, to) => {
                let mut length = 0;
                let start = lua::lua_tolstring(state, *at, &raw mut length);
                let text = std::slice::from_raw_parts(start.cast::<u8>(), length);
                push_text(state, text.get(*from..*to).unwrap_or_default());
            }
            Value::List(items) => {
                lua::lua_createtable(state, items.len() as c_int, 0);
                for (index, item) in items.iter().enumerate() {
                    push(state, item);
                    lua::lua_rawseti_(state, -2, index as c_int + 1);
                }
            }
            Value::Map(pairs) => {
                lua::lua_createtable(state, 0, pairs.len() as c_int);
                for (key, value) in pairs {
                    push(state, key);
                    push(state, value);
                    lua::lua_rawset(state, -3);
                }
            }
        }
    }
}
