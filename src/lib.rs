//! Warlock as a library: a node of the cluster, to be run inside a program or by the `warlock` binary.

pub mod bucket;
pub mod client;
pub mod codec;
pub mod disk;
pub mod embed;
pub mod host;
pub mod http;
pub mod identity;
pub mod node;
pub mod rebirth;
pub mod settings;
pub mod snapshots;
pub mod startup;
pub mod waiting;

pub use embed::{Builder, Node};

// A build with bugs planted on purpose must never be shipped.
const _: () = assert!(
    !consensus::planted::COMPILED_IN && !storage::planted::COMPILED_IN,
    "the warlock binary is never built with planted bugs"
);
