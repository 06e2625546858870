//! Work that takes long enough to be in the way of others.

use tokio::runtime::{Handle, RuntimeFlavor};

/// GNT-S5: what is longer than this is not validated where other calls wait their turn.
const SHORT_BYTES: usize = 64 * 1024;

/// Does `work` on a text of `bytes` bytes. If that is much, the thread is given up for it and the calls it would have
/// served are served by others.
pub(crate) fn off_the_async_threads<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let has_others =
        || Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if bytes > SHORT_BYTES && has_others() { tokio::task::block_in_place(work) } else { work() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_are_served_while_a_long_text_is_looked_at() {
        // GNT-S5: with one thread for everything, the other task can only run if the thread was given up.
        let (said, heard) = std::sync::mpsc::channel();
        let long = tokio::spawn(async move {
            tokio::spawn(async move { said.send("served").unwrap() });
            off_the_async_threads(SHORT_BYTES + 1, || heard.recv().unwrap())
        });
        assert_eq!(long.await.unwrap(), "served");
    }

    #[tokio::test]
    async fn where_there_is_one_thread_it_does_the_work() {
        assert_eq!(off_the_async_threads(SHORT_BYTES + 1, || 7), 7);
    }
}
