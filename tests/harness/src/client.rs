//! A Redis client that fits on a page.

use crate::patience::{PATIENCE, wait_within};
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// What a node answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+text`
    Simple(String),
    /// `-text`
    Error(String),
    /// `:n`
    Integer(i64),
    /// `$`: bytes.
    Bulk(Vec<u8>),
    /// The null of either protocol version.
    Nil,
    /// `*`
    Array(Vec<Reply>),
    /// `%`
    Map(Vec<(Reply, Reply)>),
    /// `~`
    Set(Vec<Reply>),
    /// `>`: said without being asked.
    Push(Vec<Reply>),
    /// `,`: a floating-point number as it was written.
    Double(String),
    /// `#`
    Bool(bool),
    /// `(`
    Big(String),
    /// `=`: format and text.
    Verbatim(String, Vec<u8>),
}

impl Reply {
    /// Whether it is `+OK`.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        matches!(self, Reply::Simple(text) if text == "OK")
    }

    /// The error's text, if it is one.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        match self {
            Reply::Error(text) => Some(text),
            _ => None,
        }
    }

    /// Whether it is an error that begins so.
    #[must_use]
    pub fn is_error(&self, beginning: &str) -> bool {
        self.error().is_some_and(|text| text.starts_with(beginning))
    }

    /// The number, if it is one; also of a string of digits.
    #[must_use]
    pub fn integer(&self) -> Option<i64> {
        match self {
            Reply::Integer(number) => Some(*number),
            Reply::Bulk(_) | Reply::Simple(_) => self.text()?.parse().ok(),
            _ => None,
        }
    }

    /// The text of a simple, bulk or verbatim string.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        match self {
            Reply::Simple(text) => Some(text.clone()),
            Reply::Bulk(bytes) | Reply::Verbatim(_, bytes) => {
                Some(String::from_utf8_lossy(bytes).into_owned())
            }
            _ => None,
        }
    }

    /// The elements of an array, set or push.
    #[must_use]
    pub fn items(&self) -> &[Reply] {
        match self {
            Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => items,
            _ => &[],
        }
    }

    /// What stands under `name` in a map, or in an array of names and values in turn.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Reply> {
        let is_name = |reply: &Reply| reply.text().is_some_and(|text| text == name);
        match self {
            Reply::Map(pairs) => pairs.iter().find(|(key, _)| is_name(key)).map(|(_, value)| value),
            _ => self.items().chunks_exact(2).find(|pair| is_name(&pair[0])).map(|pair| &pair[1]),
        }
    }
}

/// One line that a test can compare: `+OK`, `-ERR …`, `:3`, a bulk string as its bare text, `(nil)`, `[a, b]`, `{k: v}`.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, items: &[Reply]| {
            let items: Vec<String> = items.iter().map(ToString::to_string).collect();
            write!(f, "[{}]", items.join(", "))
        };
        match self {
            Reply::Simple(text) => write!(f, "+{text}"),
            Reply::Error(text) => write!(f, "-{text}"),
            Reply::Integer(number) => write!(f, ":{number}"),
            Reply::Bulk(bytes) | Reply::Verbatim(_, bytes) => write!(f, "{}", String::from_utf8_lossy(bytes)),
            Reply::Nil => write!(f, "(nil)"),
            Reply::Array(items) => list(f, items),
            Reply::Set(items) => write!(f, "~").and_then(|()| list(f, items)),
            Reply::Push(items) => write!(f, ">").and_then(|()| list(f, items)),
            Reply::Map(pairs) => {
                let pairs: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}: {value}")).collect();
                write!(f, "{{{}}}", pairs.join(", "))
            }
            Reply::Double(text) => write!(f, ",{text}"),
            Reply::Bool(is_true) => write!(f, "#{}", if *is_true { 't' } else { 'f' }),
            Reply::Big(text) => write!(f, "({text}"),
        }
    }
}

impl PartialEq<&str> for Reply {
    fn eq(&self, other: &&str) -> bool {
        let line = self.to_string();
        line == *other
    }
}

impl PartialEq<String> for Reply {
    fn eq(&self, other: &String) -> bool {
        let line = self.to_string();
        line == *other
    }
}

/// One connection to one node.
pub struct Client {
    stream: BufReader<TcpStream>,
    address: String,
}

impl Client {
    /// Connects, once. Reads wait for [`PATIENCE`].
    ///
    /// # Errors
    /// When nobody listens there.
    pub fn try_connect(address: &str) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let client = Client { stream: BufReader::new(stream), address: address.to_string() };
        client.set_patience(PATIENCE)?;
        Ok(client)
    }

    /// Connects as soon as somebody listens.
    ///
    /// # Panics
    /// When nobody does for [`PATIENCE`].
    #[must_use]
    pub fn connect(address: &str) -> Client {
        wait_within(PATIENCE, &format!("somebody to listen on {address}"), || {
            Client::try_connect(address).ok()
        })
    }

    /// How long a read or a write waits before it fails with `WouldBlock`.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(Some(patience))?;
        self.stream.get_ref().set_write_timeout(Some(patience))
    }

    /// The connection itself, to send what no client would.
    pub fn raw(&mut self) -> &mut TcpStream {
        self.stream.get_mut()
    }

    /// Sends a request and does not wait.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn send<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<()> {
        let mut request = Vec::new();
        encode(words, &mut request);
        self.stream.get_mut().write_all(&request)
    }

    /// The next reply.
    ///
    /// # Errors
    /// When the connection is broken, or nothing comes.
    pub fn receive(&mut self) -> io::Result<Reply> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\r\n") {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.truncate(line.len() - 2);
        let line = String::from_utf8_lossy(&line).into_owned();
        let bad = || io::Error::new(io::ErrorKind::InvalidData, format!("no reply: {line:?}"));
        let (kind, rest) = line.split_at_checked(1).ok_or_else(bad)?;
        let length = || rest.parse::<usize>().map_err(|_| bad());
        Ok(match kind {
            "+" => Reply::Simple(rest.to_string()),
            "-" => Reply::Error(rest.to_string()),
            ":" => Reply::Integer(rest.parse().map_err(|_| bad())?),
            "_" => Reply::Nil,
            "$" | "*" if rest == "-1" => Reply::Nil,
            "$" => Reply::Bulk(self.bytes(length()?)?),
            "!" => Reply::Error(String::from_utf8_lossy(&self.bytes(length()?)?).into_owned()),
            "=" => {
                let mut bytes = self.bytes(length()?)?;
                let text = bytes.split_off(4.min(bytes.len()));
                Reply::Verbatim(String::from_utf8_lossy(&bytes[..3.min(bytes.len())]).into_owned(), text)
            }
            "," => Reply::Double(rest.to_string()),
            "#" => Reply::Bool(rest == "t"),
            "(" => Reply::Big(rest.to_string()),
            "*" => Reply::Array(self.several(length()?)?),
            "~" => Reply::Set(self.several(length()?)?),
            ">" => Reply::Push(self.several(length()?)?),
            "%" => {
                let mut pairs = Vec::new();
                for _ in 0..length()? {
                    pairs.push((self.receive()?, self.receive()?));
                }
                Reply::Map(pairs)
            }
            _ => return Err(bad()),
        })
    }

    /// Asks and waits for the answer.
    ///
    /// # Errors
    /// When the connection is broken, or no answer comes.
    pub fn ask<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<Reply> {
        self.send(words)?;
        self.receive()
    }

    /// Asks where an answer is a must.
    ///
    /// # Panics
    /// When there is none; the message says what was asked, and where.
    pub fn must<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Reply {
        self.ask(words).unwrap_or_else(|error| {
            let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word.as_ref())).collect();
            let mut asked = words.join(" ");
            asked.truncate(asked.floor_char_boundary(200));
            panic!("{} did not answer '{asked}': {error}", self.address)
        })
    }

    /// Sends all requests at once, then takes all replies.
    ///
    /// # Errors
    /// When the connection is broken, or an answer does not come.
    pub fn pipeline<R: AsRef<[W]>, W: AsRef<[u8]>>(&mut self, requests: &[R]) -> io::Result<Vec<Reply>> {
        let mut bytes = Vec::new();
        for request in requests {
            encode(request.as_ref(), &mut bytes);
        }
        self.stream.get_mut().write_all(&bytes)?;
        requests.iter().map(|_| self.receive()).collect()
    }

    fn several(&mut self, count: usize) -> io::Result<Vec<Reply>> {
        (0..count).map(|_| self.receive()).collect()
    }

    fn bytes(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(bytes)
    }
}

/// The bytes of a request.
pub fn encode<W: AsRef<[u8]>>(words: &[W], request: &mut Vec<u8>) {
    request.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        let word = word.as_ref();
        request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        request.extend_from_slice(word);
        request.extend_from_slice(b"\r\n");
    }
}
