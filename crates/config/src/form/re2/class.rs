//! Sets of bytes, and the names that sets have in expressions.

use std::sync::LazyLock;

/// A set of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Class([u64; 4]);

impl Class {
    /// All bytes.
    pub(super) const ALL: Class = Class([u64::MAX; 4]);

    /// The bytes of ranges.
    pub(super) fn of(ranges: &[(u8, u8)]) -> Class {
        let mut out = Class::default();
        ranges.iter().for_each(|(low, high)| out.add(*low, *high));
        out
    }

    /// Adds a range.
    pub(super) fn add(&mut self, low: u8, high: u8) {
        for byte in low..=high {
            self.0[usize::from(byte / 64)] |= 1 << (byte % 64);
        }
    }

    pub(super) fn union(self, other: Class) -> Class {
        Class(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    pub(super) fn inverse(self) -> Class {
        Class(self.0.map(|word| !word))
    }

    pub(super) fn contains(self, byte: u8) -> bool {
        self.0[usize::from(byte / 64)] >> (byte % 64) & 1 == 1
    }

    pub(super) fn is_empty(self) -> bool {
        self == Class::default()
    }

    /// With the other case of its ASCII letters.
    pub(super) fn folded(self) -> Class {
        let mut out = self;
        for letter in b'a'..=b'z' {
            let upper = letter.to_ascii_uppercase();
            if self.contains(letter) || self.contains(upper) {
                out.add(letter, letter);
                out.add(upper, upper);
            }
        }
        out
    }

    /// The bytes of a class of one byte, or of a letter in both cases: a literal, and whether its case is ignored.
    pub(super) fn as_literal(self) -> Option<(u8, bool)> {
        let size: u32 = self.0.iter().map(|word| word.count_ones()).sum();
        let first = (0..=u8::MAX).find(|byte| self.contains(*byte))?;
        match size {
            1 => Some((first, false)),
            2 if first.is_ascii_uppercase() && self.contains(first.to_ascii_lowercase()) => {
                Some((first.to_ascii_lowercase(), true))
            }
            _ => None,
        }
    }

    /// Number of ranges in a program: where both cases of all letters are in the class, one range stands for both.
    pub(super) fn ranges(self) -> usize {
        let folds = self == self.folded();
        let mut count = 0;
        let mut byte = 0u16;
        let has = |byte: u16| u8::try_from(byte).is_ok_and(|byte| self.contains(byte));
        while byte < 256 {
            if !has(byte) {
                byte += 1;
                continue;
            }
            let low = byte;
            while has(byte) {
                byte += 1;
            }
            let upper = low >= u16::from(b'A') && byte <= u16::from(b'Z') + 1;
            count += usize::from(!(folds && upper));
        }
        count
    }
}

/// The class of `\d`, `\s`, `\w` and their negations.
pub(super) fn perl(letter: u8) -> Option<Class> {
    let class = match letter.to_ascii_lowercase() {
        b'd' => Class::of(&[(b'0', b'9')]),
        b's' => Class::of(&[(b'\t', b'\n'), (0x0c, b'\r'), (b' ', b' ')]),
        b'w' => Class::of(&[(b'0', b'9'), (b'A', b'Z'), (b'_', b'_'), (b'a', b'z')]),
        _ => return None,
    };
    Some(if letter.is_ascii_uppercase() { class.inverse() } else { class })
}

/// The class of a POSIX name such as `alpha`.
pub(super) fn posix(name: &[u8]) -> Option<Class> {
    let (name, negated) = name.strip_prefix(b"^").map_or((name, false), |name| (name, true));
    let ranges: &[(u8, u8)] = match name {
        b"alnum" => &[(b'0', b'9'), (b'A', b'Z'), (b'a', b'z')],
        b"alpha" => &[(b'A', b'Z'), (b'a', b'z')],
        b"ascii" => &[(0, 0x7f)],
        b"blank" => &[(b'\t', b'\t'), (b' ', b' ')],
        b"cntrl" => &[(0, 0x1f), (0x7f, 0x7f)],
        b"digit" => &[(b'0', b'9')],
        b"graph" => &[(b'!', b'~')],
        b"lower" => &[(b'a', b'z')],
        b"print" => &[(b' ', b'~')],
        b"punct" => &[(b'!', b'/'), (b':', b'@'), (b'[', b'`'), (b'{', b'~')],
        b"space" => &[(b'\t', b'\r'), (b' ', b' ')],
        b"upper" => &[(b'A', b'Z')],
        b"word" => &[(b'0', b'9'), (b'A', b'Z'), (b'_', b'_'), (b'a', b'z')],
        b"xdigit" => &[(b'0', b'9'), (b'A', b'F'), (b'a', b'f')],
        _ => return None,
    };
    let class = Class::of(ranges);
    Some(if negated { class.inverse() } else { class })
}

/// The bytes of a Unicode category or script, by RE2's name of it. There are no other spellings and no aliases.
pub(super) fn unicode(name: &[u8]) -> Option<Class> {
    if name == b"Any" {
        return Some(Class::ALL);
    }
    let name = std::str::from_utf8(name).ok()?;
    let property = match () {
        () if CATEGORIES.split(' ').any(|known| known == name) => "gc",
        // Other scripts have no characters below U+0100.
        () if matches!(name, "Common" | "Latin") => "sc",
        () => return SCRIPTS.split(' ').any(|known| known == name).then(Class::default),
    };
    Some(latin1(&format!("\\p{{{property}={name}}}")))
}

/// The characters below U+0100 of a class that is written for `regex_syntax`.
fn latin1(text: &str) -> Class {
    let mut out = Class::default();
    if let Ok(hir) = regex_syntax::parse(text)
        && let regex_syntax::hir::HirKind::Class(regex_syntax::hir::Class::Unicode(class)) = hir.kind()
    {
        for range in class.ranges() {
            if let Ok(low) = u8::try_from(range.start()) {
                out.add(low, u8::try_from(range.end()).unwrap_or(u8::MAX));
            }
        }
    }
    out
}

/// Whether a byte can be part of the name of a group.
pub(super) fn in_name(byte: u8) -> bool {
    static NAMES: LazyLock<Class> = LazyLock::new(|| latin1("[\\p{L}\\p{Nl}\\p{Mn}\\p{Mc}\\p{Nd}\\p{Pc}]"));
    NAMES.contains(byte)
}

const CATEGORIES: &str = "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z \
    Zl Zp Zs";

const SCRIPTS: &str = "Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali Bhaiksuki \
    Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian Chakma Cham Cherokee \
    Chorasmian Common Coptic Cuneiform Cypriot Cypro_Minoan Cyrillic Deseret Devanagari Dives_Akuru Dogra Duployan \
    Egyptian_Hieroglyphs Elbasan Elymaic Ethiopic Georgian Glagolitic Gothic Grantha Greek Gujarati Gunjala_Gondi \
    Gurmukhi Han Hangul Hanifi_Rohingya Hanunoo Hatran Hebrew Hiragana Imperial_Aramaic Inherited \
    Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kawi Kayah_Li Kharoshthi \
    Khitan_Small_Script Khmer Khojki Khudawadi Lao Latin Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian \
    Mahajani Makasar Malayalam Mandaic Manichaean Marchen Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui \
    Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani Myanmar Nabataean Nag_Mundari \
    Nandinagari New_Tai_Lue Newa Nko Nushu Nyiakeng_Puachue_Hmong Ogham Ol_Chiki Old_Hungarian Old_Italic \
    Old_North_Arabian Old_Permic Old_Persian Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Oriya Osage \
    Osmanya Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan \
    Saurashtra Sharada Shavian Siddham SignWriting Sinhala Sogdian Sora_Sompeng Soyombo Sundanese Syloti_Nagri \
    Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil Tangsa Tangut Telugu Thaana Thai Tibetan Tifinagh \
    Tirhuta Toto Ugaritic Vai Vithkuqi Wancho Warang_Citi Yezidi Zanabazar_Square";
