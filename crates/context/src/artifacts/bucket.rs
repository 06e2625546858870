//! A bucket of an S3-compatible server, which several gateways may share (CTX-25).
//!
//! The store's own interface is plain and waits, so requests run on a thread of their own and whoever asks waits for it; a
//! thread that serves others is given up meanwhile. Everything that is put there is sealed already: the server learns
//! sizes and times, nothing else.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_util::TryStreamExt as _;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{
    ClientOptions, ObjectStore as _, ObjectStoreExt as _, PutPayload, RetryConfig, WriteMultipart,
};
use portcullis_core::Secret;
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};

use super::place::{Drawer, Object, Place, Writing};

/// What is larger goes in parts of this size.
const PART: usize = 8 << 20;
/// How long one request may take, and all attempts at it.
const REQUEST: Duration = Duration::from_secs(20);
const ATTEMPTS: Duration = Duration::from_secs(30);

/// Which bucket, and as whom.
#[derive(Clone)]
pub struct BucketOptions {
    /// The server: `https`, or `http` on this machine.
    pub endpoint: String,
    /// Its region.
    pub region: String,
    /// The bucket.
    pub bucket: String,
    /// What the names of all objects begin with.
    pub prefix: String,
    /// Who we are there.
    pub credentials: Arc<BucketCredentials>,
}

impl fmt::Debug for BucketOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("BucketOptions");
        shown.field("endpoint", &self.endpoint).field("bucket", &self.bucket).field("prefix", &self.prefix);
        shown.finish_non_exhaustive()
    }
}

/// An access key of an S3-compatible server.
pub struct BucketCredentials {
    /// Its public half.
    pub access_key_id: String,
    /// Its secret half.
    pub secret_access_key: Secret<String>,
    /// What a temporary key needs besides.
    pub session_token: Option<Secret<String>>,
}

/// The bucket.
pub(crate) struct Bucket {
    store: Arc<AmazonS3>,
    prefix: Path,
    name: String,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket")
            .field("name", &self.name)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl Bucket {
    /// Nothing is asked of the server yet: one that is away must not keep a gateway from starting.
    pub(crate) fn open(options: &BucketOptions) -> io::Result<Self> {
        // The program's own choice, if it has made one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let BucketCredentials { access_key_id, secret_access_key, session_token } = &*options.credentials;
        let retry = RetryConfig { max_retries: 2, retry_timeout: ATTEMPTS, ..RetryConfig::default() };
        let mut builder = AmazonS3Builder::new()
            .with_endpoint(&options.endpoint)
            .with_allow_http(options.endpoint.starts_with("http://"))
            .with_region(&options.region)
            .with_bucket_name(&options.bucket)
            .with_access_key_id(access_key_id)
            .with_secret_access_key(secret_access_key.expose())
            .with_disable_bulk_delete(true)
            .with_client_options(
                ClientOptions::new()
                    .with_timeout(REQUEST)
                    .with_allow_http(options.endpoint.starts_with("http://")),
            )
            .with_retry(retry);
        if let Some(token) = session_token {
            builder = builder.with_token(token.expose());
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("artifact-bucket")
            .enable_all()
            .build()?;
        let prefix = Path::parse(options.prefix.trim_matches('/')).map_err(io::Error::other)?;
        let store = Arc::new(builder.build().map_err(refused)?);
        Ok(Self { store, prefix, name: options.bucket.clone(), runtime: Some(runtime) })
    }

    fn path(&self, drawer: Drawer, name: &str) -> Path {
        self.prefix.clone().join(drawer.as_str()).join(name)
    }

    /// Waits for something that runs on the bucket's own thread.
    fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        let runtime = self.runtime.as_ref().ok_or_else(|| io::Error::other("the bucket is closed"))?;
        wait_on(runtime.handle(), work)
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        // May be on a thread that serves others, where a runtime must not be waited for.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Place for Bucket {
    fn is_shared(&self) -> bool {
        true
    }

    fn put(&self, drawer: Drawer, name: &str, write: Writing<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        write(&mut bytes)?;
        let (store, path) = (self.store.clone(), self.path(drawer, name));
        self.wait(async move {
            if bytes.len() <= PART {
                return store.put(&path, PutPayload::from(bytes)).await.map(drop);
            }
            let upload = store.put_multipart(&path).await?;
            let mut parts = WriteMultipart::new_with_chunk_size(upload, PART);
            parts.write(&bytes);
            parts.finish().await.map(drop)
        })
    }

    fn open(&self, drawer: Drawer, name: &str) -> io::Result<Box<dyn Object>> {
        let (store, path) = (self.store.clone(), self.path(drawer, name));
        let (asked, at) = (store.clone(), path.clone());
        let length = self.wait(async move { asked.head(&at).await })?.size;
        let runtime = self.runtime.as_ref().ok_or_else(|| io::Error::other("the bucket is closed"))?;
        Ok(Box::new(Stored { store, path, length, on: runtime.handle().clone() }))
    }

    fn remove(&self, drawer: Drawer, name: &str) -> io::Result<()> {
        let (store, path) = (self.store.clone(), self.path(drawer, name));
        match self.wait(async move { store.delete(&path).await }) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn names(&self, drawer: Drawer, age: Duration) -> io::Result<Vec<String>> {
        let (store, folder) = (self.store.clone(), self.prefix.clone().join(drawer.as_str()));
        let listed = self.wait(async move { store.list(Some(&folder)).try_collect::<Vec<_>>().await })?;
        // By the server's clock on both sides: what it wrote last, or now.
        let newest = listed.iter().map(|object| object.last_modified.timestamp()).max().unwrap_or_default();
        let now = newest.max(seconds_now());
        let old = |object: &&object_store::ObjectMeta| {
            now.saturating_sub(object.last_modified.timestamp()) >= age.as_secs() as i64
        };
        Ok(listed
            .iter()
            .filter(old)
            .filter_map(|object| object.location.filename().map(str::to_owned))
            .collect())
    }
}

fn seconds_now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    since.as_secs() as i64
}

/// An object in the bucket.
struct Stored {
    store: Arc<AmazonS3>,
    path: Path,
    length: u64,
    on: Handle,
}

impl Object for Stored {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (store, path, range) =
            (self.store.clone(), self.path.clone(), offset..offset + bytes.len() as u64);
        let read = wait_on(&self.on, async move { store.get_range(&path, range).await })?;
        if read.len() != bytes.len() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the object is shorter than it was"));
        }
        bytes.copy_from_slice(&read);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.length)
    }
}

/// Runs `work` on the bucket's thread and waits for it. A thread that serves others lets them be served by another one.
fn wait_on<T: Send + 'static>(
    on: &Handle,
    work: impl Future<Output = object_store::Result<T>> + Send + 'static,
) -> io::Result<T> {
    let (tell, told) = mpsc::sync_channel(1);
    on.spawn(async move {
        let _ = tell.send(work.await);
    });
    let wait = || told.recv().map_err(|_| io::Error::other("the bucket is closed"));
    let serves_others =
        Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    let outcome = if serves_others { tokio::task::block_in_place(wait) } else { wait() };
    outcome?.map_err(refused)
}

/// The server's words, without the address and the request they came with.
fn refused(error: object_store::Error) -> io::Error {
    let kind = match &error {
        object_store::Error::NotFound { .. } => io::ErrorKind::NotFound,
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
            io::ErrorKind::PermissionDenied
        }
        _ => io::ErrorKind::Other,
    };
    let said = match kind {
        io::ErrorKind::NotFound => "there is no such object, or no such bucket",
        io::ErrorKind::PermissionDenied => "the server does not accept the credentials",
        _ => "the server cannot be reached, or does not do what is asked",
    };
    tracing::warn!(error = %portcullis_core::scrub::scrub(&error.to_string()), "the bucket for artifacts");
    io::Error::new(kind, said)
}
