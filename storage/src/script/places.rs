//! Errors of scripts, with the place they come from.
//!
//! Rules V1 to V4 of `vm` hold here, too.

use super::native::push_text;
use super::value::Fault;
use super::vm::room_of;
use bytes::Bytes;
use std::ffi::{CStr, c_int};
use warlock_lua as lua;

pub(super) const PRELUDE_NAME: &CStr = c"=prelude";
/// Part of the errors that clients see.
pub(super) const SCRIPT_NAME: &CStr = c"@user_script";

/// An error that is ready to be raised.
pub(super) enum Raised {
    Text(Bytes),
    Table(Bytes),
    Exhausted,
}

/// The handler of errors: makes a table of them, with the place in the script.
pub(super) unsafe extern "C-unwind" fn locate(state: *mut lua::lua_State) -> c_int {
    // SAFETY: V1. It runs on the stack of the error, inside the protected call.
    unsafe {
        if room_of(state).is_exhausted() {
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

/// A fault as Lua's own library would word it. Raises nothing.
pub(super) unsafe fn raised(state: *mut lua::lua_State, fault: Fault) -> Raised {
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
