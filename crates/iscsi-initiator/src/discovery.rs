//! SendTargets (RFC 7143 appendix C).

use crate::{Error, Initiator, Options, Portal, Session};

/// A target that a discovery session found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TargetRecord {
    /// The iSCSI name of the target (TargetName).
    pub name: String,
    /// The TargetAddress values as sent, `host[:port],portal-group-tag`. Empty if the target is reached through the
    /// portal that was asked.
    pub addresses: Vec<String>,
}

impl TargetRecord {
    /// A target without addresses: it is reached through the portal that was asked.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), addresses: Vec::new() }
    }
}

/// Asks `portal` for all targets that this initiator may see.
///
/// # Errors
///
/// The errors of [`Session::connect`].
pub async fn discover(initiator: &Initiator, portal: &Portal, options: Options) -> Result<Vec<TargetRecord>, Error> {
    let session = Session::open(initiator, portal, None, options).await?;
    let pairs = session.text(vec![("SendTargets".into(), "All".into())]).await?;
    session.close().await?;
    Ok(records(pairs))
}

/// Splits the keys into records: each TargetName begins one, and the addresses after it belong to it.
fn records(pairs: Vec<(String, String)>) -> Vec<TargetRecord> {
    let mut records: Vec<TargetRecord> = Vec::new();
    for (key, value) in pairs {
        match (key.as_str(), records.last_mut()) {
            ("TargetName", _) => records.push(TargetRecord::new(value)),
            ("TargetAddress", Some(record)) => record.addresses.push(value),
            _ => {}
        }
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_belong_to_the_name_before_them() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let found = records(vec![
            pair("TargetAddress", "nobody's:3260,1"),
            pair("TargetName", "iqn.a"),
            pair("TargetAddress", "192.0.2.1:3260,1"),
            pair("TargetAddress", "[2001:db8::1]:3260,1"),
            pair("X-com.example.colour", "blue"),
            pair("TargetName", "iqn.b"),
        ]);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].addresses, ["192.0.2.1:3260,1", "[2001:db8::1]:3260,1"]);
        assert_eq!(found[1], TargetRecord::new("iqn.b"));
    }
}
