//! READ DEFECT DATA parameter data (SBC-4 5.18, 5.19) of a medium that reports no defects.

/// The bits of the CDB that are returned: REQ_PLIST and REQ_GLIST as PLISTV and GLISTV, and DEFECT LIST FORMAT.
pub const REQUEST: u8 = 0x1f;

/// READ DEFECT DATA(10) data: an empty list in the requested format.
pub fn none_10(request: u8) -> [u8; 4] {
    [0, request & REQUEST, 0, 0]
}

/// READ DEFECT DATA(12) data: an empty list in the requested format.
pub fn none_12(request: u8) -> [u8; 8] {
    [0, request & REQUEST, 0, 0, 0, 0, 0, 0]
}
