//! What a tool's result is, told from its members.

use std::borrow::Cow;

use crate::tape::{Kind, View};

/// The members of a tool result that decide what it is.
#[derive(Debug, Default)]
pub(crate) struct Shape<'t, 's> {
    pub(crate) has_content: bool,
    pub(crate) is_error: bool,
    pub(crate) structured: Option<View<'t, 's>>,
    pub(crate) result_type: Option<Cow<'s, str>>,
}

/// The shape of a result (GNT-P1). The error says what is wrong without quoting anything.
pub(crate) fn shape<'t, 's>(result: View<'t, 's>) -> Result<Shape<'t, 's>, &'static str> {
    if result.kind() != Kind::Object {
        return Err("the result is not an object");
    }
    let mut shape = Shape::default();
    for (name, value) in result.members() {
        match name.text().as_ref() {
            "content" => {
                check_content(value)?;
                shape.has_content = true;
            }
            "isError" => {
                shape.is_error = match value.raw() {
                    "true" => true,
                    "false" => false,
                    _ => return Err("isError is not a boolean"),
                }
            }
            "structuredContent" => shape.structured = Some(value),
            "resultType" => shape.result_type = Some(value.word().ok_or("resultType is not a string")?),
            _ => {}
        }
    }
    Ok(shape)
}

/// An array of blocks, each an object with a `type`.
fn check_content(content: View<'_, '_>) -> Result<(), &'static str> {
    if content.kind() != Kind::Array {
        return Err("content is not an array");
    }
    for block in content.items() {
        if block.kind() != Kind::Object {
            return Err("a content block is not an object");
        }
        if block.get("type").is_none_or(|kind| kind.kind() != Kind::String) {
            return Err("a content block has no type");
        }
    }
    Ok(())
}

/// The result again without its structured content, every other member as it was written (GNT-P6).
pub(crate) fn without_structured(result: View<'_, '_>) -> String {
    let kept = result.members().filter(|(name, _)| name.text() != "structuredContent");
    let members: Vec<String> = kept.map(|(name, value)| format!("{}:{}", name.raw(), value.raw())).collect();
    format!("{{{}}}", members.join(","))
}
