//! `[artifacts.s3]`: which bucket, and as whom (CTX-25).

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portcullis_context::artifacts::bucket::{BucketCredentials, BucketOptions};
use portcullis_core::Secret;
use serde::Deserialize;
use url::{Host, Url};

use super::beside;
use crate::failure::Failure;

/// A bucket of an S3-compatible server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BucketSection {
    /// The server's address.
    endpoint: Url,
    /// Its region [default: us-east-1].
    region: Option<String>,
    /// The bucket.
    bucket: String,
    /// What names of objects begin with [default: portcullis].
    prefix: Option<String>,
    /// A file with `aws_access_key_id` and `aws_secret_access_key`; without it they come from the environment.
    credentials_file: Option<PathBuf>,
}

impl BucketSection {
    pub(super) fn options(&self, file: &Path) -> Result<BucketOptions, Failure> {
        let (endpoint, bucket) = (&self.endpoint, self.bucket.clone());
        let is_name = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b));
        if bucket.is_empty() || bucket.contains('/') || !is_name(&bucket) {
            return Err(Failure::field("artifacts.s3.bucket", "artifacts.s3.bucket is no name of a bucket"));
        }
        let prefix = self.prefix.clone().unwrap_or_else(|| "portcullis".into());
        if !is_name(&prefix) || prefix.split('/').any(|part| part == "..") {
            return Err(Failure::field(
                "artifacts.s3.prefix",
                "artifacts.s3.prefix takes letters, digits and -_./",
            ));
        }
        if !is_reachable(endpoint) {
            let message = "artifacts.s3.endpoint must be https://HOST, or http on this machine, without user, query or fragment";
            return Err(Failure::field("artifacts.s3.endpoint", message));
        }
        let credentials = match &self.credentials_file {
            Some(path) => from_file(&beside(file, path))?,
            None => from_words(|name| std::env::var(name.to_ascii_uppercase()).ok()).ok_or_else(|| {
                let message = "artifacts need AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, or \
                               artifacts.s3.credentials_file";
                Failure::field("artifacts.s3.credentials_file", message)
            })?,
        };
        Ok(BucketOptions {
            endpoint: endpoint.as_str().trim_end_matches('/').to_owned(),
            region: self.region.clone().unwrap_or_else(|| "us-east-1".into()),
            bucket,
            prefix,
            credentials: Arc::new(credentials),
        })
    }
}

/// Plain HTTP is for this machine only.
fn is_reachable(endpoint: &Url) -> bool {
    let bare = endpoint.username().is_empty() && endpoint.password().is_none();
    let bare = bare && endpoint.query().is_none() && endpoint.fragment().is_none();
    bare && match (endpoint.scheme(), endpoint.host()) {
        ("https", Some(_)) => true,
        ("http", Some(Host::Ipv4(address))) => address.is_loopback(),
        ("http", Some(Host::Ipv6(address))) => address.is_loopback(),
        ("http", Some(Host::Domain(name))) => name == "localhost",
        _ => false,
    }
}

/// `name = value` lines, as the tools of such servers write them.
fn from_file(path: &Path) -> Result<BucketCredentials, Failure> {
    let refuse = |problem: String| {
        Failure::field("artifacts.s3.credentials_file", format!("{}: {problem}", path.display()))
    };
    let metadata = std::fs::metadata(path).map_err(|error| refuse(error.to_string()))?;
    if metadata.mode() & 0o077 != 0 {
        return Err(refuse(format!("others can read it; run: chmod 600 {}", path.display())));
    }
    let text = Secret::new(std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?);
    let word = |name: &str| {
        let mut pairs = text.expose().lines().filter_map(|line| line.split_once('='));
        pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
    };
    from_words(word).ok_or_else(|| refuse("needs aws_access_key_id and aws_secret_access_key".into()))
}

fn from_words(word: impl Fn(&str) -> Option<String>) -> Option<BucketCredentials> {
    let filled = |name| word(name).filter(|value| !value.is_empty());
    Some(BucketCredentials {
        access_key_id: filled("aws_access_key_id")?,
        secret_access_key: Secret::new(filled("aws_secret_access_key")?),
        session_token: filled("aws_session_token").map(Secret::new),
    })
}
