//! A tool: its name, its class, what it takes and answers, and the handler behind it (admin §2).
//!
//! The class decides what a handler is given. A read handler has nothing to change anything with. A write handler has an
//! actor. An admin handler has an [`AdminGrant`], which only the invoker makes, and can answer only with an
//! [`AuditReceipt`](crate::AuditReceipt), which only the grant gives:
//!
//! ```compile_fail,E0593
//! use portcullis_admin::{admin_tool, AdminError, Committed, Cx, args::NoArgs};
//! // ADM-51, SO-40: an admin handler without a grant.
//! admin_tool("servers", "wipe", "Wipe.", |_cx: Cx, _args: NoArgs| async { Ok::<Committed<u8>, AdminError>(todo!()) });
//! ```
//! ```compile_fail,E0271
//! use portcullis_admin::{admin_tool, AdminError, AdminGrant, Reply, Cx, args::NoArgs};
//! // ADM-52, SO-40: a success without a receipt.
//! admin_tool("servers", "wipe", "Wipe.", |_cx: Cx, _grant: AdminGrant, _args: NoArgs| async {
//!     Ok::<Reply<u8>, AdminError>(Reply::ok(1))
//! });
//! ```

use std::future::Future;
use std::pin::Pin;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::args::{ArgValue, Describe, ToolArgs};
use crate::boundary;
use crate::cx::{ActorRef, Cx};
use crate::error::AdminError;
use crate::grant::AdminGrant;
use crate::reply::{Committed, Handled, Reply};

/// What a tool may do (ADM-10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Looks.
    Read,
    /// Changes, but destroys nothing and gives no authority.
    Write,
    /// Destroys or changes authority: needs an identified actor, a confirmation and a reason.
    Admin,
}

impl Class {
    /// The word in tags.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Read => "read",
            Class::Write => "write",
            Class::Admin => "admin",
        }
    }

    /// The word in descriptions (SURF-34).
    pub fn effect(self) -> &'static str {
        match self {
            Class::Read => "Read-only.",
            Class::Write => "Mutating.",
            Class::Admin => "Destructive.",
        }
    }
}

pub(crate) type Running = Pin<Box<dyn Future<Output = Result<Handled, AdminError>> + Send>>;
/// A call whose arguments have been understood.
pub(crate) type Prepared = Box<dyn FnOnce(Cx, Entrance) -> Running + Send>;
type Prepare = Box<dyn Fn(&Map<String, Value>) -> Result<Prepared, AdminError> + Send + Sync>;

/// What the invoker lets a handler in with.
pub(crate) enum Entrance {
    Read,
    Write(ActorRef),
    Admin(AdminGrant),
}

/// One tool.
pub struct ToolDef {
    name: String,
    domain: &'static str,
    class: Class,
    description: String,
    input_schema: Value,
    data_schema: Option<Value>,
    pub(crate) prepare: Prepare,
    wired: bool,
    own: bool,
}

impl std::fmt::Debug for ToolDef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ToolDef({}, {})", self.name, self.tag())
    }
}

impl ToolDef {
    fn new<A: ToolArgs + ArgValue>(
        class: Class,
        (domain, action, doc): (&'static str, &'static str, &'static str),
        data_schema: Option<Value>,
        prepare: Prepare,
    ) -> Self {
        let mut schema = Describe::default();
        A::describe(&mut schema);
        if class == Class::Admin {
            guard(&mut schema);
        }
        let description = format!("{doc} {} Object: {domain}.", class.effect());
        let name = format!("portcullis_{domain}_{action}");
        let wired = data_schema.is_some();
        let input_schema = schema.finish();
        Self { name, domain, class, description, input_schema, data_schema, prepare, wired, own: false }
    }

    /// The same for agents too, if a role shows it to one: its handler tells each caller of its own objects only (ADM-3).
    /// What changes something stays where it is.
    #[must_use]
    pub fn for_owners(self) -> Self {
        Self { own: self.class == Class::Read, ..self }
    }

    /// Whether agents can be shown it.
    pub fn is_for_owners(&self) -> bool {
        self.own
    }

    /// The whole name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name without the prefix: what a command or a page calls it.
    pub fn short_name(&self) -> &str {
        self.name.trim_start_matches("portcullis_")
    }

    /// Which part of the gateway it is about.
    pub fn domain(&self) -> &'static str {
        self.domain
    }

    /// What it may do.
    pub fn class(&self) -> Class {
        self.class
    }

    /// `<domain>:<class>`, which roles and four eyes go by.
    pub fn tag(&self) -> String {
        format!("{}:{}", self.domain, self.class.as_str())
    }

    /// What it does, in at most 140 characters.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The schema of its arguments, made of the struct its handler takes.
    pub fn input_schema(&self) -> &Value {
        &self.input_schema
    }

    /// The schema of its data.
    pub fn data_schema(&self) -> Option<&Value> {
        self.data_schema.as_ref()
    }

    /// Whether there is something behind it.
    pub fn is_wired(&self) -> bool {
        self.wired
    }

    /// As `tools/list` shows it.
    pub fn wire(&self) -> Value {
        let mut tool =
            json!({"name": self.name, "description": self.description, "inputSchema": self.input_schema});
        match self.class {
            Class::Read => tool["annotations"] = json!({"readOnlyHint": true}),
            Class::Write => {}
            Class::Admin => tool["annotations"] = json!({"destructiveHint": true}),
        }
        tool
    }
}

/// The two members that every admin tool takes (ADM-50).
fn guard(schema: &mut Describe) {
    schema.property("confirm", json!({"type": "boolean", "enum": [true]}), true);
    let reason = json!({"type": "string", "minLength": 1, "maxLength": 500, "pattern": ".*\\S.*"});
    schema.property("reason", reason, true);
}

/// A tool that looks.
///
/// It has nothing to change anything with:
///
/// ```compile_fail,E0061
/// use portcullis_admin::{read_tool, AdminError, Cx, Reply, args::NoArgs};
/// read_tool("servers", "peek", "Peek.", |cx: Cx, _args: NoArgs| async move {
///     // Halting takes an `&Op`, which nobody here has.
///     cx.servers().halt(&"x".parse().unwrap()).await?;
///     Ok::<Reply<u8>, AdminError>(Reply::ok(1))
/// });
/// ```
pub fn read_tool<A, D, F, Fut>(
    domain: &'static str,
    action: &'static str,
    doc: &'static str,
    handler: F,
) -> ToolDef
where
    A: ToolArgs + ArgValue,
    D: Data,
    F: Fn(Cx, A) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Reply<D>, AdminError>> + Send + 'static,
{
    let prepare: Prepare = Box::new(move |object| {
        let args: A = boundary::parse("mcp.tool", object)?;
        let handler = handler.clone();
        Ok(Box::new(move |cx, _| Box::pin(async move { handler(cx, args).await.map(Reply::into_handled) })))
    });
    ToolDef::new::<A>(Class::Read, (domain, action, doc), Some(schema_of::<D>()), prepare)
}

/// A tool that changes something, but destroys nothing and gives no authority.
pub fn write_tool<A, D, F, Fut>(
    domain: &'static str,
    action: &'static str,
    doc: &'static str,
    handler: F,
) -> ToolDef
where
    A: ToolArgs + ArgValue,
    D: Data,
    F: Fn(Cx, ActorRef, A) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Reply<D>, AdminError>> + Send + 'static,
{
    let prepare: Prepare = Box::new(move |object| {
        let args: A = boundary::parse("mcp.tool", object)?;
        let handler = handler.clone();
        Ok(Box::new(move |cx, entrance| {
            Box::pin(async move {
                match entrance {
                    Entrance::Write(actor) => handler(cx, actor, args).await.map(Reply::into_handled),
                    _ => Err(AdminError::argument("actor", "required")),
                }
            })
        }))
    });
    ToolDef::new::<A>(Class::Write, (domain, action, doc), Some(schema_of::<D>()), prepare)
}

/// A tool that destroys or changes authority.
pub fn admin_tool<A, D, F, Fut>(
    domain: &'static str,
    action: &'static str,
    doc: &'static str,
    handler: F,
) -> ToolDef
where
    A: ToolArgs + ArgValue,
    D: Data,
    F: Fn(Cx, AdminGrant, A) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Committed<D>, AdminError>> + Send + 'static,
{
    let prepare: Prepare = Box::new(move |object| {
        let args: A = boundary::parse("mcp.tool", object)?;
        let handler = handler.clone();
        Ok(Box::new(move |cx, entrance| {
            Box::pin(async move {
                match entrance {
                    Entrance::Admin(grant) => handler(cx, grant, args).await.map(Committed::into_handled),
                    _ => Err(AdminError::failure("an admin tool was entered without a grant")),
                }
            })
        }))
    });
    ToolDef::new::<A>(Class::Admin, (domain, action, doc), Some(schema_of::<D>()), prepare)
}

/// A tool that is named and has nothing behind it yet (ADM-15).
pub fn unwired_tool<A: ToolArgs + ArgValue>(
    domain: &'static str,
    action: &'static str,
    class: Class,
    reason: &'static str,
) -> ToolDef {
    let prepare: Prepare = Box::new(move |object| {
        boundary::parse::<A>("mcp.tool", object)?;
        Err(AdminError::not_wired(reason))
    });
    ToolDef::new::<A>(class, (domain, action, "Not available yet."), None, prepare)
}

/// What a tool can answer.
pub trait Data: Serialize + JsonSchema + Send + 'static {}

impl<T: Serialize + JsonSchema + Send + 'static> Data for T {}

fn schema_of<D: JsonSchema>() -> Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<D>().to_value();
    if let Some(object) = schema.as_object_mut() {
        object.remove("title");
    }
    schema
}
