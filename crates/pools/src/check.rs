//! The checks of what a caller asks for, which are the same for both engines.

use std::collections::BTreeSet;

use lunette_store::check_asked_len;

use crate::error::PoolError;
use crate::limits::{BLOCK_BYTES, MAX_GROUP, MAX_LABEL_BYTES, MAX_LABELS, MAX_SERIAL_BYTES, MAX_VOLUME_BYTES};
use crate::pool::{Labels, NewVolume, SnapshotOf};

/// Checks a volume of zeroes that is wanted.
pub(crate) fn new_volume(new: &NewVolume) -> Result<(), PoolError> {
    len(new.len_bytes)?;
    serial(&new.serial)?;
    labels(&new.labels)
}

/// Checks a clone that is wanted.
pub(crate) fn clone(new: &NewVolume) -> Result<(), PoolError> {
    if new.is_full {
        let why =
            "a clone shares blocks with its origin, so it cannot get all of its space at once; flatten it instead";
        return refuse(why);
    }
    serial(&new.serial)?;
    labels(&new.labels)
}

/// Checks the length of a volume.
pub(crate) fn len(len_bytes: u64) -> Result<(), PoolError> {
    if len_bytes > MAX_VOLUME_BYTES {
        return refuse(format!("a volume has at most {MAX_VOLUME_BYTES} bytes, and {len_bytes} are more"));
    }
    check_asked_len(len_bytes, BLOCK_BYTES).map_err(|error| PoolError::Value(error.to_string()))
}

/// Checks the labels of a volume or snapshot.
pub(crate) fn labels(labels: &Labels) -> Result<(), PoolError> {
    if labels.len() > MAX_LABELS {
        return refuse(format!("{} labels are too many; use at most {MAX_LABELS}", labels.len()));
    }
    for (key, value) in labels {
        if key.is_empty() || key.len() > MAX_LABEL_BYTES || value.len() > MAX_LABEL_BYTES {
            let shown: String = key.chars().take(MAX_LABEL_BYTES).collect();
            return refuse(format!(
                "label {shown:?}: a key has 1 to {MAX_LABEL_BYTES} bytes, and a value at most {MAX_LABEL_BYTES}"
            ));
        }
        if key.chars().chain(value.chars()).any(char::is_control) {
            return refuse(format!("label {key:?}: keys and values are text without control characters"));
        }
    }
    Ok(())
}

/// Checks the snapshots that are to be taken together.
pub(crate) fn group(group: &[SnapshotOf]) -> Result<(), PoolError> {
    if !(1..=MAX_GROUP).contains(&group.len()) {
        return refuse(format!("a snapshot is of 1 to {MAX_GROUP} volumes, and not of {}", group.len()));
    }
    let mut seen = BTreeSet::new();
    match group.iter().find(|of| !seen.insert(&of.volume)) {
        Some(twice) => refuse(format!("volume {} stands twice among the volumes of the snapshot", twice.volume)),
        None => Ok(()),
    }
}

/// Checks a serial number.
pub(crate) fn serial(serial: &str) -> Result<(), PoolError> {
    let is_printable = serial.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if is_printable && (1..=MAX_SERIAL_BYTES).contains(&serial.len()) {
        return Ok(());
    }
    refuse(format!("a serial number has 1 to {MAX_SERIAL_BYTES} bytes of printable ASCII"))
}

fn refuse(why: impl Into<String>) -> Result<(), PoolError> {
    Err(PoolError::Value(why.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> NewVolume {
        let labels = [("tier".to_owned(), String::new())].into();
        NewVolume { len_bytes: 512, is_full: false, is_filling: false, serial: "s 1".into(), labels }
    }

    fn is_refused(checked: Result<(), PoolError>, word: &str) {
        let said = checked.unwrap_err().to_string();
        assert!(said.contains(word) && said.len() < 600, "{word}: {said}");
    }

    #[test]
    fn what_fits_is_taken() {
        new_volume(&wanted()).unwrap();
        clone(&NewVolume { len_bytes: 0, ..wanted() }).unwrap();
        len(MAX_VOLUME_BYTES).unwrap();
    }

    #[test]
    fn lengths_are_whole_blocks_up_to_a_limit() {
        for (bytes, word) in [(0, "use 512"), (513, "use 512 or 1024"), (MAX_VOLUME_BYTES + 512, "at most")] {
            is_refused(new_volume(&NewVolume { len_bytes: bytes, ..wanted() }), word);
        }
    }

    #[test]
    fn serials_and_labels_are_short_texts() {
        for serial in ["", "ä", "a\n", &"x".repeat(MAX_SERIAL_BYTES + 1)] {
            is_refused(new_volume(&NewVolume { serial: serial.into(), ..wanted() }), "serial");
        }
        let long = "x".repeat(MAX_LABEL_BYTES + 1);
        for (key, value) in [("", "v"), (&*long, "v"), ("k", &*long), ("k", "a\nb"), ("\0", "v")] {
            is_refused(labels(&[(key.to_owned(), value.to_owned())].into()), "label");
        }
        let many: Labels = (0..=MAX_LABELS).map(|number| (number.to_string(), String::new())).collect();
        is_refused(labels(&many), "too many");
    }

    #[test]
    fn a_clone_gets_no_space_of_its_own() {
        is_refused(clone(&NewVolume { is_full: true, ..wanted() }), "flatten");
    }

    #[test]
    fn a_group_has_each_volume_once() {
        let of = |volume: &str| SnapshotOf { volume: volume.parse().unwrap(), snapshot: "s".parse().unwrap() };
        group(&[of("a"), of("b")]).unwrap();
        is_refused(group(&[of("a"), of("b"), of("a")]), "volume a stands twice");
        is_refused(group(&[]), "not of 0");
        let many: Vec<SnapshotOf> = (0..=MAX_GROUP).map(|number| of(&number.to_string())).collect();
        is_refused(group(&many), "1 to 256");
    }
}
