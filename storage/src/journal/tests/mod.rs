//! Tests of the journal: `basics` what it does, `faults` failing disks, `damage` broken files, `crash` power failures.

mod basics;
mod crash;
mod damage;
mod faults;
mod support;
mod then;
