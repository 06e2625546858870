//! Changing one member of a JSON file where it stands, so that everything else stays as its owner wrote it: order, blanks,
//! comments, and commas behind the last member.
//!
//! Whoever uses this reads the result back and compares; a file that this does not know how to change is then not changed.

use super::super::import::jsonc;

/// A member of an object, by its place in the text.
#[derive(Debug, Clone)]
struct Member {
    key: String,
    /// Where its name begins.
    start: usize,
    /// Where its value begins.
    value: usize,
    /// Behind its value.
    end: usize,
}

/// An object, by its place.
#[derive(Debug)]
struct Object {
    members: Vec<Member>,
    open: usize,
    close: usize,
}

/// The text with `entry` as member `name` of the root's member `within`, and without the members of that which are `gone`.
pub(super) fn change(text: &str, within: &str, name: &str, entry: &str, gone: &[String]) -> Option<String> {
    let mut text = text.to_owned();
    if !root(&text)?.members.iter().any(|member| member.key == within) {
        text = put(&text, &root(&text)?, within, "{}")?;
    }
    for gone in gone {
        let servers = inner(&text, within)?;
        if let Some(place) = servers.members.iter().position(|member| member.key == *gone) {
            text = without(&text, &servers, place);
        }
    }
    let servers = inner(&text, within)?;
    put(&text, &servers, name, entry)
}

fn root(text: &str) -> Option<Object> {
    let plain = jsonc::plain(text);
    object(&plain, plain.find('{')?)
}

fn inner(text: &str, within: &str) -> Option<Object> {
    let root = root(text)?;
    let member = root.members.into_iter().find(|member| member.key == within)?;
    object(&jsonc::plain(text), member.value)
}

/// Reads the members of an object of plain JSON.
fn object(plain: &str, open: usize) -> Option<Object> {
    let bytes = plain.as_bytes();
    (*bytes.get(open)? == b'{').then_some(())?;
    let mut members = Vec::new();
    let mut at = open + 1;
    loop {
        at = skip_blanks(bytes, at);
        match bytes.get(at)? {
            b'}' => return Some(Object { members, open, close: at }),
            b',' => at += 1,
            b'"' => {
                let named = end_of_value(bytes, at)?;
                let key = serde_json::from_str(plain.get(at..named)?).ok()?;
                let colon = skip_blanks(bytes, named);
                (*bytes.get(colon)? == b':').then_some(())?;
                let value = skip_blanks(bytes, colon + 1);
                let end = end_of_value(bytes, value)?;
                members.push(Member { key, start: at, value, end });
                at = end;
            }
            _ => return None,
        }
    }
}

fn skip_blanks(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
        at += 1;
    }
    at
}

/// Behind the value that begins here.
fn end_of_value(bytes: &[u8], start: usize) -> Option<usize> {
    let (mut at, mut depth) = (start, 0_usize);
    loop {
        match bytes.get(at)? {
            b'"' => {
                at += 1;
                while *bytes.get(at)? != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                at += 1;
            }
            _ => {
                at += 1;
                let goes_on = |byte: &u8| !matches!(byte, b',' | b'}' | b']') && !byte.is_ascii_whitespace();
                while depth == 0 && bytes.get(at).is_some_and(goes_on) {
                    at += 1;
                }
            }
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

/// Puts a member in, in place of one of this name or behind the last.
fn put(text: &str, object: &Object, name: &str, value: &str) -> Option<String> {
    if let Some(known) = object.members.iter().find(|member| member.key == name) {
        let indent = indent_of(text, known.start).unwrap_or_default();
        return Some(format!("{}{}{}", &text[..known.value], indented(value, &indent), &text[known.end..]));
    }
    let name = serde_json::to_string(name).ok()?;
    let Some(last) = object.members.last() else {
        let outer = indent_of_line(text, object.open);
        let inner = format!("{outer}{}", if outer.contains('\t') { "\t" } else { "  " });
        let member = format!("{name}: {}", indented(value, &inner));
        // What there is of blanks and comments stays before it.
        let before = text[object.open + 1..object.close].trim_end();
        let (head, tail) = (&text[..=object.open], &text[object.close..]);
        return Some(format!("{head}{before}\n{inner}{member}\n{outer}{tail}"));
    };
    let comma = comma_behind(text, last.end, object.close);
    let at = comma.map_or(last.end, |comma| comma + 1);
    let (before, behind) = (if comma.is_some() { "" } else { "," }, if comma.is_some() { "," } else { "" });
    let member = match indent_of(text, last.start) {
        Some(indent) => format!("{before}\n{indent}{name}: {}{behind}", indented(value, &indent)),
        None => format!("{before} {name}: {}{behind}", compact(value)),
    };
    Some(format!("{}{member}{}", &text[..at], &text[at..]))
}

/// Takes a member out, and the comma that went with it.
fn without(text: &str, object: &Object, place: usize) -> String {
    let member = &object.members[place];
    let (from, to) =
        match (place.checked_sub(1).map(|before| &object.members[before]), object.members.get(place + 1)) {
            (_, Some(next)) => (member.start, next.start),
            (Some(before), None) => (before.end, member.end),
            (None, None) => {
                let comma = comma_behind(text, member.end, object.close);
                (member.start, comma.map_or(member.end, |comma| comma + 1))
            }
        };
    format!("{}{}", &text[..from], &text[to..])
}

/// A comma between two places that is in no comment.
fn comma_behind(text: &str, from: usize, to: usize) -> Option<usize> {
    let between = &text.as_bytes()[from..to];
    let mut at = 0;
    while at < between.len() {
        match (between[at], between.get(at + 1)) {
            (b',', _) => return Some(from + at),
            (b'/', Some(b'/')) => {
                at += between[at..].iter().position(|byte| *byte == b'\n')?;
            }
            (b'/', Some(b'*')) => {
                at += between[at + 2..].windows(2).position(|two| two == b"*/")? + 4;
            }
            _ => at += 1,
        }
    }
    None
}

/// The blanks before a place, if nothing else is before it in its line.
fn indent_of(text: &str, at: usize) -> Option<String> {
    let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let before = &text[line..at];
    // The first line of a file is where the root begins, not where a member stands.
    (line > 0 || before.is_empty()).then_some(())?;
    before.chars().all(|c| c == ' ' || c == '\t').then(|| before.to_owned())
}

/// The blanks that the line of a place begins with.
fn indent_of_line(text: &str, at: usize) -> String {
    let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
    text[line..at].chars().take_while(|c| *c == ' ' || *c == '\t').collect()
}

fn indented(value: &str, indent: &str) -> String {
    value.replace('\n', &format!("\n{indent}"))
}

fn compact(value: &str) -> String {
    serde_json::from_str::<serde_json::Value>(value)
        .map_or_else(|_| value.to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const ENTRY: &str = "{\n  \"url\": \"u\"\n}";

    fn changed(text: &str, gone: &[&str]) -> String {
        let gone: Vec<String> = gone.iter().map(|name| (*name).to_owned()).collect();
        change(text, "mcpServers", "gate", ENTRY, &gone).unwrap()
    }

    #[test]
    fn a_member_is_added_as_its_neighbours_are_written() {
        for (text, expected) in [
            (
                "{\n    // mine\n    \"mcpServers\": {\n        \"a\": {\"x\": [1, 2]} // keep\n    }\n}\n",
                "{\n    // mine\n    \"mcpServers\": {\n        \"a\": {\"x\": [1, 2]},\n        \"gate\": {\n          \"url\": \"u\"\n        } // keep\n    }\n}\n",
            ),
            (
                "{\"t\": 1, \"mcpServers\": {\"a\": {}}}",
                "{\"t\": 1, \"mcpServers\": {\"a\": {}, \"gate\": {\"url\":\"u\"}}}",
            ),
            (
                "{\n  \"mcpServers\": {\n    \"a\": {}, /* , */\n  },\n}",
                "{\n  \"mcpServers\": {\n    \"a\": {},\n    \"gate\": {\n      \"url\": \"u\"\n    }, /* , */\n  },\n}",
            ),
            ("{}", "{\n  \"mcpServers\": {\n    \"gate\": {\n      \"url\": \"u\"\n    }\n  }\n}"),
        ] {
            assert_eq!(changed(text, &[]), expected);
        }
        let again = changed("{\"mcpServers\": {\"gate\": {\"old\": true}, \"b\": 1}}", &[]);
        let document: Value = serde_json::from_str(&again).unwrap();
        assert_eq!(document, json!({"mcpServers": {"gate": {"url": "u"}, "b": 1}}));
    }

    #[test]
    fn members_are_taken_out_wherever_they_stand() {
        let text = "{\"mcpServers\": {\"a\": {\"}\": \"{\"}, // one\n \"b\": \"x\\\"y\", \"c\": null,}}";
        for (gone, left) in [
            (vec!["a"], vec!["b", "c"]),
            (vec!["b"], vec!["a", "c"]),
            (vec!["c"], vec!["a", "b"]),
            (vec!["c", "a"], vec!["b"]),
            (vec!["a", "b", "c"], vec![]),
            (vec!["nobody"], vec!["a", "b", "c"]),
        ] {
            let text = changed(text, &gone);
            let document: Value =
                serde_json::from_str(&jsonc::plain(&text)).unwrap_or_else(|_| panic!("{text}"));
            let servers = document["mcpServers"].as_object().unwrap();
            assert_eq!(servers.len(), left.len() + 1, "{text}");
            assert!(
                left.iter().all(|name| servers.contains_key(*name)) && servers.contains_key("gate"),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_object_is_not_changed() {
        for text in ["[]", "", "{\"mcpServers\": []}", "{\"mcpServers\": {\"a\" 1}}"] {
            assert_eq!(change(text, "mcpServers", "gate", ENTRY, &[]), None, "{text}");
        }
    }
}
