//! The disk and the state behind a path.

use std::fmt;

use lunette_scsi::answers::{self, Designation, Inquiry, PortGroup};
use lunette_scsi::port_groups::{AccessState, Management};
use lunette_scsi::vpd::PageCode;
use lunette_scsi::{Lun, requests};

use super::machine::path::PathFacts;
use crate::disk::query::{Query, ask};
use crate::{Error, Session};

/// The longest VPD page that is asked for.
const PAGE_LEN: u16 = 1024;

/// The longest REPORT TARGET PORT GROUPS data that is asked for.
const GROUPS_LEN: u32 = 4096;

/// The identity of a logical unit: its designators, or its serial number when it has none. Equal identities agree in
/// both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    designations: Vec<Designation>,
    serial: Option<String>,
}

impl Identity {
    fn of(mut designations: Vec<Designation>, inquiry: &Inquiry, serial: Option<String>) -> Option<Self> {
        designations.retain(Designation::is_of_unit);
        designations.sort();
        designations.dedup();
        let serial = serial.filter(|serial| !serial.is_empty());
        let serial = serial.map(|serial| format!("{} {} {serial}", inquiry.vendor, inquiry.product));
        (!designations.is_empty() || serial.is_some()).then_some(Self { designations, serial })
    }

    /// Whether both are one unit. Some units with designators give each port a serial number of its own, so that counts
    /// only without any.
    pub(super) fn is_same_unit(&self, other: &Self) -> bool {
        self.designations == other.designations && (!self.designations.is_empty() || self.serial == other.serial)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (answers::best_name(&self.designations), &self.serial) {
            (Some(name), _) => f.write_str(&name),
            (None, Some(serial)) => f.write_str(serial),
            (None, None) => f.write_str("a disk without a name of a known kind"),
        }
    }
}

/// A path that was checked.
pub(super) struct Checked {
    pub(super) facts: PathFacts,
    pub(super) identity: Identity,
    pub(super) management: Option<Management>,
}

/// Asks for the identity of the unit and for the access state of the port, and takes the unit attentions of the new
/// nexus.
pub(super) async fn check(session: &Session, lun: Lun) -> Result<Checked, Error> {
    let page = |code| Query::send(session, lun, requests::inquiry(Some(code), PAGE_LEN), PAGE_LEN.into());
    let inquiry = Query::send(session, lun, requests::inquiry(None, Inquiry::LEN), Inquiry::LEN.into())?;
    let (identification, serial) = (page(PageCode(0x83))?, page(PageCode(0x80))?);
    let ready = Query::send(session, lun, requests::test_unit_ready(), 0)?;
    let inquiry = inquiry.answer().await?;
    let inquiry = Inquiry::parse(&inquiry)
        .ok_or(Error::BadAnswer { command: "INQUIRY", what: "shorter than 36 bytes".into() })?;
    let identification = optional(identification.answer().await)?;
    let serial = optional(serial.answer().await)?;
    // A port in standby state is not ready, and that is no fault.
    optional(ready.answer().await)?;
    let designations = identification.as_deref().and_then(answers::designations).unwrap_or_default();
    let port_group = designations.iter().find_map(Designation::port_group);
    let serial = serial.as_deref().and_then(answers::serial_number);
    let identity = Identity::of(designations, &inquiry, serial).ok_or_else(|| Error::NotADisk {
        lun: lun.to_string(),
        what: "has neither designators nor a serial number, so its paths cannot be told from those of other disks; use one path".into(),
    })?;
    let management = inquiry.access_management;
    let groups = if management.is_some() { states(session, lun).await? } else { None };
    let group = groups.iter().flatten().find(|group| Some(group.group) == port_group);
    let access = group.map_or(AccessState::ActiveOptimized, |group| group.state);
    let facts = PathFacts { portal_group: session.target_portal_group(), port_group, access };
    Ok(Checked { facts, identity, management })
}

/// The access states of all target port groups; `None` when the unit does not tell.
pub(super) async fn states(session: &Session, lun: Lun) -> Result<Option<Vec<PortGroup>>, Error> {
    let cdb = requests::report_target_port_groups(GROUPS_LEN);
    let data = optional(ask(session, lun, cdb, GROUPS_LEN as usize).await)?;
    Ok(data.as_deref().and_then(answers::port_groups))
}

/// The answer to what a unit need not know. One that does not answer at all is an error.
pub(super) fn optional(answer: Result<Vec<u8>, Error>) -> Result<Option<Vec<u8>>, Error> {
    match answer {
        Ok(data) => Ok(Some(data)),
        Err(error) if error.is_an_answer() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn designation(association: u8, kind: u8, bytes: &[u8]) -> Designation {
        Designation { association, kind, code_set: 1, bytes: bytes.into() }
    }

    fn identity(designations: &[Designation], serial: Option<&str>) -> Option<Identity> {
        let mut inquiry = Inquiry::parse(&[0; 36]).unwrap();
        (inquiry.vendor, inquiry.product) = ("V".into(), "P".into());
        Identity::of(designations.to_vec(), &inquiry, serial.map(Into::into))
    }

    #[test]
    fn a_unit_is_the_same_when_all_of_its_designators_are() {
        let (naa, eui) = (designation(0, 3, &[0x30; 8]), designation(0, 2, &[2; 8]));
        let (port, other) = (designation(1, 5, &[0, 0, 0, 1]), designation(1, 5, &[0, 0, 0, 2]));
        let one = identity(&[naa.clone(), eui.clone(), port], Some("s")).unwrap();
        let by_other_port = identity(&[other, eui.clone(), naa.clone()], Some("t")).unwrap();
        assert!(one.is_same_unit(&by_other_port), "ports may differ");
        assert_ne!(one, by_other_port, "it is no proof that the nexus is the same");
        assert!(!one.is_same_unit(&identity(&[naa], Some("s")).unwrap()));
        assert_eq!(one.to_string(), "naa.3030303030303030");
    }

    #[test]
    fn a_unit_without_designators_is_known_by_its_serial_number_or_not_at_all() {
        let one = identity(&[], Some("s")).unwrap();
        assert_eq!((one.to_string().as_str(), identity(&[], Some("t")) == Some(one.clone())), ("V P s", false));
        assert_eq!(identity(&[designation(1, 4, &[0, 0, 0, 1])], None), None);
        assert_eq!(identity(&[], Some("")), None);
    }
}
