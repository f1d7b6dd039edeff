//! What goes between the interpreter and our functions, as values of ours.

use super::call::Call;
use bytes::Bytes;

/// A value of Lua.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// `nil`
    Nil,
    /// `cjson.null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// A number.
    Number(f64),
    /// A string.
    Str(Bytes),
    /// A table with these items from 1 on.
    List(Vec<Value>),
    /// A table with these keys.
    Map(Vec<(Value, Value)>),
    /// The function's own argument at this position, whatever it is. Only to be returned.
    Argument(i32),
    /// A piece of a string argument. Only to be returned.
    Piece(i32, usize, usize),
    /// A type that has no value here: a function, a thread, a userdata. Only read.
    Other(&'static str),
}

impl Value {
    /// A string.
    pub(super) fn text(text: &'static str) -> Value {
        Value::Str(Bytes::from_static(text.as_bytes()))
    }

    /// A string copied from `bytes`.
    pub(super) fn bytes(bytes: &[u8]) -> Value {
        Value::Str(Bytes::copy_from_slice(bytes))
    }

    /// The name of its type.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Value::Nil | Value::Argument(_) => "nil",
            Value::Null => "userdata",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::Str(_) | Value::Piece(..) => "string",
            Value::List(_) | Value::Map(_) => "table",
            Value::Other(name) => name,
        }
    }
}

/// Why a function of ours fails.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fault {
    /// With this text, behind the place in the script.
    Text(Bytes),
    /// An argument is wrong: which, and how.
    Argument(i32, Bytes),
    /// With an error of Redis: a table with the field `err`.
    Redis(Bytes),
    /// The script's work is used up. Nothing can catch it.
    Exhausted,
}

impl Fault {
    /// With this text.
    pub(super) fn text(text: impl Into<String>) -> Fault {
        Fault::Text(text.into().into())
    }

    /// With an error of Redis.
    pub(super) fn redis(text: &'static str) -> Fault {
        Fault::Redis(Bytes::from_static(text.as_bytes()))
    }

    /// A wrong argument.
    pub(super) fn argument(at: i32, text: impl Into<String>) -> Fault {
        Fault::Argument(at, text.into().into())
    }
}

/// A function of ours: what it returns, or why it fails.
pub(super) type Native = fn(&mut Call<'_>) -> Result<Vec<Value>, Fault>;

/// A function with its place: table (empty: a global) and name.
pub(super) type Entry = (&'static str, &'static str, Native);
