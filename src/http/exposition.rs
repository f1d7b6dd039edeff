//! Prometheus's text format, version 0.0.4.

use crate::host::meters::Histogram;
use std::fmt::Write;

/// A page of metrics.
#[derive(Default)]
pub struct Page(String);

impl Page {
    /// A value that goes up and down.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, help, "gauge");
        self.sample(name, &[], value);
    }

    /// A value that only grows while the process runs.
    pub fn counter(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, help, "counter");
        self.sample(name, &[], value);
    }

    /// Begins a family of samples that differ in their labels.
    pub fn family(&mut self, name: &str, help: &str, kind: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// One sample.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{}{label}=\"{escaped}\"", if index == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// What every node tells, also before it belongs to a cluster: itself, as labels.
    pub fn info(&mut self, version: &str, node: &str, client: &str) {
        self.family("warlock_info", "This node, as labels.", "gauge");
        self.sample("warlock_info", &[("node", node), ("version", version), ("client", client)], 1.0);
    }

    /// What every node tells: whether it serves clients.
    pub fn ready(&mut self, is_ready: bool) {
        self.gauge("warlock_ready", "1 when this node serves clients.", f64::from(u8::from(is_ready)));
    }

    /// How values were distributed.
    pub fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.family(name, help, "histogram");
        let mut below = 0;
        let bucket = format!("{name}_bucket");
        for (bound, count) in histogram.bounds.iter().zip(&histogram.counts) {
            below += count;
            self.sample(&bucket, &[("le", &bound.to_string())], below as f64);
        }
        let all: u64 = histogram.counts.iter().sum();
        self.sample(&bucket, &[("le", "+Inf")], all as f64);
        self.sample(&format!("{name}_sum"), &[], histogram.sum);
        self.sample(&format!("{name}_count"), &[], all as f64);
    }

    /// The text.
    #[must_use]
    pub fn into_text(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_buckets_add_up() {
        let mut page = Page::default();
        page.family("a", "An a.", "gauge");
        page.sample("a", &[("x", "q\"\\"), ("y", "z")], 1.5);
        let histogram = Histogram { bounds: &[1.0, 2.5], counts: vec![2, 1, 4], sum: 30.0 };
        page.histogram("h", "An h.", &histogram);
        let expected = "# HELP a An a.\n# TYPE a gauge\na{x=\"q\\\"\\\\\",y=\"z\"} 1.5\n# HELP h An h.\n# TYPE h histogram\n\
                        h_bucket{le=\"1\"} 2\nh_bucket{le=\"2.5\"} 3\nh_bucket{le=\"+Inf\"} 7\nh_sum 30\nh_count 7\n";
        assert_eq!(page.into_text(), expected);
    }
}
