//! Text of the mock model: words that are one token each, in every vocabulary that is used for counting.

const WORDS: [&str; 16] = [
    " the", " of", " and", " to", " in", " is", " that", " for", " it", " as", " was", " with", " be", " by",
    " on", " not",
];

/// This number of tokens, from the `from`-th on.
pub(super) fn text(from: u64, tokens: u64) -> String {
    (from..from + tokens).map(|nth| WORDS[(nth * 7 % 16) as usize]).collect()
}

#[cfg(test)]
mod tests {
    use llm_gateway::tokens::Counter;

    #[test]
    fn every_word_is_one_token_alone_and_in_a_row() {
        for model in ["gpt-4o", "gpt-4"] {
            for (from, tokens) in [(0, 1), (3, 16), (15, 2), (9, 333)] {
                assert_eq!(Counter::of(model).text(&super::text(from, tokens)), tokens, "{model}");
            }
        }
    }
}
