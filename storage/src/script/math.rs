//! Random numbers that are the same on every node.

use super::call::Call;
use super::value::{Entry, Fault, Value};

pub(super) const ENTRIES: &[Entry] = &[
    ("math", "random", |call| {
        let part = next(call);
        if call.len() == 0 {
            return Ok(vec![Value::Number(part)]);
        }
        let (first, last, at) = match call.len() {
            1 => (1.0, call.number(1)?.floor(), 1),
            2 => (call.number(1)?.floor(), call.number(2)?.floor(), 2),
            _ => return Err(Fault::text("wrong number of arguments")),
        };
        if first > last {
            return Err(Fault::argument(at, "interval is empty"));
        }
        Ok(vec![Value::Number((part * (last - first + 1.0)).floor() + first)])
    }),
    ("math", "randomseed", |call| {
        let seed = call.number(1)?;
        call.room.with_job(|job| job.random = seed.to_bits());
        Ok(Vec::new())
    }),
];

/// A number from 0 up to 1, by splitmix64.
fn next(call: &Call<'_>) -> f64 {
    let next = call.room.with_job(|job| {
        job.random = job.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        job.random
    });
    let next = next.unwrap_or(0);
    let mixed = (next ^ next >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    // 53 bits are exact in a double.
    ((mixed ^ mixed >> 31) >> 11) as f64 / 9_007_199_254_740_992.0
}
