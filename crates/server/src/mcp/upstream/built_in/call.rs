//! One call of a tool.

use std::sync::PoisonError;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::tools::Tool;
use super::{Level, RequestVoice, ServerMemory};
use crate::mcp::message::{Message, read};
use crate::mcp::own_words::{RpcError, code};

/// The longest that one step may take.
pub(super) const LONGEST_MS: u64 = 60 * 60 * 1000;

/// The most steps.
pub(super) const MOST_STEPS: u64 = 10_000;

/// Notes that are kept for a session, and the longest of them.
const MOST_NOTES: usize = 1_000;
const LONGEST_NOTE: usize = 64 * 1024;

/// A call under way.
pub(super) struct Call<'a> {
    voice: &'a RequestVoice,
    memory: &'a ServerMemory,
    params: CallParams<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CallParams<'a> {
    name: String,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Meta<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Meta<'a> {
    #[serde(borrow, rename = "progressToken")]
    token: Option<&'a RawValue>,
}

/// What a tool has to say in the end: a text, or why it failed.
type ToolSays = Result<String, String>;

impl<'a> Call<'a> {
    pub(super) fn of(
        voice: &'a RequestVoice,
        memory: &'a ServerMemory,
        message: &'a Message,
    ) -> Self {
        Self { voice, memory, params: message.read_params() }
    }

    pub(super) async fn run(&self) -> Result<Value, RpcError> {
        let Some(tool) = Tool::named(&self.params.name) else {
            let sentence = format!("there is no tool {:?}", self.params.name);
            return Err(RpcError::new(code::INVALID_PARAMS, sentence));
        };
        let said = match tool {
            Tool::Countdown => self.countdown().await,
            Tool::SlowEcho => self.slow_echo().await,
            Tool::Research => self.research().await,
            Tool::Remember => self.remember().await,
            Tool::Recall => Ok(self.recall()),
        };
        let failed = said.is_err();
        let text = said.unwrap_or_else(|why| why);
        Ok(json!({ "content": [{ "type": "text", "text": text }], "isError": failed }))
    }

    async fn countdown(&self) -> ToolSays {
        #[derive(Deserialize)]
        #[serde(default)]
        struct Arguments {
            from: u64,
            interval_ms: u64,
        }
        impl Default for Arguments {
            fn default() -> Self {
                Self { from: 5, interval_ms: 1_000 }
            }
        }
        let Arguments { from, interval_ms } = self.arguments()?;
        let interval = within(interval_ms)?;
        for done in 1..=steps(from)? {
            sleep(interval).await;
            self.progress(done, from, &format!("{} to go", from - done)).await;
        }
        Ok(format!("Counted down from {from}."))
    }

    async fn slow_echo(&self) -> ToolSays {
        #[derive(Deserialize)]
        struct Arguments {
            text: String,
            delay_ms: Option<u64>,
        }
        let Arguments { text, delay_ms } = self.arguments()?;
        sleep(within(delay_ms.unwrap_or(3_000))?).await;
        Ok(text)
    }

    async fn research(&self) -> ToolSays {
        #[derive(Deserialize)]
        struct Arguments {
            topic: String,
            steps: Option<u64>,
            step_ms: Option<u64>,
        }
        const STAGES: [&str; 4] =
            ["collecting sources", "reading", "comparing what they say", "checking the numbers"];
        let Arguments { topic, steps: asked, step_ms } = self.arguments()?;
        let (count, pause) = (steps(asked.unwrap_or(5))?, within(step_ms.unwrap_or(2_000))?);
        for (done, stage) in (1..=count).zip(STAGES.iter().cycle()) {
            self.log(&format!("step {done} of {count}: {stage}")).await;
            sleep(pause).await;
            self.progress(done, count, stage).await;
        }
        Ok(format!("A report on {topic}, after {count} steps: more research is needed."))
    }

    async fn remember(&self) -> ToolSays {
        #[derive(Deserialize)]
        struct Arguments {
            note: String,
            delay_ms: Option<u64>,
        }
        let Arguments { note, delay_ms } = self.arguments()?;
        if note.len() > LONGEST_NOTE {
            return Err(format!("a note has at most {LONGEST_NOTE} bytes"));
        }
        sleep(within(delay_ms.unwrap_or(0))?).await;
        let mut notes = self.memory.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() >= MOST_NOTES {
            return Err(format!("there are {MOST_NOTES} notes already, and no more are kept"));
        }
        notes.push(note);
        Ok(format!("Noted; there are {} now.", notes.len()))
    }

    fn recall(&self) -> String {
        let notes = self.memory.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.is_empty() { "There are no notes.".to_owned() } else { notes.join("\n") }
    }

    fn arguments<T: DeserializeOwned>(&self) -> Result<T, String> {
        let given = self.params.arguments.map_or("{}", RawValue::get);
        serde_json::from_str(given).map_err(|error| format!("The arguments are wrong: {error}."))
    }

    async fn progress(&self, done: u64, total: u64, message: &str) {
        let Some(token) = self.params.meta.token else { return };
        let token: Value = read(Some(token));
        let params = json!({
            "progressToken": token, "progress": done, "total": total, "message": message,
        });
        self.voice.notify("notifications/progress", &params).await;
    }

    async fn log(&self, text: &str) {
        let wanted = *self.memory.level.lock().unwrap_or_else(PoisonError::into_inner);
        if wanted <= Level::Info {
            let params = json!({ "level": "info", "logger": self.params.name, "data": text });
            self.voice.notify("notifications/message", &params).await;
        }
    }
}

fn within(milliseconds: u64) -> Result<Duration, String> {
    match milliseconds <= LONGEST_MS {
        true => Ok(Duration::from_millis(milliseconds)),
        false => Err(format!("A step takes at most {LONGEST_MS} milliseconds.")),
    }
}

fn steps(count: u64) -> Result<u64, String> {
    match (1..=MOST_STEPS).contains(&count) {
        true => Ok(count),
        false => Err(format!("There are 1 to {MOST_STEPS} steps.")),
    }
}
