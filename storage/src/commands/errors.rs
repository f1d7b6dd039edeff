//! The texts of errors, word for word as Redis 7 says them: clients compare them.

use super::spec::CommandSpec;
use crate::reply::Reply;
use std::fmt::Write;

pub(crate) const WRONG_TYPE: Reply =
    Reply::error("WRONGTYPE Operation against a key holding the wrong kind of value");
pub(crate) const SYNTAX: Reply = Reply::error("ERR syntax error");
pub(crate) const NOT_AN_INTEGER: Reply = Reply::error("ERR value is not an integer or out of range");
pub(crate) const NOT_A_FLOAT: Reply = Reply::error("ERR value is not a valid float");
pub(crate) const OVERFLOW: Reply = Reply::error("ERR increment or decrement would overflow");
pub(crate) const DECREMENT_OVERFLOW: Reply = Reply::error("ERR decrement would overflow");
pub(crate) const NOT_FINITE: Reply = Reply::error("ERR increment would produce NaN or Infinity");
pub(crate) const TOO_LONG: Reply =
    Reply::error("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
pub(crate) const OFFSET: Reply = Reply::error("ERR offset is out of range");
pub(crate) const NO_SUCH_KEY: Reply = Reply::error("ERR no such key");
pub(crate) const SAME_OBJECT: Reply = Reply::error("ERR source and destination objects are the same");
pub(crate) const DB_INDEX: Reply = Reply::error("ERR DB index is out of range");
pub(crate) const INVALID_CURSOR: Reply = Reply::error("ERR invalid cursor");

/// How much of an unknown command is repeated to the client.
const ECHO_BYTES_MAX: usize = 128;

fn lossy(bytes: &[u8], max: usize) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(max)]).into_owned()
}

/// A time that no key can have.
pub(crate) fn invalid_expire(command: &str) -> Reply {
    Reply::Error(format!("ERR invalid expire time in '{command}' command").into())
}

/// The wrong number of arguments.
#[must_use]
pub fn wrong_arity(spec: &CommandSpec) -> Reply {
    let name = spec.name.to_ascii_lowercase();
    Reply::Error(format!("ERR wrong number of arguments for '{name}' command").into())
}

/// A command that is not in the table.
#[must_use]
pub fn unknown_command(name: &[u8], args: &[&[u8]]) -> Reply {
    let name = lossy(name, ECHO_BYTES_MAX);
    let mut text = format!("ERR unknown command '{name}', with args beginning with: ");
    let mut echoed = 0;
    for arg in args {
        if echoed >= ECHO_BYTES_MAX {
            break;
        }
        let arg = lossy(arg, ECHO_BYTES_MAX - echoed);
        // Redis counts the quotes and the space, too.
        echoed += arg.len() + 3;
        let _ = write!(text, "'{arg}' ");
    }
    Reply::Error(text.into())
}
