//! Values of JSON as parts of a configuration. A mistake names its key, and how to write the value.

use serde::Deserialize;
use serde_json::Value;

/// How serde names the type of a value, and how to write such a value.
const REMEDIES: [(&str, &str); 7] = [
    ("expected a boolean", "write true or false"),
    ("expected a string", "write it in quotation marks"),
    ("expected a sequence", "write a list, as in [\"A\", \"B\"]"),
    ("expected u16", "write a number from 0 to 65535"),
    ("expected u32", "write a number from 0 to 4294967295"),
    ("expected u64", "write a number of 0 or more"),
    ("expected usize", "write a number of 0 or more"),
];

/// Reads a value.
///
/// # Errors
///
/// The first mistake. Within a table it begins with the key.
pub(super) fn read<'v, T: Deserialize<'v>>(value: &'v Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let what = error.into_inner().to_string();
        let remedy = REMEDIES.iter().find(|(expected, _)| what.ends_with(expected));
        let remedy = remedy.map(|(_, remedy)| format!("; {remedy}")).unwrap_or_default();
        // Of an unknown key the path is a dot, or the key itself, which the error names.
        if path == "." || what.contains(&format!("`{path}`")) {
            what + &remedy
        } else {
            format!("{path}: {what}{remedy}")
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{LunEntry, Portal, Target};
    use super::*;

    #[test]
    fn a_mistake_names_its_key_and_the_remedy() {
        fn why<T: for<'v> Deserialize<'v>>(value: &Value) -> String {
            read::<T>(value).err().unwrap()
        }
        let lun = |key: &str, value: Value| why::<LunEntry>(&json!({ "number": 0, "disk": "mem:1M", key: value }));
        let target = |key: &str, value: Value| why::<Target>(&json!({ "name": "iqn.a", key: value }));
        for (error, expected) in [
            (
                lun("read_only", json!("yes")),
                "read_only: invalid type: string \"yes\", expected a boolean; write true or false",
            ),
            (
                lun("serial", json!(12345)),
                "serial: invalid type: integer `12345`, expected a string; write it in quotation marks",
            ),
            (
                target("allow", json!("iqn.h")),
                "allow: invalid type: string \"iqn.h\", expected a sequence; write a list",
            ),
            (target("redirect", json!({ "to": [7] })), "redirect.to[0]: invalid type: integer `7`, expected a string"),
            (
                why::<Portal>(&json!({ "address": "127.0.0.1", "group": 70000 })),
                "group: invalid value: integer `70000`, expected u16; write a number from 0 to 65535",
            ),
            (lun("colour", json!(1)), "unknown field `colour`"),
        ] {
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
