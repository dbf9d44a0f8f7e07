//! The claims of the paper, and whether the measurements support them.

use super::layers::{BUSY, ENDS};
use super::plan::{self, LONGEST, MTUS, TABLE_LEN};
use super::remap::MAPPED;
use super::report::Report;
use super::rewrite::{DIGEST_ERRORS, LATER, MIXED};
use super::spec::{Blocks, Spec, With};
use crate::experiment::figure;
use crate::experiment::paper::{Claim, Judge, Verdict};

/// The threshold of a gain of CPU time: less makes no difference.
const GAIN: f64 = 0.95;

fn load(write: bool, len: u32, mtu: u16, with: With) -> Spec {
    Spec::Load { write, len, mtu, with }
}

/// A payload by page, and the same with a copy.
fn remapped_and_copied(mtu: u16, len: u32) -> [Spec; 2] {
    [false, true].map(|copy| Spec::Remap { mtu, len, copy })
}

impl Judge for Report<'_> {
    fn claims(&self) -> &[Claim] {
        &self.paper.claims
    }

    fn verdict(&self, id: &str) -> Verdict {
        match id {
            "checksum_writes" => self.checksums(true),
            "checksum_reads" => self.checksums(false),
            "zero_copy_large" => self.zero_copy_of_large_writes(),
            "combination" => self.combination(),
            "jumbo_alike" => self.jumbo_alike(),
            "tso" => self.segmentation(),
            "tcp_ip" => self.tcp_ip(),
            "iscsi_scsi" => self.iscsi_and_scsi(),
            "remap" => self.remap(),
            "remap_vm" => self.remap_vm(),
            "remap_mtu" => self.remap_mtu(),
            "digest" => self.digest(),
            _ => None,
        }
    }
}

impl Report<'_> {
    /// CPU time of the initiator with some help, beside that with less.
    fn gain(&self, write: bool, len: u32, mtu: u16, [with, before]: [With; 2]) -> Option<f64> {
        Some(self.client_us(&load(write, len, mtu, with))? / self.client_us(&load(write, len, mtu, before))?)
    }

    fn checksums(&self, write: bool) -> Verdict {
        let of = |with| {
            let spec = load(write, TABLE_LEN, MTUS[0], with);
            Some(self.percent(&spec, ENDS[0], "copy")? + self.percent(&spec, ENDS[0], "checksum")?)
        };
        let (without, with) = (of(With::Nothing)?, of(With::Checksums)?);
        let all = self.gain(write, TABLE_LEN, MTUS[0], [With::Checksums, With::Nothing])?;
        let text = format!("{without:.2}% to {with:.2}%; all CPU time × {}", figure(Some(all)));
        Some((with < GAIN * without, text))
    }

    fn zero_copy_of_large_writes(&self) -> Verdict {
        let of = |mtu| self.gain(true, LONGEST, mtu, [With::ZeroCopy, With::Checksums]);
        let [standard, jumbo] = MTUS.map(of);
        let text = format!("256 KB: CPU time × {} at MTU 1500, × {} at 9000", figure(standard), figure(jumbo));
        Some((standard? < GAIN && jumbo? < GAIN, text))
    }

    fn combination(&self) -> Verdict {
        let of = |mtu| self.gain(true, TABLE_LEN, mtu, [With::ZeroCopy, With::Nothing]);
        let [standard, jumbo] = MTUS.map(of);
        let text = format!("CPU time × {} at MTU 1500, × {} at 9000", figure(standard), figure(jumbo));
        Some((standard? < GAIN, text))
    }

    fn jumbo_alike(&self) -> Verdict {
        let pairs = [[With::Checksums, With::Nothing], [With::ZeroCopy, With::Checksums]];
        let of = |mtu| Some([self.gain(true, LONGEST, mtu, pairs[0])?, self.gain(true, LONGEST, mtu, pairs[1])?]);
        let (standard, jumbo) = (of(MTUS[0])?, of(MTUS[1])?);
        let alike = standard.iter().zip(jumbo).all(|(one, other)| (*one < GAIN) == (other < GAIN));
        let list = |values: [f64; 2]| values.map(|value| figure(Some(value))).join(" and × ");
        let text = format!(
            "256 KB, checksum offload and then zero-copy: × {} at MTU 1500, × {} at 9000",
            list(standard),
            list(jumbo)
        );
        Some((alike, text))
    }

    fn segmentation(&self) -> Verdict {
        let of = |len, mtu| self.gain(true, len, mtu, [With::Segments, With::ZeroCopy]);
        let (short, long, jumbo) = (of(TABLE_LEN, MTUS[0])?, of(LONGEST, MTUS[0])?, of(LONGEST, MTUS[1])?);
        let [a, b, c] = [short, long, jumbo].map(|value| figure(Some(value)));
        let text = format!("CPU time × {a} for 8 KB and × {b} for 256 KB at MTU 1500, × {c} for 256 KB at 9000");
        Some((short > GAIN && long > GAIN, text))
    }

    fn tcp_ip(&self) -> Verdict {
        let spec = load(true, TABLE_LEN, MTUS[0], With::Nothing);
        let (tcp_ip, busy) = (self.percent(&spec, ENDS[0], "tcp_ip")?, self.percent(&spec, ENDS[0], BUSY)?);
        let others = ["iscsi", "scsi", "copy", "checksum", "driver", "memory"];
        let most = others.iter().filter_map(|layer| self.percent(&spec, ENDS[0], layer)).fold(0.0, f64::max);
        let text = format!("{tcp_ip:.2} of {busy:.2}% busy; of the other layers the largest has {most:.2}%");
        Some((tcp_ip > most, text))
    }

    fn iscsi_and_scsi(&self) -> Verdict {
        let of = |write| {
            let spec = load(write, TABLE_LEN, MTUS[0], With::Nothing);
            let both = self.percent(&spec, ENDS[0], "iscsi")? + self.percent(&spec, ENDS[0], "scsi")?;
            Some((both, self.percent(&spec, ENDS[0], BUSY)?))
        };
        let ((writes, busy_writes), (reads, busy_reads)) = (of(true)?, of(false)?);
        let text = format!("writes {writes:.2} of {busy_writes:.2}% busy, reads {reads:.2} of {busy_reads:.2}%");
        Some((writes < 0.1 * busy_writes && reads < 0.1 * busy_reads, text))
    }

    fn remap(&self) -> Verdict {
        let [by_page, copied] = remapped_and_copied(9000, TABLE_LEN);
        let ratio = self.client_us(&by_page)? / self.client_us(&copied)?;
        Some((ratio > GAIN, format!("CPU time by page × {} of that with a copy", figure(Some(ratio)))))
    }

    fn remap_vm(&self) -> Verdict {
        let [by_page, copied] = remapped_and_copied(9000, TABLE_LEN);
        let [with, without] = [self.percent(&by_page, ENDS[0], "memory")?, self.percent(&copied, ENDS[0], "memory")?];
        Some((with > without, format!("{without:.2}% to {with:.2}%")))
    }

    fn remap_mtu(&self) -> Verdict {
        let mapped = |mtu, len| self.median(&Spec::Remap { mtu, len, copy: false }, MAPPED);
        let (standard, jumbo, fitting) = (mapped(1500, 8192), mapped(9000, 65_536), mapped(8244, 65_536));
        // Of 64 KB, what two pages are.
        let first = 100.0 * 8192.0 / 65_536.0;
        let list = [standard, jumbo, fitting].map(|share| figure(share.or(None)));
        let text = format!(
            "by page: {}% at MTU 1500; of 64 KB {}% at 9000, {}% at 8244, where a segment is two pages",
            list[0], list[1], list[2]
        );
        let [standard, jumbo] = [standard, jumbo.or(Some(first))];
        Some((standard? < 1.0 && jumbo? < 2.0 * first, text))
    }

    fn digest(&self) -> Verdict {
        let of = |pages, blocks, name| {
            let specs = plan::rewrites(self.size);
            let is =
                |spec: &&Spec| matches!(spec, Spec::Rewrite { pages: p, blocks: b, .. } if *p == pages && *b == blocks);
            specs.iter().find(is).and_then(|spec| self.median(spec, name))
        };
        let errors = of(true, Blocks::Digested, DIGEST_ERRORS)?;
        let stored = of(true, Blocks::Plain, MIXED)? + of(true, Blocks::Plain, LATER)?;
        let ours =
            [DIGEST_ERRORS, MIXED, LATER].iter().filter_map(|name| of(false, Blocks::Digested, name)).sum::<f64>();
        let text = format!(
            "{errors:.0} digest errors with digests, {stored:.0} blocks stored other than asked for without; {ours:.0} of either from a copy"
        );
        Some((errors > 0.0 && stored > 0.0, text))
    }
}
