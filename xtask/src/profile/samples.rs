//! Samples of `perf`, counted by layer.

use super::class::Class;

/// The samples of one process.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Samples {
    counts: [u32; Class::ALL.len()],
}

impl Samples {
    /// Counts the lines of `perf script -F pid,ip,sym,dso` that belong to process `pid`.
    pub(super) fn of(script: &str, pid: u32) -> Self {
        let mut samples = Self::default();
        let of_process = script.lines().filter_map(|line| line.trim_start().split_once(char::is_whitespace));
        for (_, place) in of_process.filter(|(id, _)| id.parse() == Ok(pid)) {
            if let Some(class) = class(place) {
                samples.counts[class as usize] += 1;
            }
        }
        samples
    }

    pub(super) fn total(&self) -> u32 {
        self.counts.iter().sum()
    }

    /// The part of all samples that fell into a layer.
    pub(super) fn share(&self, class: Class) -> f64 {
        f64::from(self.counts[class as usize]) / f64::from(self.total().max(1))
    }
}

/// The layer of `ADDRESS NAME (FILE)`.
fn class(place: &str) -> Option<Class> {
    let (_, named) = place.trim_start().split_once(char::is_whitespace)?;
    let (symbol, file) = named.trim().rsplit_once(" (")?;
    Some(Class::of(symbol, file.starts_with("[kernel") || file.starts_with("[guest")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = " 1317  ffffffff81b6c6b4 _copy_from_iter ([kernel.kallsyms])\n  \
         1317      55d0c0de1234 <lunette_buffer::memory::Handle as core::ops::drop::Drop>::drop (/bin/lunette)\n  \
         1331  ffffffff81e42984 tcp_ack ([kernel.kallsyms])\n nonsense\n 1317\n";

    #[test]
    fn samples_of_the_process_are_counted() {
        let samples = Samples::of(SCRIPT, 1317);
        assert_eq!(samples.total(), 2);
        assert!((samples.share(Class::Copy) - 0.5).abs() < 1e-9);
        assert!((samples.share(Class::Memory) - 0.5).abs() < 1e-9);
        assert_eq!(Samples::of(SCRIPT, 7).total(), 0);
    }
}
