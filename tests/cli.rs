//! What the command line says: its help, and the errors that people meet first. `TRYCMD=overwrite cargo test --test cli` writes it anew; read the
//! difference.
#![allow(missing_docs)]

#[test]
fn help_and_errors_are_as_written() {
    trycmd::TestCases::new().case("tests/cli/*.trycmd").env("NO_COLOR", "1").run();
}
