//! One turn of an agent, made of three crates of Portcullis and no gateway:
//!
//! 1. `gauntlet` starts a server of somebody else's and binds its tools: nothing it says about them is believed;
//! 2. `catalog` finds the tool for what the user wants, in a few lines instead of a list of schemas;
//! 3. `gauntlet` checks the call before it is sent and cleans what comes back;
//! 4. `context` says the result in short and makes a prompt that fits a budget.
//!
//! ```sh
//! cargo run -p example-agent-loop -- "find notes about a gate" '{"query": "gate"}' demo-server --dir notes
//! ```
//!
//! A model would choose the card and write the arguments; here the first card is taken, and the arguments are given.
//! What is deliberately absent is everything the gateway is for: policy, approvals, permits, a cage, evidence.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use portcullis_catalog::{BrowseOptions, BuildOptions, CatalogSnapshot, Request, ServerCtx, Source, ToolDef};
use portcullis_context::{Build, ContextBuilder, ContextItem, Kind, Phase};
use portcullis_gauntlet::bind::{BindOptions, Bound, StdioParams, StdioSession, bind_stdio};
use portcullis_gauntlet::{Args, CapMode, Capabilities, Gauntlet, Grants};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

const SERVER: &str = "mine";
/// How many tokens the prompt may have.
const BUDGET: usize = 400;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args_os().skip(1);
    let usage = "usage: example-agent-loop WISH ARGUMENTS PROGRAM [WORDS…]";
    let (Some(wish), Some(arguments), Some(program)) = (words.next(), words.next(), words.next()) else {
        return Err(usage.into());
    };
    let (wish, arguments) =
        (wish.into_string().map_err(|_| usage)?, arguments.into_string().map_err(|_| usage)?);
    let mut command = std::process::Command::new(program);
    command.args(words);

    // The operator's word: this server's tools, and no more than its tools.
    let gauntlet = Gauntlet::default();
    let ceiling = Capabilities::parse(CapMode::Cleared, ["mcp.call:mine/*"])?;
    let bound =
        bind_stdio(StdioParams::new(command), BindOptions::new(SERVER.parse()?, ceiling), &gauntlet).await?;
    for rejected in bound.rejected() {
        println!("# not usable: {rejected}");
    }

    let (cards, name) = choose(&bound, &wish)?;
    println!("{cards}\n\n# calling {name} {arguments}");

    // What cannot be right is refused here, and the server never hears of it.
    let args = Args::parse(arguments.as_bytes(), 64 << 10)?;
    let own = format!("mcp.call:{SERVER}/{name}");
    let caller = Grants::Only(Capabilities::parse(CapMode::Cleared, [own.as_str()])?);
    let safe = bound.call(&gauntlet, &name, &caller, args).await?;

    println!("\n{}", prompt(&wish, &name, &arguments, std::str::from_utf8(safe.json())?)?);
    Ok(())
}

/// What a model would be shown, and the tool that stands first.
fn choose(bound: &Bound<StdioSession>, wish: &str) -> Result<(String, String), Box<dyn Error>> {
    let definitions: Vec<Box<RawValue>> = (bound.specs().iter())
        .filter_map(|spec| bound.tool(spec.tool.item().name()))
        .map(|tool| {
            to_raw_value(&json!({
                "name": tool.spec.tool.item().name(),
                "description": tool.description.as_ref().map(|clean| clean.get().as_str()),
                "inputSchema": tool.spec.input.source(),
            }))
        })
        .collect::<Result<_, _>>()?;
    let server = ServerCtx { server: SERVER.into(), ..ServerCtx::default() };
    let source = Source { server, definitions: definitions.iter().map(|raw| ToolDef::tool(raw)).collect() };
    let catalogue = CatalogSnapshot::build(1, &[source], &BuildOptions::default());
    let request = Request { query: Some(wish), ..Request::default() };
    let answer = catalogue.browse(request, catalogue.everything(), BrowseOptions::default(), None)?;
    let first = answer.items.first().ok_or("no tool fits the wish")?;
    Ok((answer.text, catalogue.items()[*first].upstream_name.clone()))
}

/// The turn so far, as much of it as fits.
fn prompt(wish: &str, tool: &str, arguments: &str, result: &str) -> Result<String, Box<dyn Error>> {
    let mut builder = ContextBuilder::new();
    builder.ingest(ContextItem::new("u1", Kind::UserTurn, wish))?;
    builder.ingest(ContextItem::new("c1", Kind::ToolCall, format!("{tool}({arguments})")).child_of("u1"))?;
    builder.ingest_tool_result("c1", result, tool, "application/json", BUDGET);
    let built = builder.build(&Build { budget: Some(BUDGET), ..Build::new(Phase::Answer, wish) })?;
    Ok(format!("# the prompt, {} of {BUDGET} tokens\n{}", built.tokens, built.prompt))
}
