//! What handlers answer with.

use std::marker::PhantomData;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::args::{Page, Paged};
use crate::envelope::Pagination;
use crate::grant::AuditReceipt;
use crate::tool::Data;

/// The largest answer; a longer list is cut to whole rows (ADM-42).
const LARGEST: usize = 64 << 10;

/// What a handler came to.
#[derive(Debug)]
pub(crate) struct Handled {
    pub(crate) data: Box<RawValue>,
    pub(crate) pagination: Option<Pagination>,
    pub(crate) receipt: Option<AuditReceipt>,
}

/// The answer of a read or write handler.
#[derive(Debug)]
pub struct Reply<D> {
    data: Result<Box<RawValue>, serde_json::Error>,
    pagination: Option<Pagination>,
    kind: PhantomData<fn(D)>,
}

impl<D: Data> Reply<D> {
    /// One thing.
    pub fn ok(data: D) -> Self {
        Self { data: to_raw_value(&data), pagination: None, kind: PhantomData }
    }
}

impl<R: Serialize> Reply<Vec<R>> {
    /// Some rows of many.
    pub fn page(rows: Paged<R>, page: Page) -> Self {
        let mut text = String::from("[");
        let mut returned = 0;
        let mut failed = None;
        for row in &rows.items {
            match serde_json::to_string(row) {
                Ok(row) if returned == 0 || text.len() + row.len() + 2 <= LARGEST => {
                    text.push_str(if returned == 0 { "" } else { "," });
                    text.push_str(&row);
                    returned += 1;
                }
                Ok(_) => break,
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        text.push(']');
        let whole = returned == rows.items.len();
        let limit = if whole { page.limit as u64 } else { returned as u64 };
        let data = match failed {
            Some(error) => Err(error),
            None => RawValue::from_string(text),
        };
        let pagination = Some(Pagination { total: rows.total, offset: page.offset as u64, limit });
        Self { data, pagination, kind: PhantomData }
    }
}

impl<D> Reply<D> {
    pub(crate) fn into_handled(self) -> Handled {
        Handled { data: written(self.data), pagination: self.pagination, receipt: None }
    }
}

/// The answer of an admin handler: it cannot be made without the receipt of what was done (ADM-52).
///
/// ```compile_fail,E0382
/// use portcullis_admin::{AuditReceipt, Committed};
/// // SO-40: a receipt used twice.
/// fn twice(receipt: AuditReceipt) -> (Committed<u8>, Committed<u8>) {
///     (Committed::ok(1, receipt), Committed::ok(2, receipt))
/// }
/// ```
#[derive(Debug)]
pub struct Committed<D> {
    data: Result<Box<RawValue>, serde_json::Error>,
    receipt: AuditReceipt,
    kind: PhantomData<fn(D)>,
}

impl<D: Data> Committed<D> {
    /// It was done, and is on record.
    pub fn ok(data: D, receipt: AuditReceipt) -> Self {
        Self { data: to_raw_value(&data), receipt, kind: PhantomData }
    }
}

impl<D> Committed<D> {
    pub(crate) fn into_handled(self) -> Handled {
        Handled { data: written(self.data), pagination: None, receipt: Some(self.receipt) }
    }
}

/// Records of ours always serialise; if one does not, the operation still happened and says so with `null`.
fn written(data: Result<Box<RawValue>, serde_json::Error>) -> Box<RawValue> {
    data.unwrap_or_else(|error| {
        tracing::error!(%error, "an answer cannot be written as JSON");
        RawValue::from_string("null".into()).expect("null is JSON")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_cut_to_whole_rows() {
        // ADM-42
        let page = Page { offset: 3, limit: 100 };
        let rows = Paged { items: vec!["x".repeat(1000); 100], total: 250 };
        let handled = Reply::page(rows, page).into_handled();
        let data: Vec<String> = serde_json::from_str(handled.data.get()).unwrap();
        assert!(handled.data.get().len() <= LARGEST && data.len() > 60);
        assert_eq!(
            handled.pagination.unwrap(),
            Pagination { total: 250, offset: 3, limit: data.len() as u64 }
        );
        let rows = Paged { items: vec![1, 2], total: 2 };
        let handled = Reply::page(rows, Page::default()).into_handled();
        assert_eq!(
            (handled.data.get(), handled.pagination.unwrap().limit),
            ("[1,2]", 50),
            "what fits is whole, and the limit is the one asked for"
        );
    }
}
