//! The SCSI device server: logical units and tasks over a store
