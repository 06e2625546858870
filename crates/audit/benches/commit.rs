//! Group commit against one caller and against the bare system calls.
fn main() {}
