//! SCSI bytes: CDBs, sense data, VPD, mode and log pages
