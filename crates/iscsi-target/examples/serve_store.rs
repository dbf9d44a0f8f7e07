//! Serves a store of one's own as an iSCSI disk: `cargo run --example serve_store -- ADDRESS:PORT`.

use std::env::args;
use std::error::Error;
use std::io::ErrorKind::Unsupported;
use std::sync::{Arc, Mutex, PoisonError};

use lunette_target::store::{Capabilities, Completion, FileIo, Geometry, Op, Outcome, Run, Store};
use lunette_target::{
    LogicalUnit, LogicalUnitConfig, Lun, PortalConfig, Server, ServerConfig, TargetConfig, TargetDevice,
};

/// A disk that lives in a vector.
struct Ram(Mutex<Vec<u8>>);

impl Store for Ram {
    fn geometry(&self) -> Geometry {
        let len_bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner).len() as u64;
        Geometry { len_bytes, granularity_bytes: 512, physical_bytes: 4096, unmap_bytes: 4096 }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { memory: true, write_zeroes: true, ..Capabilities::default() }
    }

    // Runs on an event loop. A store that has to wait gives `done` to a thread of its own and returns.
    fn submit(&self, mut op: Op, _: &dyn FileIo, done: Completion) {
        let mut disk = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (offset, len) = op.range();
        let mut result = op.check(disk.len() as u64, false);
        if result.is_ok() {
            let bytes = &mut disk[offset as usize..][..len as usize];
            match &mut op {
                Op::Read { into, .. } => into.copy_from_slice(bytes),
                Op::Write { from, .. } => bytes.copy_from_slice(from),
                Op::WriteZeroes { .. } => bytes.fill(0),
                Op::Allocation { found, .. } => _ = found.push(Run { len, allocated: true }),
                Op::Unmap { .. } | Op::Flush => {}
                Op::Copy { .. } => result = Err(std::io::Error::from(Unsupported).into()),
            }
        }
        drop(disk);
        done.complete(Outcome::of(op, result));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let unit = LogicalUnitConfig::new(Arc::new(Ram(Mutex::new(vec![0; 64 << 20]))), "ram-1");
    let device = TargetDevice::new("iqn.2026-11.org.example:ram");
    device.add(Lun::ZERO, Arc::new(LogicalUnit::new(unit)?))?;
    let portal = PortalConfig::new(args().nth(1).ok_or("usage: serve_store ADDRESS:PORT")?.parse()?, 1);
    let server = Server::bind(ServerConfig::new(vec![portal], vec![TargetConfig::open(Arc::new(device))]))?;
    println!("iscsi://{}/iqn.2026-11.org.example:ram/0", server.portals()[0]);
    // Until `server.stopper().stop()` is called on another thread, or the process ends.
    Ok(server.run()?)
}
