//! The texts behind requests: `NAME=VALUE`, with commas between.

use crate::wire::Fault;

/// The words before the parameters of some requests.
const PREFIXES: [&str; 2] = ["targetOps ", "portalOps "];

/// The parameters of a request that stand alone: a name and its value, which may have commas.
pub(crate) fn one(text: &str) -> Result<(&str, &str), Fault> {
    text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or(Fault::Invalid)
}

/// A user and its password. The password may have commas.
pub(crate) fn account(text: &str) -> Result<(&str, &str), Fault> {
    let user = text.strip_prefix("user=").ok_or(Fault::Invalid)?;
    user.split_once(",password=").ok_or(Fault::Invalid)
}

/// All parameters of a list. A piece without `=` belongs to the value before: a path may have commas. Behind other
/// values an empty piece says nothing.
pub(crate) fn list(text: &str) -> Result<Vec<(&str, String)>, Fault> {
    let text = PREFIXES.iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or(text);
    let mut all: Vec<(&str, String)> = Vec::new();
    for piece in text.strip_suffix(',').unwrap_or(text).split(',') {
        match (piece.split_once('='), all.last_mut()) {
            (Some((name, value)), _) => all.push((name, value.to_owned())),
            (None, last) if piece.is_empty() && last.as_ref().is_none_or(|(name, _)| *name != "path") => {}
            (None, Some((_, value))) => {
                value.push(',');
                value.push_str(piece);
            }
            (None, None) => return Err(Fault::Invalid),
        }
    }
    Ok(all)
}

/// A parameter that is on or off.
pub(crate) fn flag(value: &str) -> Result<bool, Fault> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(Fault::Invalid),
    }
}

/// The text of the bytes behind a request, which end with a zero.
pub(crate) fn text(bytes: &[u8]) -> Result<&str, Fault> {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    str::from_utf8(bytes).map_err(|_| Fault::Invalid)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_are_read_as_tgtadm_writes_them() {
        let read =
            |text| list(text).unwrap().into_iter().map(|(name, value)| format!("{name}:{value}")).collect::<Vec<_>>();
        assert_eq!(read("path=/a,bstype=aio,bsopts=x=y"), ["path:/a", "bstype:aio", "bsopts:x=y"]);
        assert_eq!(read("targetOps vendor_id=A,product_id=B,"), ["vendor_id:A", "product_id:B"]);
        assert_eq!(read("portalOps portal=192.0.2.1:3260,"), ["portal:192.0.2.1:3260"]);
        assert_eq!(read("path=/a,,b"), ["path:/a,,b"]);
        // Pacemaker's agent writes it so.
        assert_eq!(read("vendor_id=A,,scsi_sn=s"), ["vendor_id:A", "scsi_sn:s"]);
        assert!(read("").is_empty());
        assert_eq!(list("path"), Err(Fault::Invalid));
    }

    #[test]
    fn passwords_may_have_any_characters() {
        assert_eq!(account("user=al,password=p,w=x"), Ok(("al", "p,w=x")));
        assert_eq!(account("user=al"), Err(Fault::Invalid));
        assert_eq!(one("initiator-name=iqn.a"), Ok(("initiator-name", "iqn.a")));
        assert_eq!(text(b"state=ready\0rest"), Ok("state=ready"));
    }

    proptest! {
        #[test]
        fn no_text_panics(bytes: Vec<u8>) {
            if let Ok(text) = text(&bytes) {
                let _ = (one(text), account(text), list(text));
            }
        }
    }
}
