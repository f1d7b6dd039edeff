//! LCS: what two strings have in common.

use crate::commands::args::is;
use crate::commands::number::integer;
use crate::commands::spec::{Arity, CommandSpec, Group, Handler, Keys};
use crate::commands::{Args, errors, reply};
use crate::machine::{Kind, View};
use crate::reply::Reply;

pub(in crate::commands) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "LCS",
    summary: "Finds the longest common substring.",
    since: "7.0.0",
    group: Group::String,
    arity: Arity::AtLeast(2),
    keys: Keys::Span { first: 0, last: 1 },
    differs: "The product of the two lengths is at most 16 million (Redis: 128 million): everybody else waits meanwhile.",
    handler: Handler::Read(|view, args| reply(lcs(view, args))),
    ..CommandSpec::BASE
}];

/// The most cells of the table.
const CELLS_MAX: usize = 16 << 20;

/// Cells for a unit of a script's work.
const CELLS_PER_WORK: usize = 8;

#[derive(Default)]
struct Options {
    wants_length: bool,
    wants_ranges: bool,
    with_lengths: bool,
    length_min: i64,
}

impl Options {
    fn parse(args: &Args<'_>) -> Result<Options, Reply> {
        let mut options = Options::default();
        let mut rest = args.from(2);
        while let Some(option) = rest.next() {
            if is(option, "LEN") {
                options.wants_length = true;
            } else if is(option, "IDX") {
                options.wants_ranges = true;
            } else if is(option, "WITHMATCHLEN") {
                options.with_lengths = true;
            } else if is(option, "MINMATCHLEN") {
                options.length_min = integer(rest.next().ok_or(errors::SYNTAX)?)?.max(0);
            } else {
                return Err(errors::SYNTAX);
            }
        }
        if options.wants_length && options.wants_ranges {
            return Err(Reply::error("ERR If you want both the length and indexes, please just use IDX."));
        }
        Ok(options)
    }
}

/// The lengths of what the beginnings of two strings have in common.
struct Table {
    cells: Vec<u32>,
    width: usize,
}

impl Table {
    fn new(a: &[u8], b: &[u8]) -> Table {
        let width = b.len() + 1;
        let mut table = Table { cells: vec![0; (a.len() + 1) * width], width };
        for (i, x) in a.iter().enumerate() {
            for (j, y) in b.iter().enumerate() {
                let common =
                    if x == y { table.at(i, j) + 1 } else { table.at(i, j + 1).max(table.at(i + 1, j)) };
                table.cells[(i + 1) * width + j + 1] = common;
            }
        }
        table
    }

    /// For the first `i` bytes of the one and the first `j` of the other.
    fn at(&self, i: usize, j: usize) -> u32 {
        self.cells[i * self.width + j]
    }
}

/// Bytes that follow each other in both strings, from the last to the first: where they begin in both, and how many.
struct Match {
    a: usize,
    b: usize,
    length: usize,
}

impl Match {
    fn reply(&self, with_length: bool) -> Reply {
        let range =
            |from: usize| Reply::Array(vec![Reply::count(from), Reply::count(from + self.length - 1)]);
        let mut parts = vec![range(self.a), range(self.b)];
        if with_length {
            parts.push(Reply::count(self.length));
        }
        Reply::Array(parts)
    }
}

/// LCS key key [LEN] [IDX] [MINMATCHLEN n] [WITHMATCHLEN]
fn lcs(view: &View<'_>, args: &Args<'_>) -> Result<Reply, Reply> {
    let find = |key: &[u8]| match view.find(args.db, key) {
        Some(found) if found.header.kind != Kind::String => {
            Err(Reply::error("ERR The specified keys must contain string values"))
        }
        found => {
            view.work.copy(found.as_ref().map_or(0, |found| found.body().len()));
            Ok(found.map_or(Vec::new(), |found| found.body().to_vec()))
        }
    };
    // Both are looked at before either is refused, as Redis does.
    let (a, b) = (find(args[0]), find(args[1]));
    let (a, b) = (a?, b?);
    let options = Options::parse(args)?;
    if (a.len() + 1).saturating_mul(b.len() + 1) > CELLS_MAX {
        return Err(Reply::error(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
        ));
    }
    view.work.spend((a.len() + 1) * (b.len() + 1) / CELLS_PER_WORK);
    if view.work.is_over() {
        return Ok(Reply::Null);
    }
    let table = Table::new(&a, &b);
    let length = Reply::Integer(table.at(a.len(), b.len()).into());
    if options.wants_length {
        return Ok(length);
    }
    let (mut common, mut matches) = (Vec::new(), Vec::<Match>::new());
    let (mut i, mut j, mut is_in_match) = (a.len(), b.len(), false);
    while i > 0 && j > 0 {
        if a[i - 1] == b[j - 1] {
            (i, j) = (i - 1, j - 1);
            common.push(a[i]);
            match matches.last_mut() {
                Some(last) if is_in_match => (last.a, last.b, last.length) = (i, j, last.length + 1),
                _ => matches.push(Match { a: i, b: j, length: 1 }),
            }
            is_in_match = true;
        } else {
            if table.at(i - 1, j) > table.at(i, j - 1) {
                i -= 1
            } else {
                j -= 1
            }
            is_in_match = false;
        }
    }
    if !options.wants_ranges {
        common.reverse();
        return Ok(Reply::Bulk(common.into()));
    }
    let is_long = |found: &&Match| found.length as i64 >= options.length_min;
    let matches = matches.iter().filter(is_long).map(|found| found.reply(options.with_lengths)).collect();
    Ok(Reply::Map(vec![(Reply::bulk(b"matches"), Reply::Array(matches)), (Reply::bulk(b"len"), length)]))
}
