//! The way from the interpreter into a function of ours, and back with its results.
//!
//! Rules V1 to V4 of `vm` hold here, too.

use super::call::{Call, SLOTS, SLOTS_FLAT};
use super::entries;
use super::places::{Raised, raised};
use super::value::{Fault, Value};
use super::vm::{Room, room_of};
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use warlock_lua as lua;

/// Work for calling a function of ours, and arguments of it that are one unit more.
const CALL: usize = 10;
const ARGUMENTS_PER_UNIT: usize = 4;

/// Every function of ours comes in here.
pub(super) unsafe extern "C-unwind" fn native(state: *mut lua::lua_State) -> c_int {
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
        let is_done = room.quietly(|| enter(state, room, index));
        lua::lua_settop(state, top);
        if room.is_exhausted() {
            lua::lua_pushnil(state);
            lua::lua_error(state);
        }
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
            Some((_, _, function)) => {
                call.spend(CALL + call.len() as usize / ARGUMENTS_PER_UNIT).and_then(|()| function(&mut call))
            }
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

/// Pushes a text.
pub(super) unsafe fn push_text(state: *mut lua::lua_State, text: &[u8]) {
    // SAFETY: the slice is valid; the caller is protected.
    unsafe { lua::lua_pushlstring_(state, text.as_ptr().cast::<c_char>(), text.len()) }
}
