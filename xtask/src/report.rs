//! What the benchmarks write: one section each of `docs/benchmarks.md`, between two comments, so that running one
//! leaves the others as they are.

use crate::spine::Sample;

/// One line of the spine's table.
pub(crate) struct Row {
    pub(crate) transport: &'static str,
    pub(crate) callers: u32,
    pub(crate) way: &'static str,
    pub(crate) sample: Sample,
}

/// The spine's section. Each group of rows starts with the direct calls, to which the others are compared.
pub(crate) fn spine(rows: &[Row], calls: u32) -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut text = format!(
        "## The spine: one call, three ways\n\n\
         {calls} calls of a pure echo tool per run, the median of alternating rounds, all processes on one machine\n\
         with {cores} cores. Ratios are to the direct calls of the same group; \"CPU\" is that of the process in the\n\
         middle alone, without the upstream, and its ratio is to the bare forwarder. Absolute numbers are the machine's.\n\n\
         | upstream | callers | way | calls/s | × direct | p50 µs | × direct | p99 µs | CPU µs/call | × forwarder | RSS MiB |\n\
         |---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|\n"
    );
    for row in rows {
        let same = |way: &str| {
            rows.iter()
                .find(|other| {
                    (other.transport, other.callers, other.way) == (row.transport, row.callers, way)
                })
                .map(|other| other.sample)
        };
        let (direct, forwarder) = (same("direct"), same("bare forwarder"));
        let Sample { calls_per_s, p50_us, p99_us, middle_us, rss_kib } = row.sample;
        let cells = [
            row.transport.to_owned(),
            row.callers.to_string(),
            row.way.to_owned(),
            format!("{calls_per_s:.0}"),
            ratio(Some(calls_per_s), direct.map(|sample| sample.calls_per_s)),
            format!("{p50_us:.0}"),
            ratio(Some(p50_us), direct.map(|sample| sample.p50_us)),
            format!("{p99_us:.0}"),
            middle_us.map_or("-".to_owned(), |us| format!("{us:.1}")),
            ratio(middle_us, forwarder.and_then(|sample| sample.middle_us)),
            rss_kib.map_or("-".to_owned(), |kib| format!("{:.1}", kib as f64 / 1024.0)),
        ];
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    text
}

fn ratio(value: Option<f64>, base: Option<f64>) -> String {
    match (value, base) {
        (Some(value), Some(base)) if base > 0.0 => format!("{:.2}", value / base),
        _ => "-".to_owned(),
    }
}

/// `old` with the section of this name replaced, or added at the end.
pub(crate) fn replace_section(old: &str, name: &str, section: &str) -> String {
    let (begin, end) = (format!("<!-- begin: {name} -->"), format!("<!-- end: {name} -->"));
    let fresh = format!("{begin}\n{}\n{end}", section.trim_end());
    if let Some((before, rest)) = old.split_once(&begin)
        && let Some((_, after)) = rest.split_once(&end)
    {
        return format!("{before}{fresh}{after}");
    }
    let head = if old.trim().is_empty() {
        "# Benchmarks\n\nWritten by `cargo xtask bench`."
    } else {
        old.trim_end()
    };
    format!("{head}\n\n{fresh}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_replaced_in_place_and_the_others_stay() {
        let first = replace_section("", "spine", "one");
        assert!(first.starts_with("# Benchmarks") && first.contains("\none\n"));
        let both = replace_section(&first, "audit", "two");
        let again = replace_section(&both, "spine", "three\n");
        assert!(again.contains("three") && again.contains("two") && !again.contains("one"));
        assert_eq!(replace_section(&again, "spine", "three"), again);
    }

    #[test]
    fn ratios_are_to_the_direct_calls_and_the_forwarder_of_the_same_group() {
        let sample = |calls_per_s, middle_us| Sample {
            calls_per_s,
            p50_us: 1e6 / calls_per_s,
            p99_us: 9.0,
            middle_us,
            rss_kib: Some(2048),
        };
        let row = |way, sample| Row { transport: "http", callers: 8, way, sample };
        let rows = [
            row("direct", sample(1000.0, None)),
            row("bare forwarder", sample(800.0, Some(10.0))),
            row("Portcullis", sample(500.0, Some(25.0))),
        ];
        let text = spine(&rows, 10);
        let last = text.lines().last().unwrap();
        assert_eq!(last, "| http | 8 | Portcullis | 500 | 0.50 | 2000 | 2.00 | 9 | 25.0 | 2.50 | 2.0 |");
    }
}
