//! What a function of ours sees of the interpreter: its arguments, and the work that is left.
//!
//! * C1: nothing here calls a function of Lua that can raise an error. Lua raises by `longjmp`, which would skip the destructors of our frames.
//!   Reading never raises: strings are borrowed, numbers are not converted in place, tables are walked with `lua_next` on
//!   stack slots that the caller made sure of.

use super::number;
use super::value::{Fault, Value};
use super::vm::Room;
use std::borrow::Cow;
use std::ffi::c_int;
use warlock_lua as lua;

/// Slots of Lua's stack that are free when a function of ours is called. A level of nested tables takes three.
pub(super) const SLOTS: c_int = 3 * DEPTH_MAX as c_int + 20;
/// The same for functions that read no tables.
pub(super) const SLOTS_FLAT: c_int = 20;
/// How deeply tables may be nested that our functions read.
pub(super) const DEPTH_MAX: usize = 200;
/// Work for reading or writing one item of a table.
const ITEM: usize = 4;

/// See the module's description.
pub(super) struct Call<'c> {
    state: *mut lua::lua_State,
    pub(super) room: &'c Room,
}

impl<'c> Call<'c> {
    /// The call of the function that runs in `state` now.
    ///
    /// # Safety
    /// The state is in its function, its stack has [`SLOTS`] free slots, and nothing pops the function's arguments while the call exists.
    pub(super) unsafe fn new(state: *mut lua::lua_State, room: &'c Room) -> Call<'c> {
        Call { state, room }
    }

    /// Takes away work that is about to be done.
    pub(super) fn spend(&self, work: usize) -> Result<(), Fault> {
        if self.room.spend(work) { Ok(()) } else { Err(Fault::Exhausted) }
    }

    /// The same for bytes that are copied or looked at.
    pub(super) fn spend_bytes(&self, bytes: usize) -> Result<(), Fault> {
        self.spend(bytes / 16)
    }

    /// How many arguments there are.
    pub(super) fn len(&self) -> i32 {
        // SAFETY: C1.
        unsafe { lua::lua_gettop(self.state) }
    }

    fn type_of(&self, at: i32) -> c_int {
        // SAFETY: C1; an absent argument has a type of its own.
        unsafe { lua::lua_type(self.state, at) }
    }

    /// Whether the argument is there and not nil.
    pub(super) fn has(&self, at: i32) -> bool {
        !matches!(self.type_of(at), lua::LUA_TNONE | lua::LUA_TNIL)
    }

    /// Whether it is a string, and not a number that could become one.
    pub(super) fn is_string(&self, at: i32) -> bool {
        self.type_of(at) == lua::LUA_TSTRING
    }

    /// Whether it is a number, and not a string that could become one.
    pub(super) fn is_number(&self, at: i32) -> bool {
        self.type_of(at) == lua::LUA_TNUMBER
    }

    /// Whether it is a table.
    pub(super) fn is_table(&self, at: i32) -> bool {
        self.type_of(at) == lua::LUA_TTABLE
    }

    /// Whether it counts as true.
    pub(super) fn truth(&self, at: i32) -> bool {
        // SAFETY: C1.
        unsafe { lua::lua_toboolean(self.state, at) != 0 }
    }

    /// What Lua calls its type.
    pub(super) fn type_name(&self, at: i32) -> &'static str {
        match self.type_of(at) {
            lua::LUA_TNONE => "no value",
            lua::LUA_TNIL => "nil",
            lua::LUA_TBOOLEAN => "boolean",
            lua::LUA_TNUMBER => "number",
            lua::LUA_TSTRING => "string",
            lua::LUA_TTABLE => "table",
            lua::LUA_TFUNCTION => "function",
            lua::LUA_TTHREAD => "thread",
            _ => "userdata",
        }
    }

    fn wrong_type(&self, at: i32, wanted: &str) -> Fault {
        Fault::argument(at, format!("{wanted} expected, got {}", self.type_name(at)))
    }

    /// A string, or a number as one.
    pub(super) fn string(&self, at: i32) -> Result<Cow<'c, [u8]>, Fault> {
        match self.type_of(at) {
            lua::LUA_TSTRING => {
                let mut length = 0;
                // SAFETY: C1: it is a string already, so nothing is converted. It lives as long as it is an argument.
                let bytes = unsafe {
                    let start = lua::lua_tolstring(self.state, at, &raw mut length);
                    std::slice::from_raw_parts(start.cast::<u8>(), length)
                };
                Ok(Cow::Borrowed(bytes))
            }
            // SAFETY: C1.
            lua::LUA_TNUMBER => {
                Ok(number::to_text(unsafe { lua::lua_tonumber(self.state, at) }).into_bytes().into())
            }
            _ => Err(self.wrong_type(at, "string")),
        }
    }

    /// A number, or a string that reads as one.
    pub(super) fn number(&self, at: i32) -> Result<f64, Fault> {
        // SAFETY: C1: neither converts in place.
        unsafe {
            if lua::lua_isnumber(self.state, at) == 0 {
                return Err(self.wrong_type(at, "number"));
            }
            Ok(lua::lua_tonumber(self.state, at))
        }
    }

    /// A whole number.
    pub(super) fn integer(&self, at: i32) -> Result<i64, Fault> {
        // Saturates, where C would do anything.
        self.number(at).map(|number| number as i64)
    }

    /// The same, if it is there.
    pub(super) fn integer_or(&self, at: i32, default: i64) -> Result<i64, Fault> {
        if self.has(at) { self.integer(at) } else { Ok(default) }
    }

    /// A number, if it is there.
    pub(super) fn number_or(&self, at: i32, default: f64) -> Result<f64, Fault> {
        if self.has(at) { self.number(at) } else { Ok(default) }
    }

    /// That it is a table.
    pub(super) fn check_table(&self, at: i32) -> Result<(), Fault> {
        if self.is_table(at) { Ok(()) } else { Err(self.wrong_type(at, "table")) }
    }

    /// The length of a table or string.
    pub(super) fn length(&self, at: i32) -> usize {
        // SAFETY: C1: it is no number, which would be converted.
        unsafe { if self.is_number(at) { 0 } else { lua::lua_objlen(self.state, at) } }
    }

    /// An item of a table, not itself a table.
    pub(super) fn item(&self, table: i32, index: i64) -> Result<Value, Fault> {
        let Ok(index) = c_int::try_from(index) else { return Ok(Value::Nil) };
        self.spend(ITEM)?;
        // SAFETY: C1: a raw look, into a slot that is free.
        unsafe {
            lua::lua_rawgeti_(self.state, table, index);
            let value = self.read(-1, 0);
            lua::lua_settop(self.state, -2);
            value
        }
    }

    /// An argument as a value of ours, with all that is in it.
    pub(super) fn value(&self, at: i32) -> Result<Value, Fault> {
        self.value_to_depth(at, DEPTH_MAX)
    }

    /// The same; what is nested more deeply is an error.
    pub(super) fn value_to_depth(&self, at: i32, depth: usize) -> Result<Value, Fault> {
        // SAFETY: the argument is there or nil, and the stack has room for three slots a level.
        unsafe { self.read(at, depth.min(DEPTH_MAX)) }
    }

    /// A name for a table, function or thread: where it lies in the room.
    pub(super) fn address(&self, at: i32) -> usize {
        // SAFETY: C1.
        self.room.offset(unsafe { lua::lua_topointer(self.state, at) })
    }

    /// # Safety
    /// The stack has three free slots a level.
    unsafe fn read(&self, at: c_int, depth: usize) -> Result<Value, Fault> {
        let state = self.state;
        // SAFETY: C1. `lua_next` raises only for a key that is not in the table; these come from itself.
        unsafe {
            Ok(match lua::lua_type(state, at) {
                lua::LUA_TNIL | lua::LUA_TNONE => Value::Nil,
                lua::LUA_TBOOLEAN => Value::Bool(lua::lua_toboolean(state, at) != 0),
                lua::LUA_TNUMBER => Value::Number(lua::lua_tonumber(state, at)),
                lua::LUA_TSTRING => {
                    let mut length = 0;
                    let start = lua::lua_tolstring(state, at, &raw mut length);
                    self.spend_bytes(length)?;
                    Value::bytes(std::slice::from_raw_parts(start.cast::<u8>(), length))
                }
                lua::LUA_TLIGHTUSERDATA => Value::Null,
                lua::LUA_TTABLE if depth == 0 => Value::Other("table"),
                lua::LUA_TTABLE => {
                    let table = if at < 0 { lua::lua_gettop(state) + at + 1 } else { at };
                    let mut pairs = Vec::new();
                    lua::lua_pushnil(state);
                    while lua::lua_next(state, table) != 0 {
                        self.spend(ITEM)?;
                        pairs.push((self.read(-2, 0)?, self.read(-1, depth - 1)?));
                        lua::lua_settop(state, -2);
                    }
                    Value::Map(pairs)
                }
                lua::LUA_TFUNCTION => Value::Other("function"),
                lua::LUA_TTHREAD => Value::Other("thread"),
                _ => Value::Other("userdata"),
            })
        }
    }
}
