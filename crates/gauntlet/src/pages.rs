//! Pages that a server wants somebody to visit before it goes on (PRO-70).
//!
//! A server of 2025-11-25 says so with an error of its own, a modern one with a question. Either way an address is opened
//! as it was written, or it is not shown at all: one that was escaped leads somewhere else.

use bytes::Bytes;
use portcullis_core::jsonrpc::RpcError;
use portcullis_core::scrub::MAX_BYTES;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::Gauntlet;
use crate::blocks::clean_member;
use crate::leaves::{Cleaner, Edits, Fault};
use crate::sanitise::Sanitiser;
use crate::sanitise::clean::{Clean, Raw};
use crate::tape::{Kind, Tape, View};

/// The error of 2025-11-25 that says: visit a page first.
pub const URL_ELICITATION_REQUIRED: i32 = -32042;
/// The longest address that is shown.
const MAX_URL_BYTES: usize = 2_048;

/// What a server wants seen first, safe to show.
#[derive(Debug)]
pub struct PagesWanted {
    /// What it says about it.
    pub message: Clean<String>,
    /// The parameters of one elicitation for each page, at least one.
    pub pages: Vec<Clean<Value>>,
}

impl Gauntlet {
    /// The pages that an error asks for. `None` if it is another error; the reason if they cannot be shown.
    ///
    /// ```
    /// use portcullis_gauntlet::{Gauntlet, Raw};
    /// let gauntlet = Gauntlet::default();
    /// let error = r#"{"code":-32042,"message":"first","data":{"elicitations":[
    ///     {"mode":"url","elicitationId":"e","url":"https://a.example/x?a=1&b=2","message":"<b>log in</b>"}]}}"#;
    /// let wanted = gauntlet.pages_wanted(&Raw::new(error.into())).unwrap().unwrap();
    /// assert_eq!(wanted.pages[0].get()["url"], "https://a.example/x?a=1&b=2");
    /// assert_eq!(wanted.pages[0].get()["message"], "&lt;b&gt;log in&lt;/b&gt;");
    /// ```
    pub fn pages_wanted(&self, raw: &Raw<Bytes>) -> Option<Result<PagesWanted, &'static str>> {
        let error: RpcError = serde_json::from_slice(raw.inner()).ok()?;
        if error.code != i64::from(URL_ELICITATION_REQUIRED) {
            return None;
        }
        let message = self.clean_error(Raw::new(&error.message));
        Some(self.pages(error.data.as_deref()).map(|pages| PagesWanted { message, pages }))
    }

    fn pages(&self, data: Option<&RawValue>) -> Result<Vec<Clean<Value>>, &'static str> {
        #[derive(Deserialize)]
        struct Data<'a> {
            #[serde(borrow)]
            elicitations: Vec<&'a RawValue>,
        }
        let data = data.map(RawValue::get).unwrap_or_default();
        if data.len() > MAX_BYTES {
            return Err("it says too much about them");
        }
        let data: Data<'_> = serde_json::from_str(data).map_err(|_| "it does not say which")?;
        if data.elicitations.is_empty() {
            return Err("it does not say which");
        }
        data.elicitations.into_iter().map(|page| self.page(page.get())).collect()
    }

    fn page(&self, json: &str) -> Result<Clean<Value>, &'static str> {
        let tape = Tape::read(json, &mut 0).map_err(|_| "one of them cannot be read")?;
        let root = tape.root();
        if root.kind() != Kind::Object || root.word_of("mode").as_deref() != Some("url") {
            return Err("one of them is no page");
        }
        if !root.get("url").is_some_and(|url| is_address(&self.sanitiser, url)) {
            return Err("one of them has no address that can be shown");
        }
        let Some(message) = root.word_of("message") else { return Err("one of them says nothing") };
        let message = self.clean_text(Raw::new(&message)).map_err(|_| "one of them cannot be shown")?;
        // What is neither shown nor opened must be clean as it is: it is handed on.
        let of_message = root.get("message").map(View::place);
        let mut others = root.everything().filter(|view| matches!(view.kind(), Kind::Name | Kind::String));
        if !others.all(|view| Some(view.place()) == of_message || self.sanitiser.is_clean(&view.text())) {
            return Err("one of them cannot be shown");
        }
        let mut value = root.value();
        value["message"] = message.into_inner().into();
        Ok(Clean::new(value))
    }
}

/// Cleans the questions of a modern server. Addresses stay as they are.
pub(crate) fn clean_questions(
    cleaner: &mut Cleaner<'_>,
    edits: &mut Edits<'_>,
    questions: View<'_, '_>,
) -> Result<(), Fault> {
    if questions.kind() != Kind::Object {
        return cleaner.value(edits, questions);
    }
    for (key, question) in questions.members() {
        cleaner.name(key)?;
        if question.kind() != Kind::Object {
            cleaner.value(edits, question)?;
            continue;
        }
        for (name, member) in question.members() {
            if name.text() == "params" && member.kind() == Kind::Object {
                clean_params(cleaner, edits, member)?;
            } else {
                clean_member(cleaner, edits, name, member)?;
            }
        }
    }
    Ok(())
}

fn clean_params(cleaner: &mut Cleaner<'_>, edits: &mut Edits<'_>, params: View<'_, '_>) -> Result<(), Fault> {
    for (name, member) in params.members() {
        match name.text().as_ref() {
            "url" if is_address(cleaner.sanitiser, member) => {}
            "url" => return Err(Fault::Shape("a question has an address that cannot be shown")),
            _ => clean_member(cleaner, edits, name, member)?,
        }
    }
    Ok(())
}

/// Whether everybody sees the same address: invisible characters and letters that look like others are percent-encoded or
/// punycode in one that is honest.
fn is_address(sanitiser: &Sanitiser, url: View<'_, '_>) -> bool {
    url.word().is_some_and(|url| {
        let is_plain = url.bytes().all(|byte| byte.is_ascii_graphic());
        is_plain && url.len() <= MAX_URL_BYTES && sanitiser.is_clean(&url)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(data: &str) -> Option<Result<PagesWanted, &'static str>> {
        let error = format!(r#"{{"code":-32042,"message":"m","data":{data}}}"#);
        Gauntlet::default().pages_wanted(&Raw::new(error.into()))
    }

    #[test]
    fn only_pages_that_can_be_shown_as_they_are_come_out_of_an_error() {
        // PRO-70
        let page = |url: &str, message: &str| {
            format!(
                r#"{{"elicitations":[{{"mode":"url","elicitationId":"e","url":"{url}","message":"{message}"}}]}}"#
            )
        };
        let shown = wanted(&page("https://a.example/?x=1&y=2", "a & b")).unwrap().unwrap();
        assert_eq!(shown.pages[0].get()["url"], "https://a.example/?x=1&y=2");
        assert_eq!(shown.pages[0].get()["message"], "a &amp; b");
        for unfit in [
            page("https://a.example/__system__", "m"),
            page("https://a.example/\\u200b", "m"),
            page("https://\u{430}.example/", "m"),
            page(&format!("https://a.example/{}", "x".repeat(3_000)), "m"),
            r#"{"elicitations":[]}"#.into(),
            r#"{"elicitations":[{"mode":"form","url":"https://a.example","message":"m"}]}"#.into(),
            r#"{"elicitations":[{"mode":"url","url":"https://a.example"}]}"#.into(),
            r#"{"elicitations":[{"mode":"url","url":"https://a.example","message":"m","<|im_start|>":1}]}"#
                .into(),
            r#"{"elicitations":["https://a.example"]}"#.into(),
            "{}".into(),
            "null".into(),
        ] {
            assert!(wanted(&unfit).unwrap().is_err(), "{unfit}");
        }
        let other = Raw::new(Bytes::from_static(br#"{"code":-32000,"message":"m"}"#));
        assert!(Gauntlet::default().pages_wanted(&other).is_none());
    }
}
