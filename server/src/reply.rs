//! Replies as RESP bytes.

use crate::resp::{Encoder, Protocol};
use storage::reply::Reply;

/// Appends a reply in the encoder's protocol.
pub fn put(encoder: &mut Encoder<'_>, reply: &Reply) {
    match reply {
        Reply::Ok => encoder.put_ok(),
        Reply::Simple(text) => encoder.put_simple(text),
        Reply::Error(text) => encoder.put_error(text),
        Reply::Integer(number) => encoder.put_integer(*number),
        Reply::Bulk(bytes) => encoder.put_bulk(bytes),
        Reply::Null => encoder.put_null(),
        Reply::NullArray => encoder.put_null_array(),
        Reply::Array(items) => {
            encoder.put_array(items.len());
            put_all(encoder, items);
        }
        Reply::Set(items) => {
            encoder.put_set(items.len());
            put_all(encoder, items);
        }
        Reply::Push(items) => {
            encoder.put_push(items.len());
            put_all(encoder, items);
        }
        Reply::Map(pairs) => {
            encoder.put_map(pairs.len());
            for (field, value) in pairs {
                put(encoder, field);
                put(encoder, value);
            }
        }
        Reply::Pairs(pairs) => {
            let nests = encoder.protocol() == Protocol::Resp3;
            encoder.put_array(if nests { pairs.len() } else { pairs.len().saturating_mul(2) });
            for (first, second) in pairs {
                if nests {
                    encoder.put_array(2);
                }
                put(encoder, first);
                put(encoder, second);
            }
        }
        Reply::Granted(granted) if encoder.protocol() == Protocol::Resp3 => put(encoder, &granted.map()),
        Reply::Granted(granted) => {
            encoder.put_array(2);
            granted.pair().into_iter().for_each(|number| encoder.put_integer(number));
        }
        // Replies of commands that wait come later; whoever gets here has lost one.
        Reply::Waiting(_) => encoder.put_error(b"ERR the command waits"),
        Reply::Double(number) => encoder.put_double(*number),
        Reply::Boolean(yes) => encoder.put_boolean(*yes),
        Reply::BigNumber(digits) => encoder.put_big_number(digits.as_bytes()),
        Reply::Verbatim(format, text) => encoder.put_verbatim(*format, text),
    }
}

fn put_all(encoder: &mut Encoder<'_>, items: &[Reply]) {
    for item in items {
        put(encoder, item);
    }
}
