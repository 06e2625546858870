//! A question to a table, in the `pattern` of a `rows` selector.
//!
//! ```text
//! where status = "open" and amount >= 10 | sort -amount | sum(amount), count by customer
//! ```
//!
//! Clauses stand in this order, each at most once, separated by `|`. `where` compares with `= != < <= > >=` and `~`
//! (contains, whatever the case). A field is a column's name, for JSON also a path with dots, in quotes if it has other
//! characters. There is no expression that could take long: one pass, one sort, one table of at most a thousand groups.

use std::cmp::Ordering;

use super::ViewError;

const HELP: &str = "expected: where FIELD = VALUE and ... | sort -FIELD, ... | count, sum(FIELD) by FIELD; operators = != < <= > >= ~";

/// What to filter, sort and count.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Query {
    pub(super) conditions: Vec<Condition>,
    pub(super) order: Vec<Order>,
    pub(super) aggregates: Vec<Aggregate>,
    pub(super) groups: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Condition {
    pub(super) field: String,
    operator: Operator,
    value: Cell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    AtMost,
    More,
    AtLeast,
    Contains,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Order {
    pub(super) field: String,
    pub(super) descending: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Aggregate {
    Count,
    Of(Function, String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Sum,
    Avg,
    Min,
    Max,
}

impl Aggregate {
    /// The name of its column.
    pub(super) fn name(&self) -> String {
        match self {
            Aggregate::Count => "count".into(),
            Aggregate::Of(Function::Sum, field) => format!("sum({field})"),
            Aggregate::Of(Function::Avg, field) => format!("avg({field})"),
            Aggregate::Of(Function::Min, field) => format!("min({field})"),
            Aggregate::Of(Function::Max, field) => format!("max({field})"),
        }
    }
}

/// One value of a table.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    /// Nothing there.
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
}

impl Cell {
    /// A field of a CSV file, where a number is a text that looks like one.
    pub(super) fn of_text(text: &str) -> Self {
        match text.trim() {
            "" => Cell::Null,
            trimmed => match trimmed.parse::<f64>() {
                Ok(number) if number.is_finite() => Cell::Number(number),
                _ => Cell::Text(text.to_owned()),
            },
        }
    }

    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Cell::Number(number) => Some(*number),
            Cell::Text(text) => text.trim().parse().ok().filter(|number: &f64| number.is_finite()),
            Cell::Null | Cell::Bool(_) => None,
        }
    }

    pub(super) fn shown(&self) -> String {
        match self {
            Cell::Null => String::new(),
            Cell::Bool(value) => value.to_string(),
            Cell::Number(number) => number.to_string(),
            Cell::Text(text) => text.clone(),
        }
    }

    /// Numbers by size, texts by their characters, nothing before everything.
    pub(super) fn order(&self, other: &Cell) -> Ordering {
        if let (Some(a), Some(b)) = (self.number(), other.number()) {
            return a.total_cmp(&b);
        }
        let rank = |cell: &Cell| match cell {
            Cell::Null => 0,
            Cell::Bool(_) => 1,
            Cell::Number(_) => 2,
            Cell::Text(_) => 3,
        };
        match (self, other) {
            (Cell::Text(a), Cell::Text(b)) => a.cmp(b),
            (Cell::Bool(a), Cell::Bool(b)) => a.cmp(b),
            (a, b) => rank(a).cmp(&rank(b)),
        }
    }
}

impl Condition {
    pub(super) fn holds(&self, cell: &Cell) -> bool {
        let order = cell.order(&self.value);
        // Less and more are about things that can be compared; nothing is not less than something.
        let comparable =
            !matches!(cell, Cell::Null) && (cell.number().is_some() == self.value.number().is_some());
        match self.operator {
            Operator::Equal => order == Ordering::Equal,
            Operator::NotEqual => order != Ordering::Equal,
            Operator::Less => comparable && order == Ordering::Less,
            Operator::AtMost => comparable && order != Ordering::Greater,
            Operator::More => comparable && order == Ordering::Greater,
            Operator::AtLeast => comparable && order != Ordering::Less,
            Operator::Contains => cell.shown().to_lowercase().contains(&self.value.shown().to_lowercase()),
        }
    }
}

impl Query {
    /// Reads a query; an empty one asks for everything.
    pub fn read(text: &str) -> Result<Self, ViewError> {
        let mut reader = Reader { tokens: tokens(text)?, at: 0 };
        let mut query = Query::default();
        if reader.tokens.is_empty() {
            return Ok(query);
        }
        if reader.word("where") {
            loop {
                query.conditions.push(reader.condition()?);
                if !reader.word("and") {
                    break;
                }
            }
            if !reader.next_clause()? {
                return Ok(query);
            }
        }
        if reader.word("sort") {
            loop {
                let descending = reader.symbol("-");
                query.order.push(Order { field: reader.field()?, descending });
                if !reader.symbol(",") {
                    break;
                }
            }
            if !reader.next_clause()? {
                return Ok(query);
            }
        }
        loop {
            query.aggregates.push(reader.aggregate()?);
            if !reader.symbol(",") {
                break;
            }
        }
        if reader.word("by") {
            loop {
                query.groups.push(reader.field()?);
                if !reader.symbol(",") {
                    break;
                }
            }
        }
        if reader.next_clause()? { Err(wrong()) } else { Ok(query) }
    }
}

fn wrong() -> ViewError {
    ViewError::field("pattern", HELP)
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Quoted(String),
    Symbol(&'static str),
}

const SYMBOLS: [&str; 12] = ["!=", "<=", ">=", "=", "<", ">", "~", "|", ",", "(", ")", "-"];

fn tokens(text: &str) -> Result<Vec<Token>, ViewError> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        if first == '"' || first == '\'' {
            let inside = &rest[1..];
            let end =
                inside.find(first).ok_or_else(|| ViewError::field("pattern", "a quote is not closed"))?;
            tokens.push(Token::Quoted(inside[..end].to_owned()));
            rest = &inside[end + 1..];
        } else if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol))
            // A number may begin with a minus, a field to be sorted by may too: the reader knows which it wants.
            && !(*symbol == "-" && matches!(tokens.last(), Some(Token::Symbol(s)) if !["|", ","].contains(s)))
        {
            tokens.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
        } else {
            let is_word = |c: char| c.is_alphanumeric() || "_.$-+:/@".contains(c);
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            if end == 0 {
                return Err(wrong());
            }
            tokens.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    Ok(tokens)
}

struct Reader {
    tokens: Vec<Token>,
    at: usize,
}

impl Reader {
    fn word(&mut self, word: &str) -> bool {
        let is =
            matches!(self.tokens.get(self.at), Some(Token::Word(here)) if here.eq_ignore_ascii_case(word));
        self.at += usize::from(is);
        is
    }

    fn symbol(&mut self, symbol: &str) -> bool {
        let is = matches!(self.tokens.get(self.at), Some(Token::Symbol(here)) if *here == symbol);
        self.at += usize::from(is);
        is
    }

    fn next(&mut self) -> Result<Token, ViewError> {
        let token = self.tokens.get(self.at).cloned().ok_or_else(wrong)?;
        self.at += 1;
        Ok(token)
    }

    /// Past a `|`; false at the end.
    fn next_clause(&mut self) -> Result<bool, ViewError> {
        if self.at == self.tokens.len() {
            return Ok(false);
        }
        if self.symbol("|") { Ok(true) } else { Err(wrong()) }
    }

    fn field(&mut self) -> Result<String, ViewError> {
        match self.next()? {
            Token::Word(name) | Token::Quoted(name) => Ok(name),
            Token::Symbol(_) => Err(wrong()),
        }
    }

    fn condition(&mut self) -> Result<Condition, ViewError> {
        let field = self.field()?;
        let operator = match self.next()? {
            Token::Symbol("=") => Operator::Equal,
            Token::Symbol("!=") => Operator::NotEqual,
            Token::Symbol("<") => Operator::Less,
            Token::Symbol("<=") => Operator::AtMost,
            Token::Symbol(">") => Operator::More,
            Token::Symbol(">=") => Operator::AtLeast,
            Token::Symbol("~") => Operator::Contains,
            _ => return Err(wrong()),
        };
        let value = match self.next()? {
            Token::Quoted(text) => Cell::Text(text),
            Token::Word(word) => match word.as_str() {
                "true" => Cell::Bool(true),
                "false" => Cell::Bool(false),
                "null" => Cell::Null,
                word => Cell::of_text(word),
            },
            Token::Symbol(_) => return Err(wrong()),
        };
        Ok(Condition { field, operator, value })
    }

    fn aggregate(&mut self) -> Result<Aggregate, ViewError> {
        let Token::Word(word) = self.next()? else { return Err(wrong()) };
        let function = match word.to_ascii_lowercase().as_str() {
            "count" => return Ok(Aggregate::Count),
            "sum" => Function::Sum,
            "avg" => Function::Avg,
            "min" => Function::Min,
            "max" => Function::Max,
            _ => return Err(wrong()),
        };
        if !self.symbol("(") {
            return Err(wrong());
        }
        let field = self.field()?;
        if !self.symbol(")") {
            return Err(wrong());
        }
        Ok(Aggregate::Of(function, field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_three_clauses_in_order() {
        let query = Query::read(
            r#"where status = "open" and amount >= -10 | sort -amount, name | count, sum(amount) by a.b"#,
        );
        let query = query.unwrap();
        assert_eq!(query.conditions.len(), 2);
        assert!(
            query.conditions[1].holds(&Cell::Number(-10.0))
                && !query.conditions[1].holds(&Cell::Number(-11.0))
        );
        assert_eq!(
            query.order,
            [
                Order { field: "amount".into(), descending: true },
                Order { field: "name".into(), descending: false }
            ]
        );
        assert_eq!(query.aggregates, [Aggregate::Count, Aggregate::Of(Function::Sum, "amount".into())]);
        assert_eq!(query.groups, ["a.b"]);
        assert_eq!(Query::read("  ").unwrap(), Query::default());
        for wrong in [
            "where",
            "where a",
            "where a = 1 sort a",
            "sort",
            "sum(a",
            "sum",
            "by a",
            "where a = \"x",
            "count | count",
            "☃ = 1",
        ] {
            assert!(Query::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn nothing_is_neither_less_nor_more() {
        let less = Query::read("where a < 5").unwrap();
        assert!(!less.conditions[0].holds(&Cell::Null) && !less.conditions[0].holds(&Cell::Text("x".into())));
        let contains = Query::read("where a ~ 'ERR'").unwrap();
        assert!(contains.conditions[0].holds(&Cell::Text("an error".into())));
        assert!(Query::read("where a = null").unwrap().conditions[0].holds(&Cell::Null));
    }
}
