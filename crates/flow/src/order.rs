//! Sorting by keys. The sort is compiled once and not for each relation, which keeps the binary small.

use std::cmp::Ordering;

/// Sorts `items`. The order of equal items is unspecified.
pub(crate) fn sort<T>(items: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let Some(mut places) = places(items.len(), &|a, b| compare(&items[a], &items[b])) else {
        return;
    };
    for at in 0..items.len() {
        while places[at] as usize != at {
            let to = places[at] as usize;
            items.swap(at, to);
            places.swap(at, to);
        }
    }
}

/// The target index of each item; `None` if the items are in order already.
fn places(len: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Option<Vec<u32>> {
    if (1..len).all(|at| compare(at - 1, at).is_le()) {
        return None;
    }
    let mut order: Vec<u32> = (0..len as u32).collect();
    order.sort_unstable_by(|a, b| compare(*a as usize, *b as usize));
    let mut places = vec![0; len];
    order.iter().zip(0..).for_each(|(item, place)| places[*item as usize] = place);
    Some(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts() {
        let mut random = 7_u32;
        for len in 0..200 {
            let mut items: Vec<u32> = Vec::new();
            for _ in 0..len {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                items.push(random >> 24);
            }
            let mut expected = items.clone();
            expected.sort_unstable();
            sort(&mut items, u32::cmp);
            assert_eq!(items, expected);
        }
    }
}
