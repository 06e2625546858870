//! Numbers by their value, and values equal in the sense of JSON Schema: `1` and `1.0` are one number.

use std::cmp::Ordering;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use serde_json::{Number, Value};

/// The number as an integer, if it is one that can be told exactly.
fn integer(number: &Number) -> Option<i128> {
    if let Some(value) = number.as_i64() {
        return Some(i128::from(value));
    }
    if let Some(value) = number.as_u64() {
        return Some(i128::from(value));
    }
    let value = number.as_f64()?;
    // Above, every double is an integer, and comparing doubles is exact enough: no integer of JSON's is as large.
    (value.fract() == 0.0 && value.abs() < 2f64.powi(100)).then_some(value as i128)
}

fn double(number: &Number) -> f64 {
    number.as_f64().unwrap_or(f64::NAN)
}

/// Whether the number has no fraction (GNT-S7).
pub(super) fn is_integer(number: &Number) -> bool {
    !number.is_f64() || double(number).fract() == 0.0
}

/// Which number is greater.
pub(super) fn compare(a: &Number, b: &Number) -> Ordering {
    match (integer(a), integer(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        // A double with a fraction is below 2^53, where an integer loses nothing.
        _ => double(a).partial_cmp(&double(b)).unwrap_or(Ordering::Equal),
    }
}

/// Whether `number` is a whole multiple of `of`, both taken as they are written: 0.0075 is 75 times 0.0001.
pub(super) fn is_multiple(number: &Number, of: &Number) -> bool {
    if let (Some(number), Some(of)) = (integer(number), integer(of)) {
        return of != 0 && number % of == 0;
    }
    let (Some((digits, exponent)), Some((of, of_exponent))) = (decimal(number), decimal(of)) else {
        return false;
    };
    if of == 0 {
        return false;
    }
    let more = exponent - of_exponent;
    if more >= 0 {
        // Reduced at every step: the digits of a double are few, so nothing overflows.
        return (0..more).fold(digits % of, |rest, _| rest * 10 % of) == 0;
    }
    let scaled = (0..-more).try_fold(of, |of, _| of.checked_mul(10));
    // What does not fit is greater than any number with as few digits.
    scaled.map_or(digits == 0, |of| digits % of == 0)
}

/// A number as `digits * 10^exponent`.
fn decimal(number: &Number) -> Option<(i128, i32)> {
    let text = number.to_string();
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((&text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let exponent: i32 = exponent.parse().ok()?;
    Some((digits, exponent - i32::try_from(fraction.len()).ok()?))
}

/// Whether two values are equal.
pub(super) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare(a, b) == Ordering::Equal,
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| equal(a, b)))
        }
        (a, b) => a == b,
    }
}

/// Whether no two items are equal; also how many values were looked at.
pub(super) fn are_unique(items: &[Value]) -> (bool, usize) {
    let mut looked_at = 0;
    if items.len() <= 6 {
        let pairs = (1..items.len()).all(|at| items[..at].iter().all(|other| !equal(other, &items[at])));
        return (pairs, items.len());
    }
    let mut hashes: Vec<(u64, usize)> = (items.iter().enumerate())
        .map(|(at, item)| {
            let mut hasher = DefaultHasher::new();
            hash(item, &mut hasher, &mut looked_at);
            (hasher.finish(), at)
        })
        .collect();
    hashes.sort_unstable();
    let unique = hashes
        .chunk_by(|a, b| a.0 == b.0)
        .all(|same| (1..same.len()).all(|at| (0..at).all(|o| !equal(&items[same[o].1], &items[same[at].1]))));
    (unique, looked_at)
}

/// Equal values have equal hashes.
fn hash(value: &Value, hasher: &mut DefaultHasher, looked_at: &mut usize) {
    *looked_at += 1;
    match value {
        Value::Null => 0u8.hash(hasher),
        Value::Bool(value) => (1u8, value).hash(hasher),
        Value::Number(number) => (2u8, double(number).to_bits() & !(1 << 63)).hash(hasher),
        Value::String(text) => (3u8, text).hash(hasher),
        Value::Array(items) => {
            (4u8, items.len()).hash(hasher);
            items.iter().for_each(|item| hash(item, hasher, looked_at));
        }
        Value::Object(members) => {
            (5u8, members.len()).hash(hasher);
            // In any order: the members of equal objects may have come in different ones.
            let sum = members.iter().fold(0u64, |sum, (name, member)| {
                let mut own = DefaultHasher::new();
                name.hash(&mut own);
                hash(member, &mut own, looked_at);
                sum.wrapping_add(own.finish())
            });
            sum.hash(hasher);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn number(value: Value) -> Number {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn numbers_are_compared_by_value() {
        for (a, b, order) in [
            (json!(1), json!(1.0), Ordering::Equal),
            (json!(9_007_199_254_740_993u64), json!(9_007_199_254_740_992.0), Ordering::Greater),
            (json!(u64::MAX), json!(i64::MIN), Ordering::Greater),
            (json!(0.1), json!(1), Ordering::Less),
            (json!(1e300), json!(u64::MAX), Ordering::Greater),
        ] {
            assert_eq!(compare(&number(a.clone()), &number(b.clone())), order, "{a} {b}");
        }
    }

    #[test]
    fn multiples_are_taken_of_what_is_written() {
        for (value, of, is) in [
            (json!(0.0075), json!(0.0001), true),
            (json!(0.00751), json!(0.0001), false),
            (json!(4.5), json!(1.5), true),
            (json!(35), json!(1.5), false),
            (json!(1e308), json!(0.5), true),
            (json!(1e308), json!(0.123_456_789), false),
            (json!(12_391_239_123i64), json!(1e-8), true),
            (json!(0), json!(1e300), true),
            (json!(0.1), json!(1e300), false),
        ] {
            assert_eq!(is_multiple(&number(value.clone()), &number(of.clone())), is, "{value} {of}");
        }
    }

    #[test]
    fn many_items_are_told_apart_as_few_are() {
        let items = |last: Value| {
            let mut items: Vec<Value> = (0..20).map(|n| json!({"n": n, "m": [n]})).collect();
            items.push(last);
            items
        };
        assert!(are_unique(&items(json!({"n": 20, "m": []}))).0);
        assert!(!are_unique(&items(json!({"m": [3.0], "n": 3}))).0);
        assert!(!are_unique(&[json!(1), json!(true), json!(1.0)]).0);
        assert!(are_unique(&[json!(1), json!(true), json!("1")]).0);
    }
}
