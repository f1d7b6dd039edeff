//! How values are written: times, sizes, addresses.

use std::net::IpAddr;
use std::time::Duration;

/// `250ms`, `10s`, `2m`.
pub fn time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_ms = match &text[digits.len()..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        _ => return Err("give a number with its unit: ms, s or m (250ms, 10s, 2m)".into()),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "give a whole number with its unit: ms, s or m (250ms, 10s, 2m)".to_string())?;
    number.checked_mul(unit_ms).map(Duration::from_millis).ok_or_else(|| "that is too long".into())
}

/// A time between two bounds.
pub(super) fn time_between(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let time = time(text)?;
    if time < least || time > most {
        return Err(format!("it must lie between {least:?} and {most:?}"));
    }
    Ok(time)
}

/// `1024`, `64kb`, `16mb`, `1gb`, as in redis.conf.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match &lower[digits.len()..] {
        "" | "b" => 1,
        "kb" => 1 << 10,
        "mb" => 1 << 20,
        "gb" => 1 << 30,
        _ => return Err("give a number of bytes, or one with kb, mb or gb (16mb)".into()),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "give a whole number of bytes, or one with kb, mb or gb (16mb)".to_string())?;
    number.checked_mul(unit).ok_or_else(|| "that is too much".into())
}

/// A size between two bounds.
pub(super) fn size_between(text: &str, least: u64, most: u64) -> Result<usize, String> {
    let size = size(text)?;
    if size < least || size > most {
        return Err(format!("it must lie between {least} and {most} bytes"));
    }
    usize::try_from(size).map_err(|_| "that is too much for this machine".into())
}

/// `host:port`, to listen on or to dial.
pub(super) fn address(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port))
            if !host.is_empty() && port.parse::<u16>().is_ok() && !text.contains(char::is_whitespace) =>
        {
            Ok(text.to_string())
        }
        _ => Err("give host:port, such as 10.0.0.7:6379".into()),
    }
}

/// An address that others can dial: a real host and a real port.
pub(super) fn dialable(text: &str) -> Result<String, String> {
    let address = address(text)?;
    if is_any_host(&address) || address.ends_with(":0") {
        return Err("others must be able to dial it: give this node's own host and port".into());
    }
    Ok(address)
}

/// Whether it stands for all addresses of the machine: good to listen on, no use to anybody else.
#[must_use]
pub fn is_any_host(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified())
}

/// A whole number.
pub(super) fn whole<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "give a whole number".to_string())
}

/// `true` or `false`.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" | "" => Ok(false),
        _ => Err("give true or false".into()),
    }
}

/// A secret that fits on one line of a file.
pub(super) fn secret(text: &str) -> Result<String, String> {
    if text.len() < 8 || text.chars().any(char::is_control) || text.trim() != text {
        return Err("give at least 8 printable characters, without spaces at the ends".into());
    }
    Ok(text.to_string())
}

/// Empty: not set.
pub(super) fn optional<T>(
    text: &str,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    if text.is_empty() { Ok(None) } else { read(text).map(Some) }
}
