//! iSCSI bytes: headers and text keys
