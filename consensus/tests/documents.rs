//! What ARCHITECTURE.md says of the engine is what the code says.
#![allow(missing_docs)]

#[test]
fn the_table_of_messages_is_that_of_the_code() {
    let code = include_str!("../src/message.rs").lines().filter_map(|line| line.strip_prefix("//! |"));
    let document = include_str!("../../ARCHITECTURE.md");
    let missing: Vec<&str> = code.filter(|row| !document.contains(&format!("|{row}"))).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md lacks {missing:#?}");
}
