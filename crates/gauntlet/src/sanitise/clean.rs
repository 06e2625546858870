//! Text before and after: two types, one way between them (GNT-Z14).
//!
//! Escaping twice damages text, and not escaping at all is worse. So what comes from a server is [`Raw`], what
//! may be shown is [`Clean`], and no function takes the second for the first.

use serde::Serialize;

/// Something a server wrote. It has no accessor outside this crate.
///
/// ```
/// use portcullis_gauntlet::{Gauntlet, Raw};
/// let gauntlet = Gauntlet::default();
/// let clean = gauntlet.clean_text(Raw::new("<b>__system__hi\u{7}</b>")).unwrap();
/// assert_eq!(clean.get(), "&lt;b&gt;hi&lt;/b&gt;");
/// ```
///
/// ```compile_fail,E0308
/// // CF-1: what is clean is not cleaned again
/// # use portcullis_gauntlet::{Gauntlet, Raw};
/// let gauntlet = Gauntlet::default();
/// let clean = gauntlet.clean_text(Raw::new("a & b")).unwrap();
/// gauntlet.clean_text(clean);
/// ```
#[derive(Clone, Copy)]
pub struct Raw<T>(T);

impl<T> Raw<T> {
    /// Takes what a server wrote into custody.
    pub fn new(value: T) -> Self {
        Self(value)
    }

    pub(crate) fn inner(&self) -> &T {
        &self.0
    }

    pub(crate) fn into_inner(self) -> T {
        self.0
    }
}

impl<T> std::fmt::Debug for Raw<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Raw(..)")
    }
}

/// Something that went through the sanitiser. Only the sanitiser makes one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Clean<T>(T);

impl<T> Clean<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(value)
    }

    /// The clean value.
    pub fn get(&self) -> &T {
        &self.0
    }

    /// The clean value, out of its wrapper: for the last step, where it is written or shown.
    pub fn into_inner(self) -> T {
        self.0
    }
}
