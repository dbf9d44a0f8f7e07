//! Backstores and controls: which there are, and what they mean here.

use serde_json::{Map, Value, json};

use crate::document::Controls;
use crate::refusal::Refusal;

/// The name of the one backstore, which is librbd in the process of the target.
pub(crate) const BACKSTORE: &str = "user:rbd";

/// The fewest gateways of a target.
const MINIMUM_GATEWAYS: u32 = 1;

/// The version of the calls: targets are reconfigured without being made again.
const API_VERSION: u32 = 2;

/// The bit of librbd for the feature `exclusive-lock`, by which gateways keep each other from writing.
const EXCLUSIVE_LOCK: u64 = 1 << 2;

/// The longest segment or burst (RFC 7143 section 13.12).
const MAX_SIZE: u64 = (1 << 24) - 1;

/// The meaning of a control.
enum Kind {
    /// A size of `target.session`, which is written as a text there.
    Size { default: u64 },
    /// A number.
    Number { default: u64, most: u64 },
    /// A switch.
    Switch { default: bool },
}

use Kind::{Number, Size, Switch};

/// The controls of a target, which have the names of the keys of `target.session`. Those of ceph-iscsi that are not
/// here tune the kernel's target.
const TARGET: [(&str, Kind); 6] = [
    ("first_burst_length", Size { default: 256 << 10 }),
    ("immediate_data", Switch { default: true }),
    ("initial_r2t", Switch { default: false }),
    ("max_burst_length", Size { default: 1 << 20 }),
    ("max_outstanding_r2t", Number { default: 8, most: 65_535 }),
    ("max_recv_data_segment_length", Size { default: 256 << 10 }),
];

/// The shortest size.
const MIN_SIZE: u64 = 512;

impl Kind {
    fn default(&self) -> Value {
        match *self {
            Size { default } | Number { default, .. } => default.into(),
            Switch { default } => default.into(),
        }
    }

    fn limits(&self) -> Value {
        match *self {
            Size { .. } => json!({ "type": "int", "min": MIN_SIZE, "max": MAX_SIZE }),
            Number { most, .. } => json!({ "type": "int", "min": 1, "max": most }),
            Switch { .. } => json!({ "type": "bool" }),
        }
    }

    /// A value of a client in its one form, if it is one.
    fn read(&self, value: &Value) -> Option<Value> {
        let number = || value.as_u64().or_else(|| value.as_str()?.parse().ok());
        match *self {
            Size { .. } => number().filter(|size| (MIN_SIZE..=MAX_SIZE).contains(size)).map(Value::from),
            Number { most, .. } => number().filter(|number| (1..=most).contains(number)).map(Value::from),
            Switch { .. } => {
                let text = value.as_str().map(str::to_ascii_lowercase);
                let said = match text.as_deref() {
                    Some("yes" | "true" | "1") => Some(true),
                    Some("no" | "false" | "0") => Some(false),
                    _ => None,
                };
                value.as_bool().or(said).map(Value::from)
            }
        }
    }
}

/// The answer to `GET settings`.
pub(crate) fn shown() -> Value {
    let of = |value: fn(&Kind) -> Value| -> Value {
        TARGET.iter().map(|(name, kind)| ((*name).to_owned(), value(kind))).collect::<Map<_, _>>().into()
    };
    json!({
        "api_version": API_VERSION,
        "backstores": [BACKSTORE],
        "default_backstore": BACKSTORE,
        "config": { "minimum_gateways": MINIMUM_GATEWAYS },
        "target_default_controls": of(Kind::default),
        "target_controls_limits": of(Kind::limits),
        "disk_default_controls": { BACKSTORE: {} },
        "disk_controls_limits": { BACKSTORE: {} },
        "required_rbd_features": { BACKSTORE: EXCLUSIVE_LOCK },
        "unsupported_rbd_features": { BACKSTORE: 0 },
    })
}

/// Changes the controls of a target by those of a form. A default is not kept.
pub(crate) fn control_target(controls: &mut Controls, text: Option<&str>) -> Result<(), Refusal> {
    for (name, value) in parse(text)? {
        let found = TARGET.iter().find(|(known, _)| *known == name);
        let (_, kind) = found.ok_or_else(|| unexpected(&format!("there is no {name} here")))?;
        let value = kind.read(&value).ok_or_else(|| unexpected(&format!("{name} cannot be {value}")))?;
        if value == kind.default() {
            controls.remove(&name);
        } else {
            controls.insert(name, value);
        }
    }
    Ok(())
}

/// Refuses all controls of a disk: there are none.
pub(crate) fn control_disk(text: Option<&str>) -> Result<(), Refusal> {
    match parse(text)?.keys().next() {
        Some(name) => Err(unexpected(&format!("there is no {name} here"))),
        None => Ok(()),
    }
}

/// The table `session` of a target with these controls.
pub(crate) fn session(controls: &Controls) -> Map<String, Value> {
    let written = |(name, value): (&String, &Value)| {
        let is_size = TARGET.iter().any(|(known, kind)| known == name && matches!(kind, Size { .. }));
        (name.clone(), if is_size { value.to_string().into() } else { value.clone() })
    };
    controls.iter().map(written).collect()
}

fn parse(text: Option<&str>) -> Result<Controls, Refusal> {
    let Some(text) = text else { return Ok(Controls::new()) };
    serde_json::from_str(text).map_err(|error| unexpected(&error.to_string()))
}

fn unexpected(why: &str) -> Refusal {
    Refusal::failed(format!("Unexpected or invalid controls - {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_become_keys_of_the_session() {
        let mut controls = Controls::new();
        let text =
            r#"{"max_burst_length": 524288, "initial_r2t": "Yes", "max_outstanding_r2t": "4", "immediate_data": true}"#;
        control_target(&mut controls, Some(text)).unwrap();
        assert_eq!(
            json!(controls),
            json!({"max_burst_length": 524_288, "initial_r2t": true, "max_outstanding_r2t": 4})
        );
        let expected = json!({"max_burst_length": "524288", "initial_r2t": true, "max_outstanding_r2t": 4});
        assert_eq!(json!(session(&controls)), expected);
        control_target(&mut controls, Some(r#"{"max_burst_length": 1048576, "initial_r2t": false}"#)).unwrap();
        assert_eq!(json!(controls), json!({"max_outstanding_r2t": 4}), "defaults are not kept");
    }

    #[test]
    fn controls_that_mean_nothing_here_are_refused() {
        for wrong in [r#"{"cmdsn_depth": 128}"#, r#"{"max_burst_length": 511}"#, r#"{"initial_r2t": 2}"#, "[]", "{"] {
            let refusal = control_target(&mut Controls::new(), Some(wrong)).unwrap_err();
            assert!(refusal.status == 500 && refusal.message.starts_with("Unexpected or invalid controls"), "{wrong}");
        }
        assert!(control_disk(Some(r#"{"max_data_area_mb": 8}"#)).is_err() && control_disk(Some("{}")).is_ok());
    }

    #[test]
    fn each_control_has_a_limit_and_a_default_within_it() {
        let shown = shown();
        for (name, kind) in &TARGET {
            assert_eq!(kind.read(&shown["target_default_controls"][name]).unwrap(), kind.default(), "{name}");
            assert!(shown["target_controls_limits"][name]["type"].is_string());
        }
    }
}
