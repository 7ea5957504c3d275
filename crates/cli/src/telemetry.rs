//! Spans for an OpenTelemetry collector: what clients wait for, and nothing that they say.
//!
//! Only spans of these names are made, and only with attributes from a list: a secret that somebody
//! puts into a span by mistake does not leave the process. Batching, dropping what is too much and
//! sending are the SDK's, on a thread of its own; without `otlp_endpoint` none of it exists.

mod http;

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use opentelemetry::trace::{Status, TracerProvider as _};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchSpanProcessor, SdkTracerProvider, SpanData, SpanEvents, SpanExporter as Export, SpanLinks,
};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use self::http::Collector;
use crate::settings::Settings;

/// The spans that are told.
const NAMES: [&str; 5] = ["attach", "resume", "append", "export", "restore"];

/// What may be told with them: names, numbers and reasons, no content.
const ATTRIBUTES: [&str; 14] = [
    "session",
    "transport",
    "kind",
    "outcome",
    "reason",
    "generation",
    "resumed",
    "replayed",
    "gap",
    "lost",
    "events",
    "bytes",
    "duplicate",
    "seq",
];

/// How long the last spans may take to be sent when the server ends.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// The way to the collector.
#[derive(Debug)]
pub(crate) struct Telemetry(SdkTracerProvider);

/// Prepares to send spans to `otlp_endpoint`; nothing if there is none. Nothing is sent yet: a collector
/// that does not answer is none of a client's business.
pub(crate) fn open(settings: &Settings) -> Result<Option<Telemetry>> {
    let Some(endpoint) = &settings.otlp_endpoint else { return Ok(None) };
    let text = |value: &axum::http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let headers: HashMap<String, String> = settings
        .otlp_headers
        .iter()
        .flat_map(|headers| headers.iter())
        .map(|(name, value)| (name.to_string(), text(value)))
        .collect();
    let exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(traces_url(endpoint.as_str()))
        .with_headers(headers)
        .with_http_client(Collector::new(endpoint)?)
        .build()
        .ok() // its errors may repeat the URL, which may hold a token
        .context("otlp_endpoint: spans can't be sent there; write http://host:4318")?;
    let about = [("service.name", "rejoin"), ("service.version", env!("CARGO_PKG_VERSION"))]
        .map(|(key, value)| opentelemetry::KeyValue::new(key, value));
    let provider = SdkTracerProvider::builder()
        .with_resource(Resource::builder_empty().with_attributes(about).build())
        .with_span_processor(BatchSpanProcessor::builder(Listed(exporter)).build())
        .build();
    Ok(Some(Telemetry(provider)))
}

impl Telemetry {
    /// What turns tracing's spans into the collector's.
    pub(crate) fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer("rejoin"))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false)
            .with_filter(filter_fn(is_told))
    }

    /// Sends what is left, within three seconds.
    pub(crate) fn finish(self) {
        if self.0.shutdown_with_timeout(LAST_WORDS).is_err() {
            tracing::warn!("the last spans could not be sent");
        }
    }
}

fn is_told(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    let is_ours = target == "rejoin" || target.starts_with("rejoin::");
    metadata.is_span() && is_ours && NAMES.contains(&metadata.name())
}

/// The URL for spans under a collector's base URL, as OpenTelemetry has it. A query stays at the end.
fn traces_url(base: &str) -> String {
    let (path, query) = match base.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (base, String::new()),
    };
    let path = path.trim_end_matches('/');
    let path = path.strip_suffix("/v1/traces").unwrap_or(path);
    format!("{path}/v1/traces{query}")
}

/// Lets only listed names and attributes through.
#[derive(Debug)]
struct Listed<E>(E);

impl<E: Export> Export for Listed<E> {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        batch.retain(|span| NAMES.contains(&&*span.name));
        batch.iter_mut().for_each(strip);
        self.0.export(batch).await
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

fn strip(span: &mut SpanData) {
    span.attributes.retain(|attribute| ATTRIBUTES.contains(&attribute.key.as_str()));
    span.events = SpanEvents::default();
    span.links = SpanLinks::default();
    if let Status::Error { description } = &mut span.status {
        *description = "".into();
    }
}

#[cfg(test)]
pub(crate) mod tests;
