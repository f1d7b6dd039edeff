//! The texts of errors, word for word as Redis 7 says them: clients compare them.

use super::spec::CommandSpec;
use crate::reply::Reply;

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
pub(crate) const NOT_AN_INT: Reply =
    Reply::error("ERR value is out of range, value must between -2147483648 and 2147483647");
pub(crate) const INDEX: Reply = Reply::error("ERR index out of range");
pub(crate) const NOT_POSITIVE: Reply = Reply::error("ERR value is out of range, must be positive");
pub(crate) const INVALID_CURSOR: Reply = Reply::error("ERR invalid cursor");

/// How much of an unknown command is repeated to the client.
const ECHO_BYTES_MAX: usize = 128;

/// What C prints of a text.
pub(crate) fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// The same at the end of an error, where Redis cuts line ends off.
pub(crate) fn as_line(bytes: &[u8]) -> &[u8] {
    let text = until_nul(bytes);
    let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
    &text[..end]
}

/// A time that no key can have.
pub(crate) fn invalid_expire(command: &str) -> Reply {
    Reply::Error(format!("ERR invalid expire time in '{command}' command").into())
}

/// The wrong number of arguments.
#[must_use]
pub fn wrong_arity(spec: &CommandSpec) -> Reply {
    wrong_arity_of(&spec.name.to_ascii_lowercase())
}

/// The same, said by a command that finds out itself.
pub(crate) fn wrong_arity_of(name: &str) -> Reply {
    Reply::Error(format!("ERR wrong number of arguments for '{name}' command").into())
}

/// A command that is not in the table.
#[must_use]
pub fn unknown_command(name: &[u8], args: &[&[u8]]) -> Reply {
    let start = |bytes: &[u8], max: usize| until_nul(&bytes[..bytes.len().min(max)]).to_vec();
    let mut echo = Vec::new();
    for arg in args {
        if echo.len() >= ECHO_BYTES_MAX {
            break;
        }
        let arg = start(arg, ECHO_BYTES_MAX - echo.len());
        echo.extend([b"'", &arg[..], b"' "].concat());
    }
    let name = start(name, ECHO_BYTES_MAX);
    Reply::Error(
        [b"ERR unknown command '", &name[..], b"', with args beginning with: ", &echo].concat().into(),
    )
}
