//! The VPD pages that describe the device server and its ports (SPC-5 7.8).

use super::{Designator, PageCode, page};

/// Extended INQUIRY Data (SPC-5 7.8.7), for a unit without protection information.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtendedInquiry {
    /// `V_SUP`: the unit has a volatile cache.
    pub volatile_cache: bool,
    /// MAXIMUM SUPPORTED SENSE DATA LENGTH.
    pub max_sense_len: u8,
}

impl ExtendedInquiry {
    const BODY_LEN: usize = 60;
    /// HEADSUP, ORDSUP and SIMPSUP: all three task attributes. `GROUP_SUP` is not set, because grouping functions are
    /// not supported.
    const HEADSUP_ORDSUP_SIMPSUP: u8 = 0x07;
    const V_SUP: u8 = 0x01;
    /// LUICLR: REPORT LUNS clears the unit attention on every logical unit of its nexus.
    const LUICLR: u8 = 0x01;

    /// Encodes the Extended INQUIRY Data page.
    pub fn emit(&self) -> Vec<u8> {
        let mut body = [0; Self::BODY_LEN];
        body[1] = Self::HEADSUP_ORDSUP_SIMPSUP;
        body[2] = if self.volatile_cache { Self::V_SUP } else { 0 };
        body[3] = Self::LUICLR;
        body[9] = self.max_sense_len;
        page(PageCode::EXTENDED_INQUIRY, &body)
    }
}

/// Encodes the Management Network Addresses page of a unit without addresses of its own.
pub fn no_management_addresses() -> Vec<u8> {
    page(PageCode::MANAGEMENT_NETWORK_ADDRESSES, &[])
}

/// Encodes the Mode Page Policy page (SPC-5 7.8.9): all nexuses share every page.
pub fn shared_mode_pages() -> Vec<u8> {
    const ALL_PAGES: u8 = 0x3f;
    const ALL_SUBPAGES: u8 = 0xff;
    const SHARED: u8 = 0;
    page(PageCode::MODE_PAGE_POLICY, &[ALL_PAGES, ALL_SUBPAGES, SHARED, 0])
}

/// Encodes the SCSI Ports page (SPC-5 7.8.14): each target port by its relative identifier and its designators.
pub fn scsi_ports(ports: &[(u16, Vec<Designator>)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (relative, names) in ports {
        let names: Vec<u8> = names.iter().flat_map(Designator::emit).collect();
        body.extend([0, 0]);
        body.extend(relative.to_be_bytes());
        // The descriptor has no initiator port.
        body.extend([0; 6]);
        body.extend((names.len() as u16).to_be_bytes());
        body.extend(names);
    }
    page(PageCode::SCSI_PORTS, &body)
}

/// Encodes the Referrals page (SBC-4 6.6.8) of a unit whose user data is not segmented.
pub fn no_referrals() -> Vec<u8> {
    page(PageCode::REFERRALS, &[0; 12])
}

#[cfg(test)]
mod tests {
    use super::super::Association;
    use super::*;

    #[test]
    fn fields_stand_where_the_standard_puts_them() {
        let data = ExtendedInquiry { volatile_cache: true, max_sense_len: 32 }.emit();
        assert_eq!((data.len(), &data[..8], data[13]), (64, &[0, 0x86, 0, 60, 0, 7, 1, 1][..], 32));
        assert_eq!(shared_mode_pages(), [0, 0x87, 0, 4, 0x3f, 0xff, 0, 0]);
        assert_eq!(no_referrals().len(), 16);
    }

    #[test]
    fn ports_carry_their_names() {
        let data = scsi_ports(&[(2, vec![Designator::name(Association::TargetPort, "iqn.x,t")])]);
        assert_eq!(data[..16], [0, 0x88, 0, 24, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 12]);
        assert_eq!(&data[16..], b"\x53\x98\0\x08iqn.x,t\0");
    }
}
