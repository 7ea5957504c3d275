//! The list of reasons in docs/protocol.md is the list in the code.

use std::collections::BTreeSet;

use rejoin_core::codes::Reason;

const PAGE: &str = include_str!("../../../../docs/protocol.md");

/// Words of the paragraph that are no reasons.
const OTHERS: [&str; 1] = ["reconnect_session"];

#[test]
fn the_documented_reasons_are_those_that_there_are() {
    let (_, paragraph) =
        PAGE.split_once("\nReasons, over HTTP and in the audit:").expect("the list");
    let (list, _) = paragraph.split_once("For a restore").expect("the end of the list");
    let is_word = |text: &&str| text.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let quoted = list.split('`').skip(1).step_by(2).filter(is_word);
    let documented: BTreeSet<&str> = quoted.filter(|word| !OTHERS.contains(word)).collect();
    let known: BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(documented, known);
}
