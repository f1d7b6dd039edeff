//! Redis's patterns: `*`, `?`, `[a-c]`, `[^x]`, `\` before a special character.

/// Whether `text` matches `pattern`. Takes at most as many steps as the product of their lengths: only the last `*` is ever tried
/// again, because whatever an earlier one could gain, the last one can, too.
#[must_use]
pub fn glob_matches(pattern: &[u8], text: &[u8]) -> bool {
    if text.is_empty() {
        // Redis finds the empty key with `*`, but not with `**`.
        return pattern.is_empty() || pattern == b"*";
    }
    let (mut p, mut t) = (0, 0);
    // Behind the last `*`, and how much of the text it has taken.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            retry = Some((p, t));
            continue;
        }
        if t == text.len() {
            return p == pattern.len();
        }
        if let Some(next) = match_one(pattern, p, text[t]) {
            (p, t) = (next, t + 1);
        } else if let Some((after_star, taken)) = retry {
            (p, t) = (after_star, taken + 1);
            retry = Some((p, t));
        } else {
            return false;
        }
    }
}

/// What a match costs a script at most.
pub(super) fn glob_work(pattern: &[u8], text: &[u8]) -> usize {
    pattern.len().saturating_mul(text.len()) / 32
}

/// Whether the element at `p` matches `byte`; gives the position behind it.
fn match_one(pattern: &[u8], p: usize, byte: u8) -> Option<usize> {
    let matches = match *pattern.get(p)? {
        b'?' => true,
        b'[' => return match_class(pattern, p + 1, byte),
        b'\\' if p + 1 < pattern.len() => return (pattern[p + 1] == byte).then_some(p + 2),
        other => other == byte,
    };
    matches.then_some(p + 1)
}

/// The same for a class, from behind its `[`. One that is not closed ends with the pattern, as in Redis.
fn match_class(pattern: &[u8], mut p: usize, byte: u8) -> Option<usize> {
    let is_negated = pattern.get(p) == Some(&b'^');
    p += usize::from(is_negated);
    let mut is_in = false;
    loop {
        match &pattern[p.min(pattern.len())..] {
            [] => break,
            [b'\\', escaped, ..] => {
                is_in |= *escaped == byte;
                p += 2;
            }
            [b']', ..] => {
                p += 1;
                break;
            }
            [a, b'-', b, ..] => {
                is_in |= (*a.min(b)..=*a.max(b)).contains(&byte);
                p += 3;
            }
            [one, ..] => {
                is_in |= *one == byte;
                p += 1;
            }
        }
    }
    (is_in != is_negated).then_some(p)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The obvious way, exponential and all.
    fn naive(p: &[u8], t: &[u8]) -> bool {
        match p {
            [] => t.is_empty(),
            [b'*', rest @ ..] => (0..=t.len()).any(|skip| naive(rest, &t[skip..])),
            _ => t.split_first().is_some_and(|(byte, rest)| {
                match_one(p, 0, *byte).is_some_and(|next| naive(&p[next..], rest))
            }),
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_naive_way(p in r"[ab*?\[\]^\\-]{0,10}", t in "[ab-]{1,10}") {
            prop_assert_eq!(glob_matches(p.as_bytes(), t.as_bytes()), naive(p.as_bytes(), t.as_bytes()));
        }
    }

    #[test]
    fn examples() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("**", "", false),
            ("", "", true),
            ("", "a", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hbllo", true),
            (r"h\[llo", "h[llo", true),
            (r"a\*", "a*", true),
            (r"a\*", "ab", false),
            (r"a\", r"a\", true),
            ("a[b", "ab", true),
            ("a[", "ab", false),
            (r"[\]]", "]", true),
            ("a**b", "ab", true),
            ("*a*b*c", "xxaxxbxxc", true),
            ("*a*b*c", "xxaxxcxxb", false),
        ] {
            assert_eq!(glob_matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_are_no_trap() {
        let pattern = "a*".repeat(2_000) + "b";
        assert!(!glob_matches(pattern.as_bytes(), "a".repeat(5_000).as_bytes()));
    }
}
