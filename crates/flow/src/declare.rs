//! Macros that declare relations, one line each.

/// Declares input relations: `pub NAME: KEY => ROW = "label";`.
///
/// The label names the relation in errors, in [`Why`](crate::Why) and in [`Stats`](crate::Stats).
#[macro_export]
macro_rules! input {
    ($($(#[$doc:meta])* $vis:vis $name:ident: $key:ty => $row:ty = $label:literal;)*) => {$(
        $(#[$doc])*
        $vis struct $name;
        impl $crate::Relation for $name {
            const NAME: &'static str = $label;
            type Key = $key;
            type Row = $row;
        }
        impl $crate::Input for $name {}
    )*};
}

/// Declares derived relations: `pub NAME: KEY => ROW = "label", derive_function;`.
///
/// The function has the signature of [`Rule::derive`](crate::Rule::derive).
#[macro_export]
macro_rules! rule {
    ($($(#[$doc:meta])* $vis:vis $name:ident: $key:ty => $row:ty = $label:literal, $derive:path;)*) => {$(
        $(#[$doc])*
        $vis struct $name;
        impl $crate::Relation for $name {
            const NAME: &'static str = $label;
            type Key = $key;
            type Row = $row;
        }
        impl $crate::Rule for $name {
            fn derive(cx: &$crate::Reads<'_>, key: &$key) -> Option<$row> {
                $derive(cx, key)
            }
        }
    )*};
}

/// Declares indexes: `pub NAME: KEY => members of RELATION = "label", keys_function;`.
///
/// The function has the signature of [`Index::keys`](crate::Index::keys).
#[macro_export]
macro_rules! index {
    ($($(#[$doc:meta])* $vis:vis $name:ident: $key:ty => members of $of:ty = $label:literal, $keys:path;)*) => {$(
        $(#[$doc])*
        $vis struct $name;
        impl $crate::Relation for $name {
            const NAME: &'static str = $label;
            type Key = $key;
            type Row = $crate::Members<<$of as $crate::Relation>::Key>;
        }
        impl $crate::Index for $name {
            type Of = $of;
            fn keys(key: &<$of as $crate::Relation>::Key, row: &<$of as $crate::Relation>::Row) -> Vec<$key> {
                $keys(key, row)
            }
        }
    )*};
}
