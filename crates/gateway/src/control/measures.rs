//! What surfaces, results and gates come to, as Prometheus reads it (SURF-52). No label is a tool, an agent or anything
//! else of which there can be very many.

use std::fmt::Write as _;

use super::Control;
use crate::shaping::Measured;
use crate::surface::Surface;
use crate::surface::footprint::Size;

impl Control {
    /// Everything measured, of the surface that clients get which nothing more is known of.
    pub fn measures(&self) -> String {
        let mut text = String::new();
        if let Ok((surface, _)) = self.surface(None, None) {
            of_surface(&mut text, &surface);
        }
        of_results(&mut text, &self.shaping.measured());
        text.push_str("# TYPE portcullis_gate_verdicts_total counter\n");
        for gate in self.options.gates.iter() {
            for (verdict, count) in gate.verdicts() {
                let _ = writeln!(
                    text,
                    "portcullis_gate_verdicts_total{{gate=\"{}\",verdict=\"{}\"}} {count}",
                    escaped(gate.id()),
                    verdict.as_str()
                );
            }
        }
        text
    }
}

fn of_surface(text: &mut String, surface: &Surface) {
    let labels = format!("profile=\"{}\",mode=\"{}\"", escaped(&surface.profile), surface.mode.as_str());
    let tools = surface.footprint.tools.size;
    let told = Size::of(&surface.instructions);
    text.push_str("# TYPE portcullis_surface_bytes gauge\n");
    for (part, size) in [("tools", tools), ("instructions", told)] {
        let _ = writeln!(text, "portcullis_surface_bytes{{{labels},part=\"{part}\"}} {}", size.bytes);
    }
    text.push_str("# TYPE portcullis_surface_tokens gauge\n");
    for (encoding, tokens) in [("cl100k", tools.cl100k), ("o200k", tools.o200k)] {
        let _ = writeln!(text, "portcullis_surface_tokens{{{labels},encoding=\"{encoding}\"}} {tokens}");
    }
    text.push_str("# TYPE portcullis_surface_dup_bytes gauge\n");
    for server in surface.footprint.servers.iter().filter(|server| !server.name.is_empty()) {
        let name = escaped(&server.name);
        let _ =
            writeln!(text, "portcullis_surface_dup_bytes{{server=\"{name}\"}} {}", server.sentence_dup_bytes);
    }
    text.push_str("# TYPE portcullis_surface_lints gauge\n");
    let mut rules: Vec<&str> = surface.findings.iter().map(|finding| finding.rule).collect();
    rules.sort_unstable();
    for rule in rules.chunk_by(|a, b| a == b) {
        let _ = writeln!(text, "portcullis_surface_lints{{rule=\"{}\"}} {}", rule[0], rule.len());
    }
    text.push_str("# TYPE portcullis_surface_ladder_step gauge\n");
    let _ = writeln!(text, "portcullis_surface_ladder_step{{{labels}}} {}", surface.ladder_step);
}

fn of_results(text: &mut String, measured: &Measured) {
    text.push_str("# TYPE portcullis_result_over_budget_total counter\n");
    for (server, action, count) in &measured.over_budget {
        let server = escaped(server);
        let _ = writeln!(
            text,
            "portcullis_result_over_budget_total{{server=\"{server}\",action=\"{action}\"}} {count}"
        );
    }
    text.push_str("# TYPE portcullis_result_bytes histogram\n");
    for (server, part, sizes) in &measured.sizes {
        let labels = format!("server=\"{}\",part=\"{part}\"", escaped(server));
        for (limit, count) in sizes.buckets() {
            let limit = limit.map_or_else(|| "+Inf".to_owned(), |limit| limit.to_string());
            let _ = writeln!(text, "portcullis_result_bytes_bucket{{{labels},le=\"{limit}\"}} {count}");
        }
        let _ = writeln!(text, "portcullis_result_bytes_sum{{{labels}}} {}", sizes.sum);
        let _ = writeln!(text, "portcullis_result_bytes_count{{{labels}}} {}", sizes.count());
    }
}

/// A label's value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
