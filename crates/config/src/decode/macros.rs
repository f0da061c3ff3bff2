//! Declarations of messages, enumerations and `oneof`s. Type, decoding, encoding and schema are generated from them.

/// Declares a message: a struct whose fields are named as in the proto file.
///
/// `name: Type` defaults to `Type::default()`; `name: Type = value` defaults to `value`; `as "name"` sets a JSON name
/// that differs from the Rust name. `where [required, max 253]` declares constraints that the type does not express
/// (see `facts!`); `required` must come first. Doc comments become descriptions in the schema. `: Relations` after the
/// name has decoding check the relations between the fields.
macro_rules! message {
    (
        $(#[doc = $doc:literal])*
        pub struct $name:ident $(: $relations:ident)? $(where [$($fact:tt)*])? {
            $(
                $(#[doc = $field_doc:literal])*
                pub $field:ident : $type:ty $(as $json:literal)? $(where [$($field_fact:tt)*])? $(= $default:expr)? ,
            )*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, PartialEq, Debug)]
        pub struct $name { $( $(#[doc = $field_doc])* pub $field: $type, )* }

        impl Default for $name {
            fn default() -> $name {
                $name { $( $field: message!(@default $($default)?), )* }
            }
        }

        impl crate::decode::Decode for $name {
            fn decode(node: &crate::yaml::Node, cx: &mut crate::decode::Decoder) -> Option<$name> {
                // A message without fields modifies neither this variable nor `out`.
                #[allow(unused_mut)]
                let mut fields = crate::decode::Fields::of(node, cx)?;
                let out = $name { $(
                    $field: crate::decode::Field::take(&mut fields, message!(@name $field $($json)?), cx)
                        .unwrap_or_else(|| message!(@default $($default)?)),
                )* };
                fields.finish(cx);
                $( cx.relate(&out as &dyn crate::decode::$relations); )?
                Some(out)
            }

            fn encode(&self) -> serde_json::Value {
                #[allow(unused_mut)]
                let mut out = serde_json::Map::new();
                $( message!(
                    @put self, out, $field, message!(@name $field $($json)?), [$($($field_fact)*)?] $(, $default)?
                ); )*
                serde_json::Value::Object(out)
            }

            fn schema() -> std::sync::Arc<crate::schema::Schema> {
                static SCHEMA: std::sync::LazyLock<std::sync::Arc<crate::schema::Schema>> =
                    std::sync::LazyLock::new(|| {
                        #[allow(unused_mut)]
                        let mut fields = crate::schema::Fields::of_message(stringify!($name));
                        $( <$type as crate::decode::Field>::describe(
                            message!(@name $field $($json)?),
                            &[$($field_doc),*],
                            |_schema| facts!(_schema; $($($field_fact)*)?),
                            &mut fields,
                        ); )*
                        crate::schema::facts::object(
                            &[$($doc),*],
                            fields,
                            |_schema| facts!(_schema; $($($fact)*)?),
                        )
                    });
                SCHEMA.clone()
            }
        }
    };
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $json:literal) => { $json };
    // Required fields are always written: the default can be meaningful, such as the core group.
    (@put $self:ident, $out:ident, $field:ident, $name:expr, [required $($fact:tt)*] $(, $default:expr)?) => {
        crate::decode::Field::put_always(&$self.$field, $name, &mut $out);
    };
    (@put $self:ident, $out:ident, $field:ident, $name:expr, [$($fact:tt)*]) => {
        crate::decode::Field::put(&$self.$field, $name, &mut $out);
    };
    // The default differs from that of the type, so the value is always written.
    (@put $self:ident, $out:ident, $field:ident, $name:expr, [$($fact:tt)*], $default:expr) => {
        crate::decode::Field::put_always(&$self.$field, $name, &mut $out);
    };
}

/// Declares an enumeration. `Name = "NAME" 3` can also be written as a number, as in protobuf; `Name = "Name"` cannot.
macro_rules! enumeration {
    (
        $(#[doc = $doc:literal])*
        pub enum $name:ident { $( $(#[$variant_meta:meta])* $variant:ident = $text:literal $($number:literal)? , )* }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
        pub enum $name { $( $(#[$variant_meta])* $variant, )* }

        impl $name {
            /// The name in JSON.
            pub const fn name(self) -> &'static str {
                match self { $( $name::$variant => $text, )* }
            }
        }

        impl crate::decode::Decode for $name {
            fn decode(node: &crate::yaml::Node, cx: &mut crate::decode::Decoder) -> Option<$name> {
                match node.scalar() {
                    $( Some(crate::yaml::Scalar::Text($text) $(| crate::yaml::Scalar::Int($number))?) => {
                        return Some($name::$variant);
                    } )*
                    _ => {}
                }
                // NONE is a string in YAML, but OFF is a boolean.
                if let crate::yaml::Value::Plain(text) = &node.value {
                    match &**text {
                        $( $text => return Some($name::$variant), )*
                        _ => {}
                    }
                }
                let names: &[&str] = &[$($text),*];
                let message = format!("expected one of {}, found {}", names.join(", "), node.describe());
                let hint = node.text().and_then(|text| crate::decode::nearest(text, names.iter().copied()));
                cx.error(node.at, "bad-value", message, hint.map(|name| format!("did you mean {name}?")));
                None
            }

            fn encode(&self) -> serde_json::Value {
                serde_json::Value::from(self.name())
            }

            fn schema() -> std::sync::Arc<crate::schema::Schema> {
                static SCHEMA: std::sync::LazyLock<std::sync::Arc<crate::schema::Schema>> =
                    std::sync::LazyLock::new(|| crate::schema::facts::names(&[$($doc),*], &[$($text),*]));
                SCHEMA.clone()
            }
        }
    };
}

/// Declares a `oneof`: mutually exclusive fields of the enclosing message. Use `Option<Name>` as the type of a field;
/// the name of that field is not used.
macro_rules! oneof {
    (
        $(#[doc = $doc:literal])*
        pub enum $name:ident {
            $(
                $(#[doc = $variant_doc:literal])*
                $variant:ident($type:ty) = $json:literal $(where [$($fact:tt)*])? ,
            )*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, PartialEq, Debug)]
        pub enum $name { $( $(#[doc = $variant_doc])* $variant($type), )* }

        impl crate::decode::Field for Option<$name> {
            fn take(
                fields: &mut crate::decode::Fields<'_>,
                _: &'static str,
                cx: &mut crate::decode::Decoder,
            ) -> Option<Option<$name>> {
                let mut out: Option<(&'static str, $name)> = None;
                $(
                    let alternative = fields.find($json, cx).and_then(|(name, node)| {
                        let segment = crate::problem::Segment::Field(name.into());
                        cx.within(segment, |cx| {
                            if let Some((first, _)) = &out {
                                let message = format!("only one of {first} and {} may be set", $json);
                                cx.error(node.at, "exclusive-fields", message, None);
                                return None;
                            }
                            <$type as crate::decode::Decode>::decode(node, cx)
                        })
                    });
                    if let Some(value) = alternative {
                        out = Some(($json, $name::$variant(value)));
                    }
                )*
                out.map(|(_, value)| Some(value))
            }

            fn put(&self, _: &'static str, out: &mut serde_json::Map<String, serde_json::Value>) {
                match self {
                    $( Some($name::$variant(value)) => {
                        out.insert($json.to_owned(), crate::decode::Decode::encode(value));
                    } )*
                    None => {}
                }
            }

            fn describe(
                _: &'static str,
                _: &[&str],
                _: fn(&mut crate::schema::Schema) -> bool,
                fields: &mut crate::schema::Fields,
            ) {
                $( crate::schema::facts::field(
                    $json,
                    <$type as crate::decode::Decode>::schema(),
                    &[$($variant_doc),*],
                    |_schema| facts!(_schema; $($($fact)*)?),
                    fields,
                ); )*
                fields.exclusive.push(vec![$($json),*]);
            }
        }
    };
}

/// Declares a message that consists of a single `oneof`. `else Name` is the message without any of its fields.
macro_rules! choice {
    (
        $(#[doc = $doc:literal])*
        pub enum $name:ident $(where [$($choice_fact:tt)*])? {
            $(#[doc = $none_doc:literal])* else $none:ident,
            $(
                $(#[doc = $variant_doc:literal])*
                $variant:ident($type:ty) = $json:literal $(where [$($fact:tt)*])? ,
            )*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, PartialEq, Debug, Default)]
        pub enum $name {
            $(#[doc = $none_doc])* #[default] $none,
            $( $(#[doc = $variant_doc])* $variant($type), )*
        }

        impl crate::decode::Decode for $name {
            fn decode(node: &crate::yaml::Node, cx: &mut crate::decode::Decoder) -> Option<$name> {
                let mut fields = crate::decode::Fields::of(node, cx)?;
                let mut out: Option<(&'static str, $name)> = None;
                $(
                    if let Some(value) = fields.decode::<$type>($json, cx) {
                        match &out {
                            None => out = Some(($json, $name::$variant(value))),
                            Some((first, _)) => {
                                let message = format!("only one of {first} and {} may be set", $json);
                                cx.error(node.at, "exclusive-fields", message, None);
                            }
                        }
                    }
                )*
                fields.finish(cx);
                Some(out.map_or($name::$none, |(_, value)| value))
            }

            fn encode(&self) -> serde_json::Value {
                let mut out = serde_json::Map::new();
                match self {
                    $name::$none => {}
                    $( $name::$variant(value) => {
                        out.insert($json.to_owned(), crate::decode::Decode::encode(value));
                    } )*
                }
                serde_json::Value::Object(out)
            }

            fn schema() -> std::sync::Arc<crate::schema::Schema> {
                static SCHEMA: std::sync::LazyLock<std::sync::Arc<crate::schema::Schema>> =
                    std::sync::LazyLock::new(|| {
                        let mut fields = crate::schema::Fields::of_message(stringify!($name));
                        $( crate::schema::facts::field(
                            $json,
                            <$type as crate::decode::Decode>::schema(),
                            &[$($variant_doc),*],
                            |_schema| facts!(_schema; $($($fact)*)?),
                            &mut fields,
                        ); )*
                        fields.exclusive.push(vec![$($json),*]);
                        crate::schema::facts::object(&[$($doc),*], fields, |_schema| facts!(_schema; $($($choice_fact)*)?))
                    });
                SCHEMA.clone()
            }
        }
    };
}
