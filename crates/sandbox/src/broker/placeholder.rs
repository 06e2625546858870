//! What stands for a credential inside: random text in the shape that programs expect.

use std::fs::File;
use std::io;

/// A format such as `ghp_{36}`: text, and `{n}` for so many random characters (SBX-52).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Random(usize),
}

/// The text is not a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be text with `{{n}}` for n random characters, at least 16 of them and at most 512 in all, as in `ghp_{{36}}`"
)]
pub struct BadFormat;

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Fewer random characters could be met by chance in what a program sends.
const FEWEST: usize = 16;
const LONGEST: usize = 512;

impl Format {
    /// Reads a format.
    pub fn parse(text: &str) -> Result<Self, BadFormat> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (number, after) = after.split_once('}').ok_or(BadFormat)?;
            parts.push(Part::Text(before.to_owned()));
            parts.push(Part::Random(number.parse().map_err(|_| BadFormat)?));
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'}');
        let (mut random, mut length) = (0usize, 0usize);
        for part in &parts {
            match part {
                Part::Text(text) if !plain(text) => return Err(BadFormat),
                Part::Text(text) => length += text.len(),
                Part::Random(count) => {
                    random = random.saturating_add(*count);
                    length = length.saturating_add(*count);
                }
            }
        }
        if random < FEWEST || length > LONGEST { Err(BadFormat) } else { Ok(Self { parts }) }
    }

    /// A fresh placeholder.
    pub fn fill(&self) -> io::Result<String> {
        let mut random = File::open("/dev/urandom")?;
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(fixed) => text.push_str(fixed),
                Part::Random(count) => {
                    for _ in 0..*count {
                        text.push(character(&mut random)?);
                    }
                }
            }
        }
        Ok(text)
    }
}

impl Default for Format {
    fn default() -> Self {
        Self { parts: vec![Part::Random(40)] }
    }
}

/// One of the alphabet, each as likely as the other.
fn character(random: &mut impl io::Read) -> io::Result<char> {
    loop {
        let mut byte = [0];
        random.read_exact(&mut byte)?;
        // 248 is the largest multiple of 62 in a byte.
        if byte[0] < 248 {
            return Ok(char::from(ALPHABET[usize::from(byte[0]) % ALPHABET.len()]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_have_the_shape_that_was_asked_for() {
        // SBX-52
        let format = Format::parse("ghp_{36}").unwrap();
        let (one, other) = (format.fill().unwrap(), format.fill().unwrap());
        assert!(one.starts_with("ghp_") && one.len() == 40 && one != other, "{one} {other}");
        assert!(one[4..].bytes().all(|byte| byte.is_ascii_alphanumeric()));
        assert_eq!(Format::default().fill().unwrap().len(), 40);
        let parts = Format::parse("{20}.{20}-x").unwrap().fill().unwrap();
        assert!(parts.len() == 43 && parts.as_bytes()[20] == b'.' && parts.ends_with("-x"), "{parts}");
        for bad in [
            "",
            "fixed",
            "{}",
            "{15}",
            "{600}",
            "{20",
            "a b{20}",
            "{20}}",
            "{x}{20}",
            "{18446744073709551615}{2}",
        ] {
            assert_eq!(Format::parse(bad), Err(BadFormat), "{bad}");
        }
    }
}
