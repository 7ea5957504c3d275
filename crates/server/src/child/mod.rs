//! Child processes that speak in lines: agents in any language, MCP servers on standard input and output.

mod guard;
pub(crate) mod lines;
pub(crate) mod places;
pub(crate) mod process;
mod spawner;
