//! Suggestions for mistyped words.

/// The known word that a mistyped one most likely means, ignoring case.
pub(crate) fn nearest<'w>(typed: &str, known: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let typed = typed.to_lowercase();
    // Short words allow fewer edits, or unrelated words would match.
    let far = match typed.len() {
        0 | 1 => 0,
        2..=4 => 1,
        _ => 2,
    };
    let steps = known.map(|word| (distance(&word.to_lowercase(), &typed), word)).min();
    steps
        .filter(|(steps, _)| (1..=far).contains(steps))
        .map(|(_, word)| word)
}

/// The Levenshtein distance of two words.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, r) in right.iter().enumerate() {
            let change = diagonal + usize::from(l != *r);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn near_words_are_suggested() {
        let near = |typed| nearest(typed, ["services", "no", "vs", "VirtualService"].into_iter());
        assert_eq!(near("servces"), Some("services"));
        assert_eq!(near("vz"), Some("vs"));
        assert_eq!(near("VirtualSrvice"), Some("VirtualService"));
        assert_eq!(near("foo"), None);
        assert_eq!(near(""), None);
    }

    proptest! {
        #[test]
        fn distance_is_a_metric(a in "[a-c]{0,6}", b in "[a-c]{0,6}", c in "[a-c]{0,6}") {
            prop_assert_eq!(distance(&a, &b), distance(&b, &a));
            prop_assert_eq!(distance(&a, &b) == 0, a == b);
            prop_assert!(distance(&a, &c) <= distance(&a, &b) + distance(&b, &c));
        }
    }
}
