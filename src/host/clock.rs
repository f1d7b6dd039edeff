//! The only place that reads clocks.

use super::faults;
use consensus::{Now, Time};
use rustix::time::{ClockId, clock_gettime};

/// What the clocks say now: the monotonic one that counts suspended time, and the wall clock.
pub fn now() -> Now {
    let boot = clock_gettime(ClockId::Boottime);
    // Milliseconds are asked for, and this clock costs a tenth of the exact one: it is as of the kernel's last tick.
    let wall = clock_gettime(ClockId::RealtimeCoarse);
    let micros = |seconds: i64, nanos: i64| {
        u64::try_from(seconds).unwrap_or(0) * 1_000_000 + u64::try_from(nanos).unwrap_or(0) / 1_000
    };
    let wall_ms = micros(wall.tv_sec, wall.tv_nsec) / 1_000;
    Now {
        at: Time(micros(boot.tv_sec, boot.tv_nsec)),
        wall_ms: wall_ms.saturating_add_signed(faults::wall_error_ms()),
    }
}
