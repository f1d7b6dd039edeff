//! Lua 5.1, built so that work inside of single instructions counts, and the meter that counts it.
//!
//! `meter.h` says what is charged and how. Everything else is `mlua-sys`'s: the declarations of Lua's C interface.

pub use mlua_sys::*;

/// Grains of work in a step, the unit of scripts.
pub const GRAINS_PER_STEP: i64 = 16;

/// What the interpreters of one thread count. `struct warlock_meter` of `meter.h` is the same.
#[repr(C)]
#[derive(Debug)]
pub struct Meter {
    /// Grains of work that are left; below zero if more was done.
    pub left: i64,
    /// The coroutine that runs, which gets the error when nothing is left.
    pub running: *mut lua_State,
    /// Not zero: what is charged raises no error now, because frames of Rust would be skipped.
    pub is_quiet: std::ffi::c_int,
}

unsafe extern "C" {
    fn warlock_meter_place() -> *mut Meter;
}

/// The meter of this thread. It stays where it is as long as the thread lives.
pub fn meter() -> *mut Meter {
    // SAFETY: the function only takes an address.
    unsafe { warlock_meter_place() }
}
