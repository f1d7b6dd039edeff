//! The Redis face: RESP bytes, connections, dispatch. Knows nothing of ballots.

pub mod resp;
