//! Child processes that speak in lines: agents in any language, MCP servers on standard input and output.

mod environment;
mod file_limit;
mod guard;
pub(crate) mod lines;
pub(crate) mod places;
pub(crate) mod process;
mod spawner;
pub(crate) mod stderr;
pub(crate) mod stray;

pub use environment::{ChildEnvironment, set_child_environment};
pub use file_limit::raise_file_limit;
