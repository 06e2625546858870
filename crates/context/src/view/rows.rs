//! Views of tables: CSV with a header, or an array in a JSON document.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::json::{follow, members};
use super::query::{Aggregate, Cell, Function, Query};
use super::selector::Span;
use super::{More, View, ViewError, fitting, whole_text};
use crate::artifacts::Opened;

/// The most groups one answer counts.
const MAX_GROUPS: usize = 1_000;

pub(super) fn rows(
    artifact: &Opened<'_>,
    span: Span,
    columns: &[String],
    pointer: &str,
    query: &Query,
    max_bytes: usize,
) -> Result<View, ViewError> {
    let text = whole_text(artifact)?;
    let table = match artifact.record().media_type.as_str() {
        "text/tab-separated-values" => Table::separated(&text, '\t')?,
        media_type if media_type != "text/csv" && looks_like_json(&text) => Table::json(&text, pointer)?,
        _ => Table::separated(&text, ',')?,
    };
    table.check(columns, query)?;
    let mut order: Vec<usize> = (0..table.len())
        .filter(|row| {
            query.conditions.iter().all(|condition| condition.holds(&table.cell(*row, &condition.field)))
        })
        .collect();
    if !query.aggregates.is_empty() {
        return Ok(View::whole(fitting(&table.counted(&order, query)?, max_bytes).to_owned()));
    }
    if !query.order.is_empty() {
        let mut keyed: Vec<(Vec<Cell>, usize)> = (order.into_iter())
            .map(|row| (query.order.iter().map(|by| table.cell(row, &by.field)).collect(), row))
            .collect();
        keyed.sort_by(|(a, _), (b, _)| {
            let each = a.iter().zip(b).zip(&query.order).map(|((a, b), by)| {
                let order = a.order(b);
                if by.descending { order.reverse() } else { order }
            });
            each.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
        });
        order = keyed.into_iter().map(|(_, row)| row).collect();
    }
    let total = order.len() as u64;
    let (start, end) = span.within(total);
    let header = table.header(columns);
    let mut out = fitting(&header, max_bytes).to_owned();
    let mut next = start;
    for row in &order[start as usize..end as usize] {
        let line = table.line(*row, columns);
        if out.len() + line.len() + 1 > max_bytes {
            break;
        }
        out.push_str(&line);
        out.push('\n');
        next += 1;
    }
    let of = format!("{total} rows");
    if next == start && start < end {
        let line = table.line(order[start as usize], columns);
        out.push_str(fitting(&line, max_bytes.saturating_sub(out.len())));
        next += 1;
    }
    let more = (next < total).then(|| {
        let width = (end - start).max(1);
        let mut selector = json!({"type": "rows", "start": next, "end": (next + width).min(total)});
        if !columns.is_empty() {
            selector["columns"] = json!(columns);
        }
        if !pointer.is_empty() {
            selector["pointer"] = pointer.into();
        }
        More { selector, of }
    });
    Ok(View::of(out, more))
}

fn looks_like_json(text: &str) -> bool {
    text.trim_start().starts_with(['[', '{'])
}

/// Rows, however they were written.
enum Table<'a> {
    Separated { by: char, names: Vec<String>, rows: Vec<(&'a str, Vec<Cow<'a, str>>)> },
    Json(Vec<&'a RawValue>),
}

impl<'a> Table<'a> {
    fn separated(text: &'a str, by: char) -> Result<Self, ViewError> {
        let mut rows = records(text, by);
        if rows.is_empty() {
            return Err(ViewError::content("the content has no rows", &["head", "lines"]));
        }
        let names = rows.remove(0).1.into_iter().map(Cow::into_owned).collect();
        Ok(Table::Separated { by, names, rows })
    }

    fn json(text: &'a str, pointer: &str) -> Result<Self, ViewError> {
        let root = serde_json::from_str::<&RawValue>(text)
            .map_err(|_| ViewError::content("the content is not JSON", &["head", "lines", "grep"]))?;
        let target = follow(root, pointer)?;
        serde_json::from_str(target.get()).map(Table::Json).map_err(|_| {
            // The place of the array is what the asker needs to know.
            let arrays: Vec<String> = (members(target.get()).iter())
                .filter(|(_, value)| value.get().starts_with('['))
                .map(|(name, _)| format!("{pointer}/{name}"))
                .take(5)
                .collect();
            let hint = if arrays.is_empty() {
                String::new()
            } else {
                format!("; arrays are at {}", arrays.join(", "))
            };
            ViewError::field("pointer", format!("there is no array{hint}"))
        })
    }

    fn len(&self) -> usize {
        match self {
            Table::Separated { rows, .. } => rows.len(),
            Table::Json(rows) => rows.len(),
        }
    }

    /// A column that is not there is a mistake worth telling, where the columns are known.
    fn check(&self, columns: &[String], query: &Query) -> Result<(), ViewError> {
        let Table::Separated { names, .. } = self else { return Ok(()) };
        let known = |name: &String| names.contains(name);
        let there = || {
            let names: Vec<&str> = names.iter().map(String::as_str).take(30).collect();
            format!("no such column; there are {}", names.join(", "))
        };
        if !columns.iter().all(known) {
            return Err(ViewError::field("columns", there()));
        }
        let counted = query.aggregates.iter().filter_map(|aggregate| match aggregate {
            Aggregate::Count => None,
            Aggregate::Of(_, field) => Some(field),
        });
        let asked = query.conditions.iter().map(|condition| &condition.field);
        let mut asked =
            asked.chain(query.order.iter().map(|order| &order.field)).chain(counted).chain(&query.groups);
        if asked.all(known) { Ok(()) } else { Err(ViewError::field("pattern", there())) }
    }

    fn cell(&self, row: usize, field: &str) -> Cell {
        match self {
            Table::Separated { names, rows, .. } => {
                let column = names.iter().position(|name| name == field);
                column.and_then(|at| rows[row].1.get(at)).map_or(Cell::Null, |text| Cell::of_text(text))
            }
            Table::Json(rows) => json_cell(rows[row], field).map_or(Cell::Null, cell_of),
        }
    }

    fn header(&self, columns: &[String]) -> String {
        match self {
            Table::Separated { by, names, .. } => {
                let names = if columns.is_empty() { names } else { columns };
                separated(names.iter().map(String::as_str), *by) + "\n"
            }
            Table::Json(_) => String::new(),
        }
    }

    /// A row as it was written, or the columns asked for.
    fn line(&self, row: usize, columns: &[String]) -> String {
        match self {
            Table::Separated { rows, .. } if columns.is_empty() => rows[row].0.to_owned(),
            Table::Separated { by, names, rows } => {
                let cells = columns.iter().map(|column| {
                    let at = names.iter().position(|name| name == column);
                    at.and_then(|at| rows[row].1.get(at)).map_or("", Cow::as_ref)
                });
                separated(cells, *by)
            }
            Table::Json(rows) if columns.is_empty() => rows[row].get().to_owned(),
            Table::Json(rows) => {
                let fields = columns.iter().filter_map(|column| {
                    let value = json_cell(rows[row], column)?;
                    Some(format!("{}:{}", Value::from(column.as_str()), value.get()))
                });
                format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
            }
        }
    }

    /// The rows counted, one line of JSON for each group, in the order in which the groups first occur.
    fn counted(&self, rows: &[usize], query: &Query) -> Result<String, ViewError> {
        let mut places: HashMap<Vec<String>, usize> = HashMap::new();
        let mut groups: Vec<(Vec<Cell>, Vec<Tally>)> = Vec::new();
        if query.groups.is_empty() {
            groups.push((Vec::new(), vec![Tally::default(); query.aggregates.len()]));
            places.insert(Vec::new(), 0);
        }
        for row in rows {
            let cells: Vec<Cell> = query.groups.iter().map(|field| self.cell(*row, field)).collect();
            let key = cells.iter().map(|cell| format!("{cell:?}")).collect();
            let place = *places.entry(key).or_insert_with(|| {
                groups.push((cells, vec![Tally::default(); query.aggregates.len()]));
                groups.len() - 1
            });
            if groups.len() > MAX_GROUPS {
                return Err(ViewError::field("pattern", "more than 1000 groups"));
            }
            for (tally, aggregate) in groups[place].1.iter_mut().zip(&query.aggregates) {
                tally.add(match aggregate {
                    Aggregate::Count => None,
                    Aggregate::Of(_, field) => self.cell(*row, field).number(),
                });
            }
        }
        let mut out = String::new();
        for (cells, tallies) in groups {
            let groups = query.groups.iter().cloned().zip(cells.into_iter().map(value_of));
            let counted =
                query.aggregates.iter().zip(tallies).map(|(by, tally)| (by.name(), tally.value(by)));
            let fields = groups.chain(counted).map(|(name, value)| format!("{}:{value}", Value::from(name)));
            out.push_str(&format!("{{{}}}\n", fields.collect::<Vec<_>>().join(",")));
        }
        Ok(out)
    }
}

/// What has been counted of one group.
#[derive(Clone)]
struct Tally {
    rows: u64,
    numbers: u64,
    sum: f64,
    least: f64,
    most: f64,
}

impl Default for Tally {
    fn default() -> Self {
        Self { rows: 0, numbers: 0, sum: 0.0, least: f64::INFINITY, most: f64::NEG_INFINITY }
    }
}

impl Tally {
    fn add(&mut self, number: Option<f64>) {
        self.rows += 1;
        if let Some(number) = number {
            self.numbers += 1;
            self.sum += number;
            self.least = self.least.min(number);
            self.most = self.most.max(number);
        }
    }

    fn value(&self, aggregate: &Aggregate) -> Value {
        let Aggregate::Of(function, _) = aggregate else { return self.rows.into() };
        if self.numbers == 0 {
            return Value::Null;
        }
        number_value(match function {
            Function::Sum => self.sum,
            Function::Avg => self.sum / self.numbers as f64,
            Function::Min => self.least,
            Function::Max => self.most,
        })
    }
}

/// Whole numbers without a point.
fn number_value(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 9e15 { (number as i64).into() } else { number.into() }
}

fn value_of(cell: Cell) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::Bool(value) => value.into(),
        Cell::Number(number) => number_value(number),
        Cell::Text(text) => text.into(),
    }
}

/// A member by its name, or by a path with dots.
fn json_cell<'a>(row: &'a RawValue, field: &str) -> Option<&'a RawValue> {
    let find = |row: &'a RawValue, name: &str| {
        members(row.get()).into_iter().find(|(member, _)| member == name).map(|(_, value)| value)
    };
    find(row, field).or_else(|| {
        let mut here = row;
        for name in field.contains('.').then(|| field.split('.'))? {
            here = find(here, name)?;
        }
        Some(here)
    })
}

fn cell_of(raw: &RawValue) -> Cell {
    match raw.get() {
        "null" => Cell::Null,
        "true" => Cell::Bool(true),
        "false" => Cell::Bool(false),
        text => match crate::part::text_of(raw) {
            Some(text) => Cell::Text(text.into_owned()),
            None => Cell::of_text(text),
        },
    }
}

/// The records of a CSV text (RFC 4180), each with the text it was written in. A quote that is never closed ends with
/// the text.
fn records(text: &str, by: char) -> Vec<(&str, Vec<Cow<'_, str>>)> {
    let mut records = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (length, fields) = record(rest, by);
        let line = rest[..length].trim_end_matches(['\n', '\r']);
        if !line.is_empty() {
            records.push((line, fields));
        }
        rest = &rest[length..];
    }
    records
}

fn record(text: &str, by: char) -> (usize, Vec<Cow<'_, str>>) {
    let mut fields = Vec::new();
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let (field, length) = if let Some(quoted) = rest.strip_prefix('"') {
            let (field, length) = quoted_field(quoted);
            // What stands between a closing quote and the next border belongs to nothing.
            let after = &quoted[length..];
            let junk = after.find([by, '\n']).unwrap_or(after.len());
            (field, 1 + length + junk)
        } else {
            let end = rest.find([by, '\n']).unwrap_or(rest.len());
            (Cow::Borrowed(rest[..end].trim_end_matches('\r')), end)
        };
        fields.push(field);
        at += length;
        match text[at..].chars().next() {
            Some(border) if border == by => at += border.len_utf8(),
            Some(_) => return (at + 1, fields),
            None => return (at, fields),
        }
    }
}

/// What is inside quotes, and how long it is with the closing one.
fn quoted_field(text: &str) -> (Cow<'_, str>, usize) {
    let mut from = 0;
    while let Some(quote) = text[from..].find('"').map(|at| from + at) {
        if text[quote + 1..].starts_with('"') {
            from = quote + 2;
            continue;
        }
        let field = &text[..quote];
        let field = if field.contains("\"\"") {
            Cow::Owned(field.replace("\"\"", "\""))
        } else {
            Cow::Borrowed(field)
        };
        return (field, quote + 1);
    }
    (Cow::Borrowed(text), text.len())
}

fn separated<'c>(cells: impl Iterator<Item = &'c str>, by: char) -> String {
    let cells = cells.map(|cell| {
        if cell.contains([by, '"', '\n', '\r']) {
            Cow::Owned(format!("\"{}\"", cell.replace('"', "\"\"")))
        } else {
            Cow::Borrowed(cell)
        }
    });
    cells.collect::<Vec<_>>().join(&by.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_may_quote_what_separates() {
        let text = "a,b\r\n\"x, \"\"y\"\"\",\"two\nlines\"\r\n\n1,\n\"open";
        let rows = records(text, ',');
        let fields: Vec<Vec<&str>> =
            rows.iter().map(|(_, fields)| fields.iter().map(Cow::as_ref).collect()).collect();
        assert_eq!(fields, [vec!["a", "b"], vec!["x, \"y\"", "two\nlines"], vec!["1", ""], vec!["open"]]);
        assert_eq!(separated(["x, \"y\"", "z"].into_iter(), ','), "\"x, \"\"y\"\"\",z");
    }
}
