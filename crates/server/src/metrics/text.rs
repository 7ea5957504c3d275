//! The text format of Prometheus (version 0.0.4), which every scraper reads and `promtool check metrics` checks.

use std::fmt::{Display, Write as _};

use prometheus_client::encoding::text::encode_registry;
use prometheus_client::registry::Registry;
use rejoin_store::Distribution;

/// The media type of this format.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Measurements as text, metric by metric.
#[derive(Debug, Default)]
pub(super) struct MetricsText(String);

impl MetricsText {
    /// Adds everything in a registry, whose library writes OpenMetrics. There a counter's samples are named
    /// `…_total` and its description is not; here both are.
    pub(super) fn registry(&mut self, registry: &Registry) {
        let mut text = String::new();
        let _ = encode_registry(&mut text, registry); // writing into a string can't fail
        let mut help = None;
        for line in text.lines() {
            if line.starts_with("# HELP ") {
                help = Some(line); // what it describes stands in the next line
                continue;
            }
            let counter =
                line.strip_prefix("# TYPE ").and_then(|line| line.strip_suffix(" counter"));
            match (counter, help.take()) {
                (Some(name), Some(help)) => {
                    let help = help.trim_start_matches("# HELP ").trim_start_matches(name);
                    self.line(format_args!("# HELP {name}_total{help}"));
                    self.line(format_args!("# TYPE {name}_total counter"));
                }
                (_, help) => {
                    help.into_iter().for_each(|help| self.line(help));
                    self.line(line);
                }
            }
        }
    }

    /// Describes a metric; its samples follow.
    pub(super) fn describe(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}.\n# TYPE {name} {kind}"));
    }

    /// Adds a sample of the metric that was described last.
    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (at, (label, value)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{}\"", Escaped(value));
        }
        let close = if labels.is_empty() { "" } else { "}" };
        self.line(format_args!("{close} {value}"));
    }

    /// Adds a counter without labels; its name ends in `_total`.
    pub(super) fn counter(&mut self, name: &str, help: &str, count: impl Display) {
        self.describe(name, "counter", help);
        self.sample(name, &[], count);
    }

    /// Adds a gauge without labels.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.describe(name, "gauge", help);
        self.sample(name, &[], value);
    }

    /// Adds a histogram with these upper bounds.
    pub(super) fn histogram<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        bounds: &[f64],
        distribution: &Distribution<N>,
    ) {
        let (below, all) = distribution.cumulated();
        self.describe(name, "histogram", help);
        self.line(format_args!("{name}_sum {}\n{name}_count {all}", distribution.sum()));
        for (bound, count) in bounds.iter().zip(below) {
            self.line(format_args!("{name}_bucket{{le=\"{bound}\"}} {count}"));
        }
        self.line(format_args!("{name}_bucket{{le=\"+Inf\"}} {all}"));
    }

    /// All of it.
    pub(super) fn finish(self) -> String {
        self.0
    }

    fn line(&mut self, line: impl Display) {
        let _ = writeln!(self.0, "{line}");
    }
}

/// The value of a label between its quotation marks.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for character in self.0.chars() {
            match character {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::gauge::Gauge;

    use super::*;

    #[test]
    fn counters_of_a_registry_are_described_under_the_name_of_their_samples() {
        let mut registry = Registry::with_prefix("rejoin");
        registry.register("calls", "Calls", Counter::<u64>::default());
        registry.register("waiting", "Who waits", Gauge::<i64>::default());
        let mut text = MetricsText::default();
        text.registry(&registry);
        assert_eq!(
            text.finish(),
            "# HELP rejoin_calls_total Calls.\n# TYPE rejoin_calls_total counter\nrejoin_calls_total 0\n\
             # HELP rejoin_waiting Who waits.\n# TYPE rejoin_waiting gauge\nrejoin_waiting 0\n"
        );
    }

    #[test]
    fn a_label_can_hold_any_character() {
        let mut text = MetricsText::default();
        text.sample("calls_total", &[("tool", "a\"b\\c\nd"), ("outcome", "ok")], 3);
        assert_eq!(text.finish(), "calls_total{tool=\"a\\\"b\\\\c\\nd\",outcome=\"ok\"} 3\n");
    }
}
