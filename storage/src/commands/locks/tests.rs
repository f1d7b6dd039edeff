//! Locks and sessions by examples, and against a naive twin.

mod examples;
mod owners;
mod twin;
mod young;
