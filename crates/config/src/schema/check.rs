//! Checks of values that the control plane makes in addition to a schema, as Istio's webhook does. CRDs do not contain
//! them.

use crate::form::Form;
use crate::problem::Severity;

/// A check. A field is set if it is present and neither empty nor zero.
#[derive(Clone, Debug)]
pub(crate) enum Check {
    /// The field must be set.
    Needed,
    /// The field should be set: code and message of the warning.
    Wanted(&'static str, &'static str),
    /// The field must or should not be set: severity, code and message.
    Unwanted(Severity, &'static str, &'static str),
    /// The text has a format.
    Is(Form),
    /// The keys of the map have a format.
    Keys(Form),
    /// The minimum of a number.
    From(f64),
    /// The maximum of a number.
    To(f64),
    /// The allowed texts or numbers.
    Among(&'static [&'static str]),
    /// The items of the list differ in the value at this path.
    Unique(&'static str),
    /// At most one of these fields is set.
    Exclusive(&'static [&'static str]),
    /// At least one of these fields is set.
    Any(&'static [&'static str]),
}
