//! HTML character references, as a browser reads them and as a lenient reader might (GNT-Z2).
//!
//! The strict decoding is the WHATWG's: all names, the old ones without a semicolon by longest prefix, numbers
//! with any leading zeros. The loose one reads more: `&amp;amp;lt;` in one go, a few names in any case, and any
//! semicolon left out. Nothing decoded here is ever shown; it only decides what is removed.

use std::sync::LazyLock;

use super::automaton::Unit;

/// The named references of the HTML standard: `name TAB code points`, in byte order.
static NAMES: LazyLock<Vec<(&'static str, Vec<char>)>> = LazyLock::new(|| {
    let row = |line: &'static str| -> Option<(&'static str, Vec<char>)> {
        let (name, codes) = line.split_once('\t')?;
        let code = |code| char::from_u32(u32::from_str_radix(code, 16).ok()?);
        Some((name, codes.split(' ').map(code).collect::<Option<_>>()?))
    };
    include_str!("../../data/entities.tsv")
        .lines()
        .map(|line| row(line).expect("a name and its text"))
        .collect()
});

/// What a reference to a control character or to no character yields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    /// The character.
    Keep,
    /// Nothing.
    Drop,
}

/// Decodes readings, with buffers that are used again.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    strict: Vec<Unit>,
    loose: Vec<Unit>,
}

/// The decodings of a reading.
#[derive(Debug)]
pub(crate) struct Decoded<'d> {
    /// One HTML unescape; `None` if it decodes nothing.
    pub(crate) strict: Option<&'d [Unit]>,
    /// One lenient unescape; `None` if it reads as the strict one does.
    pub(crate) loose: Option<&'d [Unit]>,
    /// Whether a reference named a control or no character: then the other chain reads differently.
    pub(crate) met_control: bool,
}

impl Decoder {
    /// Both decodings of `units`. Mostly they agree, and the lenient one is only written from where they do not.
    pub(crate) fn decode(&mut self, units: &[Unit], control: Control) -> Decoded<'_> {
        let Self { strict: strict_units, loose: loose_units } = self;
        strict_units.clear();
        loose_units.clear();
        let (mut changed, mut met_control) = (false, false);
        let mut apart = None;
        let mut at = 0;
        while let Some(unit) = units.get(at) {
            if unit.ch != '&' {
                strict_units.push(*unit);
                at += 1;
                continue;
            }
            let after = &units[at + 1..];
            let read = strict(after);
            if apart.is_none() && loose(after) != read {
                apart = Some((at, strict_units.len()));
            }
            match read {
                None => {
                    strict_units.push(*unit);
                    at += 1;
                }
                Some(reference) => {
                    changed = true;
                    met_control |= reference.put(units, at, control, strict_units);
                    at += 1 + reference.len;
                }
            }
        }
        let differs = apart.is_some();
        if let Some((from, written)) = apart {
            loose_units.extend_from_slice(&strict_units[..written]);
            let mut at = from;
            while let Some(unit) = units.get(at) {
                match if unit.ch == '&' { loose(&units[at + 1..]) } else { None } {
                    None => {
                        loose_units.push(*unit);
                        at += 1;
                    }
                    Some(reference) => {
                        met_control |= reference.put(units, at, control, loose_units);
                        at += 1 + reference.len;
                    }
                }
            }
        }
        Decoded {
            strict: changed.then_some(strict_units.as_slice()),
            loose: differs.then_some(loose_units.as_slice()),
            met_control,
        }
    }

    /// Puts the strict decoding in place of the reading it was made from.
    pub(crate) fn take_strict(&mut self, level: &mut Vec<Unit>) {
        std::mem::swap(level, &mut self.strict);
    }
}

/// What stands after an ampersand: how many units belong to the reference, and what they mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reference {
    len: usize,
    meaning: Meaning,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Text(&'static [char]),
    Number(u32),
}

impl Reference {
    /// Writes what the reference after the ampersand at `at` means; says whether that is a control or no character.
    fn put(&self, units: &[Unit], at: usize, control: Control, out: &mut Vec<Unit>) -> bool {
        let (start, end) = (units[at].start, units[at + self.len].end);
        let mut put = |ch| out.push(Unit { ch, start, end });
        match self.meaning {
            Meaning::Text(text) => text.iter().copied().for_each(put),
            Meaning::Number(code) => {
                let (ch, is_control) = number(code);
                if !is_control || control == Control::Keep {
                    put(ch);
                }
                return is_control;
            }
        }
        false
    }
}

/// What a number means, and whether it names a control or no character. 0x80 to 0x9f mean what they meant in
/// windows-1252.
fn number(code: u32) -> (char, bool) {
    const WINDOWS_1252: [u16; 32] = [
        0x20ac, 0x81, 0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021, 0x02c6, 0x2030, 0x0160, 0x2039, 0x0152,
        0x8d, 0x017d, 0x8f, 0x90, 0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014, 0x02dc, 0x2122,
        0x0161, 0x203a, 0x0153, 0x9d, 0x017e, 0x0178,
    ];
    match code {
        0x80..=0x9f => {
            let mapped = u32::from(WINDOWS_1252[(code - 0x80) as usize]);
            (char::from_u32(mapped).unwrap_or('\u{fffd}'), true)
        }
        9 | 10 | 13 => (char::from(code as u8), false),
        0..=0x1f | 0x7f => (char::from(code as u8), true),
        code => char::from_u32(code).map_or(('\u{fffd}', true), |ch| (ch, false)),
    }
}

fn strict(after: &[Unit]) -> Option<Reference> {
    if after.first()?.ch == '#' {
        let (len, code) = numeric(after)?;
        return Some(Reference { len: len + semicolon(after, len), meaning: Meaning::Number(code) });
    }
    let (len, text) = named(after)?;
    Some(Reference { len, meaning: Meaning::Text(text) })
}

/// The names read in any case.
const LOOSE_NAMES: [(&str, char); 10] = [
    ("verticalline", '|'),
    ("underbar", '_'),
    ("lowbar", '_'),
    ("verbar", '|'),
    ("vert", '|'),
    ("quot", '"'),
    ("apos", '\''),
    ("amp", '&'),
    ("lt", '<'),
    ("gt", '>'),
];

fn loose(after: &[Unit]) -> Option<Reference> {
    // A run of spellings of the ampersand is one ampersand.
    let mut run = 0;
    while let Some(len) = ampersand(&after[run..]) {
        run += len;
    }
    let rest = &after[run..];
    if let Some(reference) = loose_name(rest).or_else(|| strict(rest)) {
        return Some(Reference { len: run + reference.len, ..reference });
    }
    (run > 0).then_some(Reference { len: run, meaning: Meaning::Text(&['&']) })
}

/// `amp`, `#38` or `#x26` at the start, with its semicolon if it has one.
fn ampersand(after: &[Unit]) -> Option<usize> {
    let len = match numeric(after) {
        Some((len, 38)) => len,
        Some(_) => return None,
        None if starts_with_any_case(after, "amp") => 3,
        None => return None,
    };
    Some(len + semicolon(after, len))
}

fn loose_name(after: &[Unit]) -> Option<Reference> {
    // Reading `&lte;` as `<e;` is wrong and does no harm: it matters only if a marker comes of it.
    let (name, ch) = LOOSE_NAMES.iter().find(|(name, _)| starts_with_any_case(after, name))?;
    let len = name.len() + semicolon(after, name.len());
    let text: &'static [char] = match ch {
        '|' => &['|'],
        '_' => &['_'],
        '"' => &['"'],
        '\'' => &['\''],
        '&' => &['&'],
        '<' => &['<'],
        _ => &['>'],
    };
    Some(Reference { len, meaning: Meaning::Text(text) })
}

fn starts_with_any_case(after: &[Unit], name: &str) -> bool {
    after.len() >= name.len() && name.chars().zip(after).all(|(c, unit)| unit.ch.eq_ignore_ascii_case(&c))
}

fn semicolon(after: &[Unit], at: usize) -> usize {
    usize::from(after.get(at).is_some_and(|unit| unit.ch == ';'))
}

/// `#38` or `#x26` at the start: how long, and the number, saturating.
fn numeric(after: &[Unit]) -> Option<(usize, u32)> {
    if after.first()?.ch != '#' {
        return None;
    }
    let hexadecimal = after.get(1).is_some_and(|unit| matches!(unit.ch, 'x' | 'X'));
    let (radix, from) = if hexadecimal { (16, 2) } else { (10, 1) };
    let mut code = 0u32;
    let mut at = from;
    while let Some(digit) = after.get(at).and_then(|unit| unit.ch.to_digit(radix)) {
        code = code.saturating_mul(radix).saturating_add(digit);
        at += 1;
    }
    (at > from).then_some((at, code))
}

/// The longest name at the start.
fn named(after: &[Unit]) -> Option<(usize, &'static [char])> {
    let names: &'static [(&str, Vec<char>)] = &NAMES;
    let mut candidates = names;
    let mut longest = None;
    for (at, unit) in after.iter().enumerate() {
        let Ok(byte) = u8::try_from(unit.ch) else { break };
        let byte_at = |name: &str| name.as_bytes().get(at).copied();
        let from = candidates.partition_point(|(name, _)| byte_at(name) < Some(byte));
        let to = candidates.partition_point(|(name, _)| byte_at(name) <= Some(byte));
        candidates = &candidates[from..to];
        match candidates.first() {
            None => break,
            // In byte order a name comes before all that continue it.
            Some((name, text)) if name.len() == at + 1 => longest = Some((at + 1, text.as_slice())),
            Some(_) => {}
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sanitise::automaton::units;

    fn once(text: &str) -> String {
        let level: Vec<_> = units(text).collect();
        let mut decoder = Decoder::default();
        let decoded = decoder.decode(&level, Control::Keep).strict.map(<[Unit]>::to_vec);
        decoded.unwrap_or(level).iter().map(|unit| unit.ch).collect()
    }

    #[test]
    fn references_are_read_as_the_standard_says() {
        // GNT-Z2
        assert_eq!(NAMES.len(), 2_231);
        for (text, read) in [
            ("&lt;&LT&amp;lt;", "<<&lt;"),
            ("&copy 2020 &notit; &notin;", "© 2020 ¬it; ∉"),
            ("&#60&#x3c;&#0000060;&#139;", "<<<‹"),
            ("&nvlt;", "<\u{20d2}"),
            ("& &; &# &#; &#x; &unknown; &", "& &; &# &#; &#x; &unknown; &"),
            ("&#xffffffffff;&#xd800;", "\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(once(text), read, "{text}");
        }
    }

    #[test]
    fn a_reference_knows_what_it_was_read_from() {
        let text: Vec<_> = units("a&amp;b").collect();
        let mut decoder = Decoder::default();
        let decoded = decoder.decode(&text, Control::Drop);
        assert!(decoded.loose.is_none(), "both read the same");
        assert_eq!(
            decoded.strict.unwrap().iter().map(|unit| (unit.start, unit.end)).collect::<Vec<_>>(),
            [(0, 1), (1, 6), (6, 7)]
        );
    }
}
