//! Commands that several experiments run, and what they print.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Figures;

/// The figure of all cells that transfer: payload, in 10^6 bytes per second.
pub(crate) const MB_PER_S: &str = "mb_per_s";
/// The target of all servers.
pub(crate) const NAME: &str = "iqn.2026-11.lunette:disk";
/// Where they listen.
pub(crate) const PORT: u16 = 3260;
/// Bytes of their blocks.
pub(crate) const BLOCK_LEN: u64 = 512;

/// tgt over a file in memory, with its best settings; both vanish with the namespace.
pub(crate) fn tgt_serve(mib: u64) -> String {
    let mut line = format!(
        "mount -t tmpfs tgt /mnt; cd /mnt; truncate -s {mib}M disk; export TGT_IPC_SOCKET=/mnt/control; \
         tgtd -f -C 1 --iscsi portal=$LAB_ADDRESS:{PORT} & until tgtadm -C 1 --mode sys --op show; do sleep 0.1; done; \
         tgtadm -C 1 --lld iscsi --mode target --op new --tid 1 -T {NAME}; \
         tgtadm -C 1 --lld iscsi --mode logicalunit --op new --tid 1 --lun 1 -b /mnt/disk; \
         tgtadm -C 1 --lld iscsi --mode target --op bind --tid 1 -I ALL; "
    );
    for (key, value) in [
        ("MaxRecvDataSegmentLength", "262144"),
        ("MaxBurstLength", "1048576"),
        ("FirstBurstLength", "262144"),
        ("InitialR2T", "No"),
    ] {
        write!(line, "tgtadm -C 1 --lld iscsi --mode target --op update --tid 1 -n {key} -v {value}; ")
            .expect("memory");
    }
    format!("({line}wait) >/dev/null 2>&1")
}

/// The number in the place of an object that a pointer of JSON names.
pub(crate) fn number(value: &Value, key: &str) -> Result<f64> {
    value.pointer(key).and_then(Value::as_f64).with_context(|| format!("the output has no number at {key}: {value}"))
}

/// The object in the last line of an output.
pub(crate) fn json(output: &str) -> Result<Value> {
    serde_json::from_str(output.lines().last().unwrap_or_default())
        .with_context(|| format!("the output is no JSON: {output:?}"))
}

/// The length of a request in a line, then what `iscsi-perf` prints again and again: "iops average 1234 (56 MB/s)".
pub(crate) fn read_iscsi_perf(output: &str) -> Result<Figures> {
    let (request_len, rest) = output.split_once('\n').unwrap_or_default();
    let (_, last) = rest.rsplit_once("iops average ").unwrap_or_default();
    let number = |text: &str| text.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
    let rate = number(request_len).zip(number(last)).map(|(length, iops)| length * iops / 1e6);
    let rate = rate.with_context(|| format!("no average in {output:?}"))?;
    Ok(Figures::from([(MB_PER_S.into(), rate)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_average_of_iscsi_perf_counts() {
        let output = "8192\ncapacity is 4096 blocks\riops average 10 (0 MB/s)   \riops average 2000 (15 MB/s)   \n";
        assert!((read_iscsi_perf(output).expect("an average")[MB_PER_S] - 16.384).abs() < 1e-9);
        assert!(read_iscsi_perf("8192\n").is_err());
    }
}
