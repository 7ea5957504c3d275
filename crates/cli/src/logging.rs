//! The server's own log, on standard error: for people, or as JSON lines for machines. What may be in
//! it is decided where it is written; secrets have types that don't print themselves. Libraries know
//! nothing of our secrets, and some print what passes through them: below `info` they are never heard.

use std::fmt;
use std::io::{self, IsTerminal as _};

use tracing::{Level, Metadata};
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::Filter as LayerFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::settings::LogFormat;
use crate::telemetry::Telemetry;

/// What is logged: a level, or directives such as `info,rejoin::store=debug`. Checked when it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter(Box<str>);

/// Why a text is no filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilterError {
    text: String,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let levels = LEVELS.join(", ");
        write!(f, "{:?} is not a filter; write one of {levels}, or target=level", self.text)
    }
}

impl std::error::Error for FilterError {}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

impl Filter {
    /// The filter in `text`.
    ///
    /// A bare word must be a level. The library would take any other for a module to log everything
    /// of, so that a misspelled `inof` silenced the rest.
    pub(crate) fn parse(text: &str) -> Result<Self, FilterError> {
        let is_level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
        let is_clear = |part: &str| part.contains('=') || is_level(part.trim());
        if text.split(',').all(is_clear) && EnvFilter::try_new(text).is_ok() {
            return Ok(Self(text.into()));
        }
        Err(FilterError { text: text.into() })
    }

    /// The filter as it was written.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// What it lets through, of what may be logged at all.
    fn to_layer_filter(&self) -> impl LayerFilter<Registry> + Send + Sync + 'static {
        EnvFilter::new(&self.0).and(filter_fn(may_be_logged))
    }
}

/// Whatever the filter says: tungstenite's traces, for one, are whole frames with the tokens in them.
fn may_be_logged(metadata: &Metadata<'_>) -> bool {
    let crate_name = metadata.target().split("::").next().unwrap_or_default();
    let ours = crate_name == "rejoin" || crate_name.starts_with("rejoin_");
    ours || *metadata.level() <= Level::INFO
}

/// Starts the log of this process, on standard error; in colour if that is a terminal and `NO_COLOR`
/// is not set. Spans go to `telemetry` as well, whatever the filter says. To be called once.
pub(crate) fn init(
    format: LogFormat,
    filter: &Filter,
    telemetry: Option<&Telemetry>,
) -> Result<(), TryInitError> {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colour = io::stderr().is_terminal() && !no_color;
    let lines = lines(format, filter, colour, io::stderr);
    tracing_subscriber::registry().with(with_telemetry(lines, telemetry)).try_init()
}

/// The log, and beside it the spans, each with its own filter.
fn with_telemetry(lines: Log, telemetry: Option<&Telemetry>) -> Vec<Log> {
    std::iter::once(lines).chain(telemetry.map(|telemetry| telemetry.layer().boxed())).collect()
}

/// Something that takes events or spans.
type Log = Box<dyn Layer<Registry> + Send + Sync>;

/// What turns events into lines for `writer`. Times are in UTC.
fn lines<W>(format: LogFormat, filter: &Filter, colour: bool, writer: W) -> Log
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    match format {
        LogFormat::Text => {
            layer.with_ansi(colour).compact().with_filter(filter.to_layer_filter()).boxed()
        }
        LogFormat::Json => {
            layer.json().flatten_event(true).with_filter(filter.to_layer_filter()).boxed()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::telemetry;

    /// A place to log to that can be read afterwards.
    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat, filter: &str, log: impl FnOnce()) -> String {
        let (page, filter) = (Page::default(), Filter::parse(filter).unwrap());
        let writer = page.clone();
        let layer = lines(format, &filter, false, move || writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
        let bytes = page.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn json_is_one_object_a_line_with_fields_at_the_top() {
        let text = logged(LogFormat::Json, "info", || {
            tracing::info!(session = "sess_1", "attached\nagain");
            tracing::debug!("not asked for");
        });
        let lines: Vec<serde_json::Value> =
            text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0]["message"], "attached\nagain");
        assert_eq!(lines[0]["session"], "sess_1");
        assert_eq!(lines[0]["level"], "INFO");
    }

    #[test]
    fn text_is_in_utc_and_plain_without_a_terminal() {
        let text = logged(LogFormat::Text, "warn", || tracing::warn!(misses = 2, "heartbeat lost"));
        let (time, rest) = text.split_once(' ').unwrap();
        assert!(time.ends_with('Z') && time.contains('T'), "{text}");
        assert!(rest.contains("WARN") && rest.contains("heartbeat lost misses=2"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn libraries_are_not_heard_below_info_whatever_the_filter_says() {
        let text = logged(LogFormat::Text, "trace,tungstenite=trace", || {
            tracing::trace!(target: "tungstenite::protocol", "a frame with a token");
            tracing::debug!(target: "hyper::proto", "a header");
            tracing::info!(target: "hyper::proto", "of use");
            tracing::trace!(target: "rejoin::ws", "ours");
            tracing::trace!(target: "rejoin_store::embedded", "ours too");
            tracing::trace!(target: "rejoinder", "not ours");
        });
        assert!(!text.contains("token") && !text.contains("header"), "{text}");
        assert!(text.contains("of use") && !text.contains("not ours"), "{text}");
        assert!(text.contains(" ours") && text.contains("ours too"), "{text}");
    }

    #[test]
    fn spans_are_told_whatever_the_filter_of_the_log_says() {
        let (url, collected) = telemetry::tests::collector(telemetry::tests::OK);
        let settings = telemetry::tests::settings(&["--otlp-endpoint", &url]);
        let telemetry = telemetry::open(&settings).unwrap().unwrap();
        let page = Page::default();
        let writer = page.clone();
        let filter = Filter::parse("off").unwrap();
        let lines = lines(LogFormat::Text, &filter, false, move || writer.clone());
        let subscriber =
            tracing_subscriber::registry().with(with_telemetry(lines, Some(&telemetry)));
        tracing::subscriber::with_default(subscriber, || {
            let _span =
                tracing::debug_span!(target: "rejoin", "attach", session = "sess_1").entered();
            tracing::error!("not asked for");
        });
        telemetry.finish();
        assert!(collected.recv().unwrap().has("sess_1"));
        assert!(page.0.lock().unwrap().is_empty());
    }

    #[test]
    fn filters_are_levels_or_directives_and_nothing_else() {
        for good in
            ["info", "DEBUG", "off", "info,rejoin::store=debug", "warn,[session{id=1}]=trace"]
        {
            assert!(Filter::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "inof", "info,rejoin", "rejoin=loud", "info,,", "[=="] {
            assert!(Filter::parse(bad).is_err(), "{bad}");
        }
        let error = Filter::parse("inof").unwrap_err().to_string();
        assert!(error.starts_with("\"inof\" is not a filter; write one of off, error"), "{error}");
    }
}
