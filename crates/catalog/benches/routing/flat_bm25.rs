//! What most people would write: Okapi BM25 over all text of an item at once.

use std::collections::HashMap;

const K1: f64 = 1.5;
const B: f64 = 0.75;

/// The baseline.
pub(crate) struct FlatBm25 {
    documents: Vec<HashMap<String, f64>>,
    lengths: Vec<f64>,
    average: f64,
    idf: HashMap<String, f64>,
}

impl FlatBm25 {
    pub(crate) fn new(texts: impl Iterator<Item = String>) -> Self {
        let (mut documents, mut lengths) = (Vec::new(), Vec::new());
        let mut frequencies: HashMap<String, f64> = HashMap::new();
        for text in texts {
            let mut counts: HashMap<String, f64> = HashMap::new();
            let words = words(&text);
            lengths.push(words.len() as f64);
            words.into_iter().for_each(|word| *counts.entry(word).or_default() += 1.0);
            counts.keys().for_each(|word| *frequencies.entry(word.clone()).or_default() += 1.0);
            documents.push(counts);
        }
        let n = documents.len() as f64;
        let mut idf: HashMap<String, f64> =
            frequencies.iter().map(|(word, df)| (word.clone(), ((n - df + 0.5) / (df + 0.5)).ln())).collect();
        // Words in more than half of all documents would count against them; they count a little for them instead.
        let mean = idf.values().sum::<f64>() / idf.len().max(1) as f64;
        idf.values_mut().filter(|value| **value < 0.0).for_each(|value| *value = 0.25 * mean);
        let average = lengths.iter().sum::<f64>() / n.max(1.0);
        Self { documents, lengths, average, idf }
    }

    pub(crate) fn top(&self, query: &str, count: usize) -> Vec<usize> {
        let words = words(query);
        let mut scores: Vec<(f64, usize)> = self
            .documents
            .iter()
            .enumerate()
            .map(|(index, document)| {
                let norm = K1 * (1.0 - B + B * self.lengths[index] / self.average);
                let score = words.iter().filter_map(|word| {
                    let tf = document.get(word)?;
                    Some(self.idf[word] * tf * (K1 + 1.0) / (tf + norm))
                });
                (score.sum(), index)
            })
            .collect();
        scores.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        scores.into_iter().take(count).filter(|(score, _)| *score > 0.0).map(|(_, index)| index).collect()
    }
}

fn words(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}
