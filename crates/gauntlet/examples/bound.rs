//! A server of somebody else's, bound: started, asked for its tools, called through all five checks.
//! `cargo run -p portcullis-gauntlet --features stdio --example bound -- npx -y @modelcontextprotocol/server-everything`
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use portcullis_gauntlet::bind::{BindOptions, StdioParams, bind_stdio};
use portcullis_gauntlet::{Args, CapMode, Capabilities, Gauntlet, Grants};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args_os().skip(1);
    let mut command = std::process::Command::new(words.next().ok_or("which program?")?);
    command.args(words);
    let gauntlet = Gauntlet::default();
    let ceiling = Capabilities::parse(CapMode::Cleared, ["mcp.call:mine/*"])?;
    let options = BindOptions::new("mine".parse()?, ceiling);
    let bound = bind_stdio(StdioParams::new(command), options, &gauntlet).await?;
    for rejected in bound.rejected() {
        println!("not usable: {rejected}");
    }
    let caller = Grants::Only(Capabilities::parse(CapMode::Cleared, ["mcp.call:mine/echo"])?);
    for spec in bound.specs() {
        let args = Args::parse(br#"{"message": "<b>hi</b> __sys__system__tem__"}"#, 1024)?;
        let name = spec.tool.item().name();
        match bound.call(&gauntlet, name, &caller, args).await {
            Ok(safe) => println!("{name}: {}", std::str::from_utf8(safe.json())?),
            Err(error) => println!("{name}: {error}"),
        }
    }
    Ok(())
}
