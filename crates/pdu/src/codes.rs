//! A macro for the protocol's one-byte number spaces.

/// Declares a newtype over `u8` from a table of `CONSTANT = value, "words"` rows.
///
/// `Debug` prints the constant's name and `Display` its words; a value without a row prints as
/// `Name(0x2b)` in both, and is kept as it came.
macro_rules! codes {
    (
        $(#[$meta:meta])*
        $name:ident {
            $($(#[$doc:meta])* $code:ident = $value:literal, $words:literal;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u8);

        impl $name {
            $($(#[$doc])* #[doc = concat!("`", stringify!($value), "`: ", $words, ".")]
            pub const $code: Self = Self($value);)*
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.0 {
                    $($value => f.write_str(stringify!($code)),)*
                    other => write!(f, concat!(stringify!($name), "({:#04x})"), other),
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.0 {
                    $($value => f.pad($words),)*
                    other => write!(f, concat!(stringify!($name), "({:#04x})"), other),
                }
            }
        }
    };
}

pub(crate) use codes;
