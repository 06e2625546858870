//! A value that cannot be printed.

use std::fmt;

use subtle::ConstantTimeEq as _;
use zeroize::Zeroize;

/// A secret. It has no `Display` and no `Serialize`, its `Debug` shows nothing, its comparison takes the same
/// time whatever differs, and its memory is wiped when it is dropped. The one way to the value is
/// [`expose`](Secret::expose), whose name is easy to find in a review.
///
/// ```
/// # use portcullis_core::Secret;
/// let token = Secret::new(String::from("hunter2"));
/// assert_eq!(format!("{token:?}"), "Secret(…)");
/// assert_eq!(token.expose(), "hunter2");
/// ```
///
/// ```compile_fail
/// # use portcullis_core::Secret;
/// // ADM-60, SO-40: printing one.
/// println!("{}", Secret::new(String::from("hunter2")));
/// ```
///
/// ```compile_fail
/// # use portcullis_core::Secret;
/// serde_json::to_string(&Secret::new(String::from("hunter2")));
/// ```
pub struct Secret<T: Zeroize>(T);

impl<T: Zeroize> Secret<T> {
    /// Takes the value into custody.
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// The value, for the one place that must have it.
    pub fn expose(&self) -> &T {
        &self.0
    }
}

impl Secret<[u8; 32]> {
    /// A fresh random key.
    pub fn random_key() -> Self {
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("the system has random numbers");
        Self(key)
    }
}

impl<T: Zeroize + AsRef<[u8]>> PartialEq for Secret<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_ref().ct_eq(other.0.as_ref()).into()
    }
}

impl<T: Zeroize> Drop for Secret<T> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl<T: Zeroize> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_inside_another_value_stays_hidden() {
        #[derive(Debug)]
        #[allow(dead_code)]
        struct Login {
            user: &'static str,
            password: Secret<String>,
        }
        let shown = format!("{:#?}", Login { user: "ana", password: Secret::new("hunter2".into()) });
        assert!(shown.contains("ana") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn equal_secrets_compare_equal() {
        assert!(Secret::new(String::from("a")) == Secret::new(String::from("a")));
        assert!(Secret::new(String::from("a")) != Secret::new(String::from("ab")));
        assert!(Secret::random_key() != Secret::random_key());
    }
}
