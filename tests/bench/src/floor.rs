//! What no durable server on this machine can be faster than: one sync of an appended record, and one round trip over loopback.

use serde::Serialize;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

/// Medians in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Floor {
    /// One record appended to a file whose blocks are written already, and fdatasync.
    pub sync_us: f64,
    /// The same in a file that grows.
    pub growing_sync_us: f64,
    /// One request and its answer between two threads.
    pub round_trip_us: f64,
}

impl Floor {
    /// The fastest durable answer.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.sync_us + self.round_trip_us
    }
}

const RECORD: [u8; 100] = [7; 100];
const FILE_BYTES: usize = 4 << 20;

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

fn syncs(directory: &Path, is_prepared: bool, count: u64) -> io::Result<f64> {
    let path = directory.join("floor");
    let file = OpenOptions::new().create(true).truncate(true).write(true).open(&path)?;
    if is_prepared {
        file.write_all_at(&vec![0; FILE_BYTES], 0)?;
    }
    file.sync_all()?;
    let mut times = Vec::new();
    for number in 0..count {
        let start = Instant::now();
        file.write_all_at(&RECORD, number * RECORD.len() as u64)?;
        file.sync_data()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    std::fs::remove_file(path)?;
    Ok(median(times))
}

fn round_trips(count: usize) -> io::Result<f64> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let echo = std::thread::spawn(move || {
        let mut bytes = [0; 64];
        while far.read_exact(&mut bytes).is_ok() && far.write_all(&bytes).is_ok() {}
    });
    let (mut bytes, mut times) = ([1; 64], Vec::new());
    for _ in 0..count {
        let start = Instant::now();
        near.write_all(&bytes)?;
        near.read_exact(&mut bytes)?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    drop(near);
    let _ = echo.join();
    Ok(median(times))
}

/// Measures it in `directory`, where the servers' data lies.
///
/// # Errors
/// When the disk or the loopback fails.
pub fn measure(directory: &Path) -> io::Result<Floor> {
    Ok(Floor {
        sync_us: syncs(directory, true, 1_000)?,
        growing_sync_us: syncs(directory, false, 500)?,
        round_trip_us: round_trips(5_000)?,
    })
}
