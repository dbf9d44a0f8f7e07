//! Targets as far as they can be read: a logical unit or a host that cannot takes no other away.

use lunette_api::{Document, Subject};
use serde_json::Value;

use super::document::read;
use super::hosts::HostEntry;
use super::left_out::LeftOut;
use super::{LunEntry, Target};

/// The target of a document, and its parts that cannot be read. These are left out, or shut.
///
/// # Errors
///
/// The first mistake outside of such parts, or in one without a number or a name.
pub(super) fn target(document: &Document) -> Result<(Target, Vec<LeftOut>), String> {
    let mut rest = document.clone();
    let (luns, hosts) = (take(&mut rest, "lun"), take(&mut rest, "host"));
    let mut target: Target = read(&Value::Object(rest))?;
    let mut left_out = Vec::new();
    for value in &luns {
        match (read::<LunEntry>(value), value.get("number").and_then(Value::as_u64).map(u16::try_from)) {
            (Ok(lun), _) => target.luns.push(lun),
            (Err(why), Some(Ok(number))) => {
                target.absent.insert(number);
                left_out.push(LeftOut::new(Subject::lun(&*target.name, number), &why));
            }
            (Err(why), _) => return Err(why),
        }
    }
    for number in target.absent.clone() {
        target.leave_out(number);
    }
    for value in &hosts {
        match (read::<HostEntry>(value), HostEntry::shut_of(value)) {
            (Ok(host), _) => target.hosts.push(host),
            (Err(why), Some(host)) => {
                left_out.push(LeftOut::new(Subject::host(&*target.name, &*host.name), &why));
                target.hosts.push(host);
            }
            (Err(why), None) => return Err(why),
        }
    }
    Ok((target, left_out))
}

/// Takes a list out of a document. Something else stays: to read the rest tells what is wrong with it.
fn take(document: &mut Document, key: &str) -> Vec<Value> {
    match document.get_mut(key) {
        Some(Value::Array(all)) => std::mem::take(all),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The numbers of the logical units, the hosts, and what is left out.
    type Parts = (Vec<u16>, Vec<HostEntry>, Vec<String>);

    fn read_parts(luns: &Value, hosts: &Value) -> Result<Parts, String> {
        let Value::Object(document) = json!({ "name": "iqn.a", "lun": luns, "host": hosts }) else { unreachable!() };
        let (target, left_out) = target(&document)?;
        let left_out = left_out.iter().map(|one| one.subject.to_string()).collect();
        Ok((target.luns.iter().map(|lun| lun.number).collect(), target.hosts, left_out))
    }

    #[test]
    fn a_unit_that_cannot_be_read_goes_alone_and_takes_its_number_along() {
        let good = json!({ "number": 1, "disk": "mem:1M" });
        for bad in [
            json!({ "number": 2, "disk": "mem:1Q" }),
            json!({ "number": 2, "disk": "mem:1M", "blok_size": 512 }),
            json!({ "number": 2 }),
        ] {
            let twin = json!({ "number": 2, "disk": "mem:2M" });
            for luns in [json!([good, bad]), json!([bad, good]), json!([twin, bad, good]), json!([bad, twin, good])] {
                let (numbers, _, left_out) = read_parts(&luns, &json!([])).unwrap();
                assert_eq!((numbers, left_out), (vec![1], vec!["target iqn.a: LUN 2".into()]), "{bad}");
            }
        }
        for bad in [json!({ "disk": "mem:1M" }), json!({ "number": "one", "disk": "mem:1M" }), json!(7)] {
            assert!(read_parts(&json!([good, bad]), &json!([])).is_err(), "{bad}");
        }
        assert!(read_parts(&json!({ "number": 1 }), &json!([])).is_err());
    }

    #[test]
    fn a_host_that_cannot_be_read_is_shut_to_its_initiators_or_to_all() {
        for (bad, is_for_all) in [
            (json!({ "name": "h", "initiators": ["iqn.h"], "reed_only": true }), false),
            (json!({ "name": "h", "initiators": ["iqn.h"], "chap": [{ "user": "u" }] }), false),
            (json!({ "name": "h", "initiators": "iqn.h" }), true),
            (json!({ "name": "h", "initiators": ["iqn.h"], "networks": ["192.0.2.7/24"] }), true),
            (json!({ "name": "h", "initiaters": ["iqn.h"] }), true),
        ] {
            let (_, hosts, left_out) = read_parts(&json!([]), &json!([bad, { "name": "rest" }])).unwrap();
            assert_eq!(left_out, ["target iqn.a: host h"], "{bad}");
            assert_eq!((hosts[0].is_shut, hosts[1].is_shut), (true, false), "{bad}");
            let expected = if is_for_all { None } else { Some(vec!["iqn.h".to_owned()]) };
            assert_eq!((&hosts[0].initiators, &hosts[0].networks), (&expected, &None), "{bad}");
        }
        assert!(read_parts(&json!([]), &json!([{ "initiators": [] }])).is_err());
    }
}
