//! The names and versions of resources. All proxies have the same ones, so that each is kept once and a proxy has
//! numbers.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// The number of a text. A text that is new gets the largest one.
pub(crate) type Id = u32;

/// No text has this number.
pub(crate) const NONE: Id = Id::MAX;

#[derive(Default)]
struct Texts {
    ids: HashMap<Arc<str>, Id>,
    texts: Vec<Arc<str>>,
}

fn locked() -> MutexGuard<'static, Texts> {
    static TEXTS: LazyLock<Mutex<Texts>> = LazyLock::new(Mutex::default);
    TEXTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of this text.
pub(crate) fn id(text: &[u8]) -> Id {
    let text = String::from_utf8_lossy(text);
    let mut all = locked();
    if let Some(id) = all.ids.get(&*text) {
        return *id;
    }
    // The texts of 2^32 numbers do not fit into memory.
    let (text, id) = (Arc::<str>::from(text), all.texts.len() as Id);
    all.ids.insert(Arc::clone(&text), id);
    all.texts.push(text);
    id
}

/// Reads texts. No numbers are given as long as it exists.
pub(crate) struct Reader(MutexGuard<'static, Texts>);

impl Reader {
    /// Waits until no other reader exists.
    pub(crate) fn new() -> Reader {
        Reader(locked())
    }

    /// The text with this number; empty if there is none.
    pub(crate) fn text(&self, id: Id) -> &[u8] {
        self.0.texts.get(id as usize).map_or(&[], |text| text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_one_number_and_later_ones_larger_numbers() {
        let [first, second] = ["texts: first", "texts: second"].map(|text| id(text.as_bytes()));
        assert!(first < second);
        assert_eq!(id(b"texts: first"), first);
        let reader = Reader::new();
        assert_eq!(reader.text(second), b"texts: second");
        assert_eq!(reader.text(NONE), b"");
    }
}
