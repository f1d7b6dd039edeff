//! Compiles Lua 5.1 from the sources of `lua-src`, with `meter.h` in front of each file.
//!
//! `lua-src` lets nobody add a flag, but the compiler's flags of the environment reach it. They are cut at spaces, so the header is named relative to
//! this folder, in which build scripts run.

use std::env;

const HEADER: &str = "meter.h";

fn main() {
    for file in ["build.rs", HEADER] {
        println!("cargo:rerun-if-changed={file}");
    }
    let target = env::var("TARGET").unwrap_or_default();
    // The first of these that is set is the one that counts.
    let names = [
        format!("CFLAGS_{target}"),
        format!("CFLAGS_{}", target.replace(['-', '.'], "_")),
        "TARGET_CFLAGS".to_string(),
        "CFLAGS".to_string(),
    ];
    let given = names.iter().find_map(|name| env::var(name).ok()).unwrap_or_default();
    // SAFETY: nothing else runs in this process.
    unsafe { env::set_var(&names[0], format!("{given} -include {HEADER}")) };
    // Optimised in debug builds, too: the tests run scripts until their work is used up.
    lua_src::Build::new().opt_level("2").build(lua_src::Lua51).print_cargo_metadata();
}
