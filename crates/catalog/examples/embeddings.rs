//! Makes a table of embeddings of the two files that such models are published as: vectors (`*.safetensors`) and how words
//! are taken apart (`tokenizer.json`, byte-pair encoding with `▁` before words). `cargo xtask embeddings` runs it.
#![allow(clippy::print_stdout, reason = "a program talks")]

use std::collections::HashMap;
use std::error::Error;

use portcullis_catalog::StaticTable;
use serde_json::Value;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [vectors, tokenizer, out] = &arguments[..] else {
        return Err("usage: embeddings VECTORS.safetensors TOKENIZER.json OUT".into());
    };
    let vectors = Vectors::read(&std::fs::read(vectors)?)?;
    let tokenizer: Value = serde_json::from_slice(&std::fs::read(tokenizer)?)?;
    let mut pieces = pieces(&tokenizer["model"])?;
    pieces.retain(|(_, row)| *row < vectors.rows.len());
    let file =
        StaticTable::encode(pieces.iter().map(|(piece, row)| (piece.as_str(), &vectors.rows[*row][..])))?;
    std::fs::write(out, &file)?;
    println!("{}", StaticTable::parse(&file, None)?.digest());
    Ok(())
}

/// One vector per token.
struct Vectors {
    rows: Vec<Vec<f32>>,
}

impl Vectors {
    /// A length, a header in JSON, numbers of 16 bits.
    fn read(bytes: &[u8]) -> Result<Self, Box<dyn Error>> {
        let (length, rest) = bytes.split_first_chunk::<8>().ok_or("the file is too short")?;
        let length = usize::try_from(u64::from_le_bytes(*length))?;
        let header: Value = serde_json::from_slice(rest.get(..length).ok_or("the header is cut off")?)?;
        let tensors = header.as_object().ok_or("the header is no object")?;
        let mut tensors = tensors.iter().filter(|(name, _)| *name != "__metadata__");
        let (Some((name, tensor)), None) = (tensors.next(), tensors.next()) else {
            return Err("one tensor was expected".into());
        };
        let size = |pointer: &str| tensor.pointer(pointer).and_then(Value::as_u64).map(|size| size as usize);
        let (Some(width), Some(start), Some(end), Some("F16")) =
            (size("/shape/1"), size("/data_offsets/0"), size("/data_offsets/1"), tensor["dtype"].as_str())
        else {
            return Err(format!("{name} is no table of 16-bit numbers").into());
        };
        let numbers = rest.get(length + start..length + end).ok_or("the numbers are cut off")?;
        let rows = numbers.chunks_exact(2 * width);
        let rows = rows
            .map(|row| row.chunks_exact(2).map(|two| half(u16::from_le_bytes([two[0], two[1]]))).collect());
        Ok(Self { rows: rows.collect() })
    }
}

/// IEEE 754 binary16.
fn half(bits: u16) -> f32 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f32::from(bits & 0x3ff));
    match exponent {
        0 => sign * fraction * 2f32.powi(-24),
        exponent => sign * (1.0 + fraction / 1024.0) * 2f32.powi(exponent - 15),
    }
}

/// The pieces and their rows, single characters first, then in the order in which pieces are joined.
fn pieces(model: &Value) -> Result<Vec<(String, usize)>, Box<dyn Error>> {
    let vocabulary = model["vocab"].as_object().ok_or("the tokenizer has no vocabulary")?;
    let mut turns: HashMap<String, usize> = HashMap::new();
    for (turn, merge) in model["merges"].as_array().ok_or("the tokenizer has no merges")?.iter().enumerate() {
        let joined = match merge {
            Value::String(two) => two.replacen(' ', "", 1),
            two => two.as_array().into_iter().flatten().filter_map(Value::as_str).collect(),
        };
        turns.entry(joined).or_insert(turn + 1);
    }
    let named = vocabulary.iter().filter_map(|(piece, row)| Some((piece.clone(), row.as_u64()? as usize)));
    // Bytes and marks (`<0x0A>`, `<unk>`) are no part of a word.
    let mut pieces: Vec<(String, usize)> =
        named.filter(|(piece, _)| turns.contains_key(piece) || piece.chars().count() == 1).collect();
    pieces.sort_by_key(|(piece, row)| (turns.get(piece).copied().unwrap_or_default(), *row));
    Ok(pieces)
}
