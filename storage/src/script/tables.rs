//! Parts of Lua's library of tables that do more work than they have instructions.

use super::arena::LIVE_MAX;
use super::value::{Entry, Fault, Value};

pub(super) const ENTRIES: &[Entry] = &[
    ("table", "concat", |call| {
        call.check_table(1)?;
        let between = if call.has(2) { call.string(2)? } else { Default::default() };
        let (from, to) = (call.integer_or(3, 1)?, call.integer_or(4, call.length(1) as i64)?);
        let mut out: Vec<u8> = Vec::new();
        for index in from..=to {
            match call.item(1, index)? {
                Value::Str(text) => out.extend_from_slice(&text),
                Value::Number(number) => out.extend(super::number::to_text(number).bytes()),
                other => {
                    let kind = other.type_name();
                    return Err(Fault::text(format!(
                        "invalid value ({kind}) at index {index} in table for 'concat'"
                    )));
                }
            }
            if index < to {
                call.spend_bytes(between.len())?;
                out.extend_from_slice(&between);
            }
            if out.len() > LIVE_MAX {
                return Err(Fault::text("resulting string too large"));
            }
        }
        Ok(vec![Value::Str(out.into())])
    }),
    // Both as texts: what the prelude hands on.
    ("native", "string", |call| {
        let both = [call.string(1)?, call.string(2)?];
        Ok(both.into_iter().map(|text| Value::bytes(&text)).collect())
    }),
    ("native", "table", |call| call.check_table(1).map(|()| Vec::new())),
    ("native", "null", |_| Ok(vec![Value::Null])),
    // Takes away the work of something that is about to be done: its size, and a factor.
    ("native", "spend", |call| {
        let work = call.number(1)?;
        // Saturates; what is below zero is nothing.
        call.spend(work as usize)?;
        Ok(Vec::new())
    }),
];
