//! What a node counts about its clients' commands: INFO, SLOWLOG, LATENCY.
//!
//! The time of a command is the time until its reply is there. For a write that is until a majority holds it, and not, as in Redis, only the
//! execution.

use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Kinds of errors that are counted apart, at most.
const ERRORS_MAX: usize = 128;
/// Arguments of a slow command that are remembered, and bytes of each.
const SLOW_ARGS_MAX: usize = 32;
const SLOW_BYTES_MAX: usize = 128;
/// Samples of one kind of latency.
const SAMPLES_MAX: usize = 160;

/// One command's numbers.
#[derive(Clone, Debug, Default)]
pub struct Count {
    /// How often it ran.
    pub calls: u64,
    /// How long, together.
    pub micros: u64,
    /// How often it was refused before it ran.
    pub rejected: u64,
    /// How often its reply was an error.
    pub failed: u64,
    /// How often it took at most 2ⁿ microseconds, by n.
    pub histogram: [u64; 32],
}

/// A slow command.
#[derive(Clone, Debug)]
pub struct Slow {
    /// Its number.
    pub id: i64,
    /// When, in seconds.
    pub at: u64,
    /// How long.
    pub micros: u64,
    /// Its words, cut short.
    pub words: Vec<Bytes>,
    /// Whose it was.
    pub address: String,
    /// That client's name.
    pub name: Bytes,
}

/// Who sent a command.
pub struct Sender<'a> {
    /// Where it is.
    pub address: &'a str,
    /// CLIENT SETNAME.
    pub name: &'a Bytes,
}

/// See the module's description.
#[derive(Debug)]
pub struct Stats {
    /// By name, in capitals.
    pub commands: BTreeMap<&'static str, Count>,
    /// By the first word of the error.
    pub errors: BTreeMap<String, u64>,
    /// The newest first.
    pub slow: VecDeque<Slow>,
    next_slow: i64,
    /// Samples of commands that took longer than the threshold: seconds, milliseconds.
    pub latency: VecDeque<(u64, u64)>,
    /// Bytes read from clients, and written to them.
    pub bytes_in: u64,
    /// See above.
    pub bytes_out: u64,
    /// Commands taken.
    pub processed: u64,
    /// Connections taken, and refused because there were too many.
    pub accepted: u64,
    /// See above.
    pub refused: u64,
    /// Clients closed because they did not read what was for them.
    pub overflowed: u64,
    /// When the node started.
    pub since: Instant,
}

impl Default for Stats {
    fn default() -> Self {
        Stats {
            commands: BTreeMap::new(),
            errors: BTreeMap::new(),
            slow: VecDeque::new(),
            next_slow: 0,
            latency: VecDeque::new(),
            bytes_in: 0,
            bytes_out: 0,
            processed: 0,
            accepted: 0,
            refused: 0,
            overflowed: 0,
            since: Instant::now(),
        }
    }
}

/// Seconds since 1970.
#[must_use]
pub fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl Stats {
    /// CONFIG RESETSTAT.
    pub fn reset(&mut self) {
        *self = Stats {
            slow: std::mem::take(&mut self.slow),
            next_slow: self.next_slow,
            latency: std::mem::take(&mut self.latency),
            since: self.since,
            ..Stats::default()
        };
    }

    /// A command has its reply. `error` is the reply's text if it is one.
    pub fn ran(&mut self, name: &'static str, took: Duration, error: Option<&[u8]>) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let count = self.commands.entry(name).or_default();
        count.calls += 1;
        count.micros += micros;
        count.failed += u64::from(error.is_some());
        let power = (64 - micros.saturating_sub(1).leading_zeros()) as usize;
        if let Some(bucket) = count.histogram.get_mut(power.min(31)) {
            *bucket += 1;
        }
        if let Some(error) = error {
            self.failed(error);
        }
    }

    /// A command was refused before it ran.
    pub fn rejected(&mut self, name: Option<&'static str>, error: &[u8]) {
        if let Some(name) = name {
            self.commands.entry(name).or_default().rejected += 1;
        }
        self.failed(error);
    }

    fn failed(&mut self, error: &[u8]) {
        let kind = error.split(|byte| *byte == b' ').next().unwrap_or_default();
        let kind = String::from_utf8_lossy(&kind[..kind.len().min(32)]);
        if let Some(count) = self.errors.get_mut(kind.as_ref()) {
            *count += 1;
        } else if self.errors.len() < ERRORS_MAX {
            self.errors.insert(kind.into_owned(), 1);
        }
    }

    /// Remembers a slow command, and forgets older ones beyond `max`.
    pub fn slow<'a>(
        &mut self,
        words: impl ExactSizeIterator<Item = &'a [u8]>,
        took: Duration,
        sender: &Sender<'_>,
        max: usize,
    ) {
        let count = words.len();
        let shown = if count > SLOW_ARGS_MAX { SLOW_ARGS_MAX - 1 } else { count };
        let mut cut: Vec<Bytes> = words.take(shown).map(cut_short).collect();
        if count > shown {
            cut.push(Bytes::from(format!("... ({} more arguments)", count - shown)));
        }
        self.slow.push_front(Slow {
            id: self.next_slow,
            at: unix_time().as_secs(),
            micros: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            words: cut,
            address: sender.address.to_string(),
            name: sender.name.clone(),
        });
        self.next_slow += 1;
        self.slow.truncate(max);
    }

    /// A command took longer than the threshold of LATENCY.
    pub fn late(&mut self, took: Duration) {
        let sample = (unix_time().as_secs(), u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        // One sample a second, the worst.
        match self.latency.back_mut() {
            Some(last) if last.0 == sample.0 => last.1 = last.1.max(sample.1),
            _ => self.latency.push_back(sample),
        }
        if self.latency.len() > SAMPLES_MAX {
            self.latency.pop_front();
        }
    }
}

fn cut_short(word: &[u8]) -> Bytes {
    if word.len() <= SLOW_BYTES_MAX {
        return Bytes::copy_from_slice(word);
    }
    let more = format!("... ({} more bytes)", word.len() - SLOW_BYTES_MAX);
    Bytes::from([&word[..SLOW_BYTES_MAX], more.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_commands_are_cut_short_and_old_ones_forgotten() {
        let mut stats = Stats::default();
        let sender = Sender { address: "here", name: &Bytes::new() };
        let (long, many) = ([b'x'; 1_000], vec![&b"y"[..]; 100]);
        stats.slow([&b"SET"[..], &long].into_iter(), Duration::from_millis(20), &sender, 2);
        stats.slow(many.into_iter(), Duration::from_millis(20), &sender, 2);
        assert_eq!(stats.slow[1].words[1].len(), 128 + "... (872 more bytes)".len());
        assert_eq!(stats.slow[0].words.len(), 32);
        assert_eq!(stats.slow[0].words[31], "... (69 more arguments)");
        stats.slow([&b"GET"[..]].into_iter(), Duration::from_millis(20), &sender, 2);
        assert_eq!(stats.slow.iter().map(|slow| slow.id).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn errors_are_counted_by_kind_and_their_number_is_bounded() {
        let mut stats = Stats::default();
        for n in 0..1_000 {
            stats.ran("GET", Duration::ZERO, Some(format!("E{n} text").as_bytes()));
        }
        stats.rejected(Some("GET"), b"E0 again");
        assert_eq!((stats.errors.len(), stats.errors["E0"]), (ERRORS_MAX, 2));
        assert_eq!((stats.commands["GET"].failed, stats.commands["GET"].rejected), (1_000, 1));
        stats.reset();
        assert!(stats.commands.is_empty() && stats.errors.is_empty());
    }
}
