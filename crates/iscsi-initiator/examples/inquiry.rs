//! Logs in to a target by its URL, sends INQUIRY as a raw CDB, and prints what the logical unit answers.
//!
//! `cargo run --example inquiry -- iscsi://HOST/TARGET/LUN`

use std::env;
use std::error::Error;

use lunette_initiator::scsi::answers::Inquiry;
use lunette_initiator::{Initiator, Lun, Repeat, Request, Url, wait};

/// Bytes of standard INQUIRY data that a logical unit may send.
const ALLOCATION_LEN: u8 = 96;

fn main() -> Result<(), Box<dyn Error>> {
    let url = env::args().nth(1).ok_or("usage: inquiry iscsi://HOST/TARGET/LUN")?;
    let (inquiry, len) = inquiry(&url)?;
    println!("{len} bytes of standard INQUIRY data");
    println!("device type {:#04x}, removable: {}", inquiry.device_type, inquiry.removable);
    println!("vendor {:?}, product {:?}, revision {:?}", inquiry.vendor, inquiry.product, inquiry.revision);
    Ok(())
}

/// Gives the standard INQUIRY data of a logical unit and its length.
pub(crate) fn inquiry(url: &str) -> Result<(Inquiry, usize), Box<dyn Error>> {
    let url = Url::parse(url)?;
    // The event loop serves any number of sessions; it ends with its last handle.
    let initiator = Initiator::start()?;
    let session = wait(url.connect(&initiator, url.options()?))?;

    // `scsi::requests::inquiry` would make the same bytes.
    let cdb = [0x12, 0, 0, 0, ALLOCATION_LEN, 0];
    let request = Request::from_cdb(url.lun.unwrap_or(Lun::ZERO), &cdb)
        .with_data_in(session.buffer(ALLOCATION_LEN.into())?)
        .with_repeat(Repeat::Always);
    let outcome = wait(session.execute(request));

    // CHECK CONDITION and every other status but GOOD are errors here. The buffer is cut to what came.
    let data = outcome.into_data()?.ok_or("the buffer was lost with the event loop")?;
    let inquiry = Inquiry::parse(&data).ok_or("the answer is shorter than 36 bytes")?;
    wait(session.close())?;
    Ok((inquiry, data.len()))
}
