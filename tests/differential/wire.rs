//! A client that fits on a page: the test sees bytes, not a library's opinion of them.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long a reply may take. Machines that run tests can be slow.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A reply, as it stands on the wire.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// A line: its type (`+ - : , # (`) and its text.
    Line(char, Vec<u8>),
    /// `$` or `=`.
    Text(char, Vec<u8>),
    /// `$-1`, `*-1` or `_`.
    Null(char),
    /// `* ~ >` and, with fields and values in turns, `%`.
    List(char, Vec<Value>),
}

impl Value {
    pub fn is_error(&self) -> bool {
        matches!(self, Value::Line('-', _))
    }

    pub fn integer(&self) -> Option<i64> {
        match self {
            Value::Line(':', text) => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// For people.
    pub fn show(&self) -> String {
        match self {
            Value::Line(kind, text) => format!("{kind}{}", text.escape_ascii()),
            Value::Text('$', text) => format!("\"{}\"", text.escape_ascii()),
            Value::Text(kind, text) => format!("{kind}\"{}\"", text.escape_ascii()),
            Value::Null(kind) => format!("{kind}nil"),
            Value::List(kind, items) => {
                let mut text = format!("{kind}[");
                for (n, item) in items.iter().enumerate() {
                    let _ = write!(text, "{}{}", if n == 0 { "" } else { " " }, item.show());
                }
                text + "]"
            }
        }
    }
}

/// A connection.
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub fn connect(port: u16) -> io::Result<Client> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Client { stream: BufReader::new(stream) })
    }

    /// Sends commands in one piece, without waiting for replies.
    pub fn send<'a>(&mut self, commands: impl Iterator<Item = &'a [Vec<u8>]>) -> io::Result<()> {
        let mut bytes = Vec::new();
        for command in commands {
            bytes.extend(format!("*{}\r\n", command.len()).bytes());
            for word in command {
                bytes.extend(format!("${}\r\n", word.len()).bytes());
                bytes.extend_from_slice(word);
                bytes.extend(b"\r\n");
            }
        }
        self.stream.get_mut().write_all(&bytes)
    }

    pub fn ask(&mut self, command: &[&str]) -> io::Result<Value> {
        let words: Vec<Vec<u8>> = command.iter().map(|word| word.as_bytes().to_vec()).collect();
        self.send(std::iter::once(&words[..]))?;
        self.read()
    }

    fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\r\n") {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed"));
        }
        line.truncate(line.len() - 2);
        Ok(line)
    }

    /// The next reply.
    pub fn read(&mut self) -> io::Result<Value> {
        let line = self.line()?;
        let bad = || io::Error::new(io::ErrorKind::InvalidData, format!("no reply: {}", line.escape_ascii()));
        let (kind, rest) = line.split_first().ok_or_else(bad)?;
        let kind = char::from(*kind);
        let length =
            || std::str::from_utf8(rest).ok().and_then(|text| text.parse::<i64>().ok()).ok_or_else(bad);
        match kind {
            '+' | '-' | ':' | ',' | '#' | '(' => Ok(Value::Line(kind, rest.to_vec())),
            '_' => Ok(Value::Null('_')),
            '$' | '=' => match usize::try_from(length()?) {
                Err(_) => Ok(Value::Null(kind)),
                Ok(length) => {
                    let mut text = vec![0; length + 2];
                    self.stream.read_exact(&mut text)?;
                    text.truncate(length);
                    Ok(Value::Text(kind, text))
                }
            },
            '*' | '~' | '>' | '%' => match usize::try_from(length()?) {
                Err(_) => Ok(Value::Null(kind)),
                Ok(length) => {
                    let count = if kind == '%' { 2 * length } else { length };
                    Ok(Value::List(kind, (0..count).map(|_| self.read()).collect::<io::Result<_>>()?))
                }
            },
            _ => Err(bad()),
        }
    }
}
