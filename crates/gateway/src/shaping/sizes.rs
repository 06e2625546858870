//! How large results are, by tool (SURF-75): what a client would cut is seen before anybody wonders about it.
//!
//! Sizes are not evidence: they are noted in memory, written to a file now and then, and losing a minute of them hurts
//! nobody.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use portcullis_context::bound::Sizes;
use portcullis_core::Timestamp;
use serde::{Deserialize, Serialize};

/// How many results of one tool are remembered.
const MOST: usize = 10_000;
/// The file begins anew when it is larger than this; the one before is kept.
const FILE_BYTES: u64 = 8 << 20;

/// One result.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Noted {
    at: u64,
    tool: String,
    content: usize,
    structured: usize,
}

#[derive(Debug, Default)]
struct Book {
    tools: BTreeMap<String, VecDeque<(u64, Sizes)>>,
    unwritten: Vec<Noted>,
    over: BTreeMap<(String, &'static str), u64>,
    /// Since the start, by server and part.
    sizes: BTreeMap<(String, &'static str), Histogram>,
}

/// Where the buckets of sizes end.
const BUCKETS: [usize; 5] = [1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20];

/// How many results had which size.
#[derive(Debug, Clone, Default)]
pub(crate) struct Histogram {
    counts: [u64; BUCKETS.len() + 1],
    pub(crate) sum: u64,
}

impl Histogram {
    fn add(&mut self, size: usize) {
        let at = BUCKETS.iter().position(|limit| size <= *limit).unwrap_or(BUCKETS.len());
        self.counts[at] += 1;
        self.sum += size as u64;
    }

    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How many were no larger than each limit; without a limit, all.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (Option<usize>, u64)> + '_ {
        let limits = BUCKETS.iter().map(|limit| Some(*limit)).chain([None]);
        let mut total = 0;
        limits.zip(self.counts).map(move |(limit, count)| {
            total += count;
            (limit, total)
        })
    }
}

/// What was measured since the start.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// By server and what was done.
    pub(crate) over_budget: Vec<(String, &'static str, u64)>,
    /// By server and part.
    pub(crate) sizes: Vec<(String, &'static str, Histogram)>,
}

/// What is known about the sizes of results.
#[derive(Debug)]
pub(crate) struct SizeBook {
    file: PathBuf,
    book: Mutex<Book>,
}

/// Sizes of one part of a tool's results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Spread {
    pub p50: usize,
    pub p95: usize,
    pub max: usize,
}

/// What the results of one tool were like.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OfTool {
    /// `<server>/<tool>`.
    pub tool: String,
    /// How many there were.
    pub calls: usize,
    /// Their texts.
    pub content: Spread,
    /// Their structure.
    pub structured: Spread,
    /// The share of them that a client with that limit would cut; none if it has no limit.
    pub cut_share: Option<f64>,
}

impl SizeBook {
    /// What is written in a folder.
    pub(crate) fn open(folder: &Path) -> Self {
        let book = Self { file: folder.join("results.jsonl"), book: Mutex::default() };
        for file in [book.file.with_extension("old"), book.file.clone()] {
            for line in fs::read_to_string(file).unwrap_or_default().lines() {
                let Ok(noted) = serde_json::from_str::<Noted>(line) else { continue };
                let sizes = Sizes { content: noted.content, structured: noted.structured };
                remember(&mut book.lock(), &noted.tool, noted.at, sizes);
            }
        }
        book
    }

    /// One more result.
    pub(crate) fn note(&self, tool: &str, sizes: Sizes, now: Timestamp) {
        let at = now.as_millis();
        let mut book = self.lock();
        remember(&mut book, tool, at, sizes);
        for (part, size) in [("content", sizes.content), ("structured", sizes.structured)] {
            book.sizes.entry((server_of(tool), part)).or_default().add(size);
        }
        // What nobody writes down must not grow for ever.
        if book.unwritten.len() < MOST {
            book.unwritten.push(Noted {
                at,
                tool: tool.into(),
                content: sizes.content,
                structured: sizes.structured,
            });
        }
    }

    /// A result was larger than its budget, and what was done about it.
    pub(crate) fn over(&self, tool: &str, action: &'static str) {
        *self.lock().over.entry((server_of(tool), action)).or_default() += 1;
    }

    /// What was measured since the start.
    pub(crate) fn measured(&self) -> Measured {
        let book = self.lock();
        let over = book.over.iter().map(|((server, action), count)| (server.clone(), *action, *count));
        let sizes = book.sizes.iter().map(|((server, part), sizes)| (server.clone(), *part, sizes.clone()));
        Measured { over_budget: over.collect(), sizes: sizes.collect() }
    }

    /// What results were like since a moment, for a client that cuts at so many tokens.
    pub(crate) fn report(&self, since: u64, limit: Option<usize>) -> Vec<OfTool> {
        let book = self.lock();
        let of = |(tool, results): (&String, &VecDeque<(u64, Sizes)>)| {
            let recent: Vec<Sizes> =
                results.iter().filter(|(at, _)| *at >= since).map(|(_, sizes)| *sizes).collect();
            let over = |limit: usize| recent.iter().filter(|sizes| sizes.tokens() > limit).count();
            (!recent.is_empty()).then(|| OfTool {
                tool: tool.clone(),
                calls: recent.len(),
                content: spread(recent.iter().map(|sizes| sizes.content).collect()),
                structured: spread(recent.iter().map(|sizes| sizes.structured).collect()),
                cut_share: limit.map(|limit| over(limit) as f64 / recent.len() as f64),
            })
        };
        book.tools.iter().filter_map(of).collect()
    }

    /// Writes down what is new.
    pub(crate) fn write(&self) {
        let unwritten = std::mem::take(&mut self.lock().unwritten);
        if unwritten.is_empty() {
            return;
        }
        if fs::metadata(&self.file).is_ok_and(|file| file.len() > FILE_BYTES) {
            let _ = fs::rename(&self.file, self.file.with_extension("old"));
        }
        let lines: String = unwritten
            .iter()
            .filter_map(|noted| serde_json::to_string(noted).ok())
            .map(|line| line + "\n")
            .collect();
        let opened = OpenOptions::new().create(true).append(true).open(&self.file);
        if let Err(error) = opened.and_then(|mut file| file.write_all(lines.as_bytes())) {
            tracing::debug!(%error, "sizes of results could not be written down");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn server_of(tool: &str) -> String {
    tool.split('/').next().unwrap_or_default().to_owned()
}

fn remember(book: &mut Book, tool: &str, at: u64, sizes: Sizes) {
    let results = book.tools.entry(tool.to_owned()).or_default();
    if results.len() >= MOST {
        results.pop_front();
    }
    results.push_back((at, sizes));
}

fn spread(mut sizes: Vec<usize>) -> Spread {
    sizes.sort_unstable();
    let at = |percent: usize| sizes[(sizes.len() * percent).div_ceil(100).saturating_sub(1)];
    Spread { p50: at(50), p95: at(95), max: sizes[sizes.len() - 1] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_remembered_over_a_restart_and_told_by_percentile() {
        // SURF-75
        let folder = tempfile::tempdir().unwrap();
        let book = SizeBook::open(folder.path());
        for n in 1..=100 {
            book.note("s/t", Sizes { content: n, structured: 10 * n }, Timestamp::from_millis(n as u64));
        }
        book.over("s/t", "pass");
        book.write();
        let again = SizeBook::open(folder.path());
        let report = again.report(0, Some(350));
        assert_eq!((report[0].tool.as_str(), report[0].calls), ("s/t", 100));
        assert_eq!(report[0].content, Spread { p50: 50, p95: 95, max: 100 });
        assert_eq!(report[0].structured.p95, 950);
        // 11 n / 3 tokens are more than 350 from n = 96 on.
        assert_eq!(report[0].cut_share, Some(0.05));
        assert_eq!(again.report(51, None)[0].calls, 50);
        // SURF-52
        let measured = book.measured();
        assert_eq!(measured.over_budget, [("s".to_owned(), "pass", 1)]);
        let (server, part, sizes) = &measured.sizes[1];
        assert_eq!((server.as_str(), *part, sizes.count(), sizes.sum), ("s", "structured", 100, 50_500));
        assert_eq!(sizes.buckets().next(), Some((Some(1_024), 100)));
    }
}
