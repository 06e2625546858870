//! What surfaces, results and gates come to, as Prometheus reads it (SURF-52). No label is a tool, an agent or anything
//! else of which there can be very many.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use portcullis_gauntlet::gate_meter::Reading;
use portcullis_upstream::records::expand;

use super::Control;
use crate::exposure::Mode;
use crate::shaping::Measured;
use crate::surface::Surface;
use crate::surface::audience::Read;
use crate::surface::footprint::Size;

/// What is told of one kind of list: the most that anybody was shown.
#[derive(Debug, Clone, Default, PartialEq)]
struct Largest {
    tools: Size,
    told: Size,
    repeated: BTreeMap<String, usize>,
    lints: BTreeMap<&'static str, usize>,
    ladder_step: u8,
}

impl Control {
    /// Everything measured. Of surfaces, those that agents were shown in the last hour, each kind at its largest; while
    /// nobody was here, the one that clients get which nothing more is known of.
    pub fn measures(&self) -> String {
        let mut text = String::new();
        of_surfaces(&mut text, &self.largest());
        of_results(&mut text, &self.shaping.measured());
        let gates = self.options.gates.iter().map(|gate| (gate.id().to_owned(), gate.meter.read()));
        let built_in = (expand::ID.to_owned(), self.settings.records_gate.read());
        of_gates(&mut text, &gates.chain([built_in]).collect::<Vec<_>>());
        text
    }

    fn largest(&self) -> BTreeMap<(String, Mode), Largest> {
        let options = &self.options.surface;
        let mut largest: BTreeMap<(String, Mode), Largest> = BTreeMap::new();
        let mut seen: BTreeSet<(String, Mode, Vec<String>)> = BTreeSet::new();
        let mut readers = self.readers.lately();
        if readers.is_empty() {
            let mode = self.surface_parts(None, None).mode;
            readers.push(Read {
                profile: options.profile.clone(),
                mode,
                principal: self.options.principal.clone(),
            });
        }
        for Read { profile, mode, principal } in readers {
            // Agents that may do the same are shown the same.
            if !seen.insert((profile.clone(), mode, self.access.grants_of(&principal))) {
                continue;
            }
            let surface =
                self.surface_parts(Some(mode), Some(&principal)).compile(options.profile(&profile), options);
            largest.entry((profile, mode)).or_default().take(&surface);
        }
        largest
    }
}

impl Largest {
    fn take(&mut self, surface: &Surface) {
        let most = |a: Size, b: Size| Size {
            bytes: a.bytes.max(b.bytes),
            cl100k: a.cl100k.max(b.cl100k),
            o200k: a.o200k.max(b.o200k),
        };
        self.tools = most(self.tools, surface.footprint.tools.size);
        self.told = most(self.told, Size::of(&surface.instructions));
        self.ladder_step = self.ladder_step.max(surface.ladder_step);
        for server in surface.footprint.servers.iter().filter(|server| !server.name.is_empty()) {
            let repeated = self.repeated.entry(server.name.clone()).or_default();
            *repeated = (*repeated).max(server.sentence_dup_bytes);
        }
        let mut rules: Vec<&'static str> = surface.findings.iter().map(|finding| finding.rule).collect();
        rules.sort_unstable();
        for rule in rules.chunk_by(|a, b| a == b) {
            let found = self.lints.entry(rule[0]).or_default();
            *found = (*found).max(rule.len());
        }
    }
}

fn of_surfaces(text: &mut String, surfaces: &BTreeMap<(String, Mode), Largest>) {
    let labelled: Vec<(String, &Largest)> = (surfaces.iter())
        .map(|((profile, mode), largest)| {
            (format!("profile=\"{}\",mode=\"{}\"", escaped(profile), mode.as_str()), largest)
        })
        .collect();
    text.push_str("# TYPE portcullis_surface_bytes gauge\n");
    for (labels, largest) in &labelled {
        for (part, size) in [("tools", largest.tools), ("instructions", largest.told)] {
            let _ = writeln!(text, "portcullis_surface_bytes{{{labels},part=\"{part}\"}} {}", size.bytes);
        }
    }
    text.push_str("# TYPE portcullis_surface_tokens gauge\n");
    for (labels, largest) in &labelled {
        for (encoding, tokens) in [("cl100k", largest.tools.cl100k), ("o200k", largest.tools.o200k)] {
            let _ = writeln!(text, "portcullis_surface_tokens{{{labels},encoding=\"{encoding}\"}} {tokens}");
        }
    }
    text.push_str("# TYPE portcullis_surface_dup_bytes gauge\n");
    for (labels, largest) in &labelled {
        for (server, bytes) in &largest.repeated {
            let server = escaped(server);
            let _ = writeln!(text, "portcullis_surface_dup_bytes{{{labels},server=\"{server}\"}} {bytes}");
        }
    }
    text.push_str("# TYPE portcullis_surface_lints gauge\n");
    for (labels, largest) in &labelled {
        for (rule, count) in &largest.lints {
            let _ = writeln!(text, "portcullis_surface_lints{{{labels},rule=\"{rule}\"}} {count}");
        }
    }
    text.push_str("# TYPE portcullis_surface_ladder_step gauge\n");
    for (labels, largest) in &labelled {
        let _ = writeln!(text, "portcullis_surface_ladder_step{{{labels}}} {}", largest.ladder_step);
    }
}

fn of_gates(text: &mut String, gates: &[(String, Reading)]) {
    text.push_str("# TYPE portcullis_gate_verdicts_total counter\n");
    for (id, reading) in gates {
        let id = escaped(id);
        for ((verdict, reason), count) in &reading.verdicts {
            let reason = escaped(reason);
            let _ = writeln!(
                text,
                "portcullis_gate_verdicts_total{{gate=\"{id}\",verdict=\"{verdict}\",reason=\"{reason}\"}} {count}"
            );
        }
    }
    text.push_str("# TYPE portcullis_gate_source_seconds histogram\n");
    for (id, reading) in gates.iter().filter(|(_, reading)| reading.evaluations() > 0) {
        let labels = format!("gate=\"{}\"", escaped(id));
        for (limit, count) in reading.buckets() {
            let limit = limit.map_or_else(|| "+Inf".to_owned(), |limit| limit.as_secs_f64().to_string());
            let _ =
                writeln!(text, "portcullis_gate_source_seconds_bucket{{{labels},le=\"{limit}\"}} {count}");
        }
        let _ =
            writeln!(text, "portcullis_gate_source_seconds_sum{{{labels}}} {}", reading.spent.as_secs_f64());
        let _ = writeln!(text, "portcullis_gate_source_seconds_count{{{labels}}} {}", reading.evaluations());
    }
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
