//! The preparation of a measurement, and its work.

use std::hint::black_box;

use anyhow::{Context, Result, bail, ensure};
use lunette_buffer::{Buffer, Pool};
use lunette_crc32c::{Crc32c, crc32c, to_wire};
use lunette_pdu::{BHS_LEN, Bhs, DIGEST_LEN, TargetPdu};
use lunette_session::{iscsi_initiator, iscsi_target};

use super::cell::Work;
use super::cpu::Lines;
use super::packets::Packets;
use super::pair::{Extras, Pair, SEGMENT_LEN, command};

/// Header and header digest.
const HEAD_LEN: usize = BHS_LEN + DIGEST_LEN;
/// A whole PDU of the longest.
const PDU_LEN: usize = HEAD_LEN + SEGMENT_LEN + DIGEST_LEN;
/// Memory of a measurement.
const POOL_LEN: usize = 64 << 20;

/// Where jobs are prepared and done: a session, and the memory for its data.
pub(super) struct Bench {
    /// On the heap, with all other state of the session.
    pair: Box<Pair>,
    pool: Pool,
}

/// A command up to the moment at which it is measured.
pub(super) struct Job {
    lane: usize,
    packets: Option<Packets>,
    /// The data of the command, but for that in packets.
    data: Vec<Lines>,
    action: Action,
}

enum Action {
    /// The initiator receives packets, up to the end of a command.
    Read,
    /// The initiator receives packets, and sends what they ask for.
    Answer,
    /// The initiator takes a command and sends it.
    Write(Option<iscsi_initiator::Command>),
    /// The target receives packets, up to the end of a command's data.
    Collect,
    /// The target ends a read.
    Complete(iscsi_target::TaskTag, Option<Buffer>),
    /// A part by itself, on the bytes of a buffer.
    Part(Work, Buffer),
}

/// The result of a job, to be read when nothing is measured any more.
pub(super) enum Outcome {
    Nothing,
    Read(iscsi_initiator::Event),
    Collected(iscsi_target::Event<usize>),
    Sent(usize),
    Digested(u32),
}

impl Bench {
    /// A new session for this kind of work.
    pub(super) fn new(work: Work) -> Result<Self> {
        let extras = Extras { unsolicited: work == Work::Unsolicited, markers: work == Work::DataInMarked };
        Ok(Self { pair: Box::new(Pair::logged_in(extras)?), pool: Pool::new(POOL_LEN) })
    }

    /// Prepares a command with `len` bytes of data.
    pub(super) fn prepare(&mut self, work: Work, len: usize) -> Result<Job> {
        match work {
            Work::DataIn | Work::DataInMarked | Work::DataInReversed | Work::DataInShuffled => self.read(work, len),
            Work::Solicited => self.solicited(len),
            Work::Unsolicited => self.unsolicited(len),
            Work::TargetDataOut => self.target_data_out(len),
            Work::TargetDataIn => self.target_data_in(len),
            Work::Copy | Work::CopyThenDigest | Work::CopyWithDigest | Work::Digest | Work::Headers => {
                self.part(work, len)
            }
        }
    }

    /// Memory for data that comes.
    fn place(&self, len: usize) -> Result<(Buffer, Lines)> {
        let mut buffer = self.pool.take(len).context("the pool is too small")?;
        buffer.fill(0);
        let at = buffer.as_ptr() as usize;
        Ok((buffer, at..at + len))
    }

    /// Memory with data.
    fn source(&self, len: usize) -> Result<(Buffer, Lines)> {
        let (mut buffer, lines) = self.place(len)?;
        buffer.iter_mut().enumerate().for_each(|(at, byte)| *byte = pattern(at));
        Ok((buffer, lines))
    }

    /// The target has a command that the initiator has sent.
    fn submitted(&mut self, command: iscsi_initiator::Command) -> Result<(usize, iscsi_target::Command)> {
        let lane = self.pair.submit(command).context("the initiator takes a command")?;
        Ok((lane, self.pair.deliver(lane)?))
    }

    fn read(&mut self, work: Work, len: usize) -> Result<Job> {
        let ((place, lines), (source, _)) = (self.place(len)?, self.source(len)?);
        let (lane, command) = self.submitted(command(Some(place), None))?;
        self.pair.complete(lane, command.task, response(source));
        let mut bytes = self.pair.sent_by_target(lane)?;
        let order: Option<Vec<usize>> = match work {
            Work::DataInReversed => Some((0..len.div_ceil(SEGMENT_LEN)).rev().collect()),
            Work::DataInShuffled => Some(shuffled(len.div_ceil(SEGMENT_LEN))),
            _ => None,
        };
        if let Some(order) = order.filter(|order| order.len() > 1) {
            bytes = reordered(&bytes, &order)?;
        }
        let packets = Packets::new(&self.pool, &bytes)?;
        Ok(Job { lane, packets: Some(packets), data: vec![lines], action: Action::Read })
    }

    fn solicited(&mut self, len: usize) -> Result<Job> {
        let ((source, lines), (place, _)) = (self.source(len)?, self.place(len)?);
        let (lane, command) = self.submitted(command(None, Some(source)))?;
        self.pair.target(lane).context("the connection lives")?.want_data(command.task, place);
        let packets = Packets::new(&self.pool, &self.pair.sent_by_target(lane)?)?;
        Ok(Job { lane, packets: Some(packets), data: vec![lines], action: Action::Answer })
    }

    fn unsolicited(&mut self, len: usize) -> Result<Job> {
        let (source, lines) = self.source(len)?;
        let action = Action::Write(Some(command(None, Some(source))));
        Ok(Job { lane: 0, packets: None, data: vec![lines], action })
    }

    fn target_data_out(&mut self, len: usize) -> Result<Job> {
        let ((source, _), (place, lines)) = (self.source(len)?, self.place(len)?);
        let (lane, command) = self.submitted(command(None, Some(source)))?;
        self.pair.target(lane).context("the connection lives")?.want_data(command.task, place);
        let asked = self.pair.sent_by_target(lane)?;
        let event = self.pair.initiator_event(lane, &mut &asked[..]);
        ensure!(event.is_none(), "an R2T is answered, and not {event:?}");
        let packets = Packets::new(&self.pool, &self.pair.sent_by_initiator(lane))?;
        Ok(Job { lane, packets: Some(packets), data: vec![lines], action: Action::Collect })
    }

    fn target_data_in(&mut self, len: usize) -> Result<Job> {
        let ((place, _), (source, lines)) = (self.place(len)?, self.source(len)?);
        let (lane, command) = self.submitted(command(Some(place), None))?;
        Ok(Job { lane, packets: None, data: vec![lines], action: Action::Complete(command.task, Some(source)) })
    }

    fn part(&mut self, work: Work, len: usize) -> Result<Job> {
        let (place, lines) = self.source(len)?;
        let copies = matches!(work, Work::Copy | Work::CopyThenDigest | Work::CopyWithDigest);
        let wire = || place.chunks(SEGMENT_LEN).flat_map(|data| [&[0; HEAD_LEN], data, &[0; DIGEST_LEN]].concat());
        let packets = copies.then(|| Packets::new(&self.pool, &wire().collect::<Vec<u8>>())).transpose()?;
        Ok(Job { lane: 0, packets, data: vec![lines], action: Action::Part(work, place) })
    }

    /// The measured part. Not inlined, so that callgrind can toggle on its name.
    #[inline(never)]
    pub(super) fn counted(&mut self, job: &mut Job) -> Outcome {
        self.do_job(job)
    }

    /// The measured part, where callgrind does not see it.
    #[inline]
    pub(super) fn do_job(&mut self, job: &mut Job) -> Outcome {
        let lane = job.lane;
        match (&mut job.action, &job.packets) {
            (Action::Read, Some(packets)) => read_all(&mut self.pair, lane, packets),
            (Action::Answer, Some(packets)) => {
                let ended = read_all(&mut self.pair, lane, packets);
                debug_assert!(matches!(ended, Outcome::Nothing));
                Outcome::Sent(self.pair.send_by_initiator(lane, look))
            }
            (Action::Write(command), _) => {
                let lane = command.take().and_then(|command| self.pair.submit(command));
                lane.map_or(Outcome::Nothing, |lane| Outcome::Sent(self.pair.send_by_initiator(lane, look)))
            }
            (Action::Collect, Some(packets)) => collect_all(&mut self.pair, lane, packets),
            (Action::Complete(task, source), _) => {
                if let Some(source) = source.take() {
                    self.pair.complete(lane, *task, response(source));
                }
                Outcome::Sent(self.pair.send_by_target(lane, look))
            }
            (Action::Part(work, place), packets) => Outcome::Digested(part(*work, packets.as_ref(), place)),
            (_, None) => Outcome::Nothing,
        }
    }
}

impl Job {
    /// Where its bytes lie.
    pub(super) fn data(&self) -> impl Iterator<Item = Lines> {
        self.data.iter().cloned().chain(self.packets.as_ref().map(Packets::lines))
    }

    /// Where the headers of packets lie, which TCP has looked at.
    pub(super) fn packet_headers(&self) -> impl Iterator<Item = Lines> {
        self.packets.iter().flat_map(Packets::header_lines)
    }

    /// Whether what was measured is what should be.
    pub(super) fn check(&self, outcome: Outcome, len: usize) -> Result<()> {
        match (&self.action, outcome) {
            (Action::Read, Outcome::Read(iscsi_initiator::Event::Completed { response, .. })) => {
                ensure!(response.status == 0 && response.data_in_len == len, "a read ended with {response:?}");
            }
            (Action::Collect, Outcome::Collected(iscsi_target::Event::DataOut { buffer, .. })) => {
                ensure!(buffer.len() == len, "a write brought {} bytes", buffer.len());
            }
            (Action::Answer | Action::Write(_) | Action::Complete(..), Outcome::Sent(sent)) => {
                ensure!(sent > len, "{sent} bytes were sent");
            }
            (Action::Part(..), Outcome::Digested(digest)) => drop(black_box(digest)),
            _ => bail!("a command did not do what it should"),
        }
        Ok(())
    }
}

/// The initiator's receive path, segment by segment.
#[inline]
fn read_all(pair: &mut Pair, lane: usize, packets: &Packets) -> Outcome {
    let mut outcome = Outcome::Nothing;
    for mut payload in packets.payloads() {
        while let Some(event) = pair.initiator_event(lane, &mut payload) {
            outcome = Outcome::Read(event);
        }
    }
    outcome
}

/// The target's.
#[inline]
fn collect_all(pair: &mut Pair, lane: usize, packets: &Packets) -> Outcome {
    let mut outcome = Outcome::Nothing;
    for mut payload in packets.payloads() {
        while let Some(event) = pair.target_event(lane, &mut payload) {
            outcome = Outcome::Collected(event);
        }
    }
    outcome
}

/// The slices of a send go to the system by their place and length alone.
#[inline]
fn look(slice: &[u8]) {
    black_box((slice.as_ptr(), slice.len()));
}

/// A part of the work on Data-In by itself: the calls of the digests' crate that the sessions make, on the same pieces.
#[inline]
fn part(work: Work, packets: Option<&Packets>, place: &mut [u8]) -> u32 {
    let mut digests = 0;
    for (number, place) in place.chunks_mut(SEGMENT_LEN).enumerate() {
        let mut digest = Crc32c::new();
        if work == Work::Headers {
            digests ^= crc32c(black_box(&place[..BHS_LEN]));
            continue;
        }
        if let Some(packets) = packets {
            let start = number * PDU_LEN + HEAD_LEN;
            let (mut from, end) = (start, start + place.len());
            while from < end {
                let piece = packets.piece(from, end);
                let to = &mut place[from - start..][..piece.len()];
                if work == Work::CopyWithDigest {
                    digest.copy(to, piece);
                } else {
                    to.copy_from_slice(piece);
                }
                from += piece.len();
            }
        }
        if matches!(work, Work::Digest | Work::CopyThenDigest) {
            digest.update(black_box(place));
        }
        digests ^= digest.finish();
    }
    digests
}

/// The byte of all data at an offset.
fn pattern(at: usize) -> u8 {
    (at * 7 + at / 256) as u8
}

fn response(source: Buffer) -> iscsi_target::Response {
    iscsi_target::Response { data_in: source.into(), ..iscsi_target::Response::default() }
}

/// The numbers below `count` in an order that is always the same.
fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut seed = 0x9e37_79b9_u64;
    for last in (1..count).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        order.swap(last, (seed >> 33) as usize % (last + 1));
    }
    order
}

/// Data-In PDUs, the n-th of which carries what `order[n]` says. Numbers and flags stay in the order of sending. All
/// data segments are of one length.
fn reordered(bytes: &[u8], order: &[usize]) -> Result<Vec<u8>> {
    ensure!(bytes.len() == order.len() * PDU_LEN, "whole PDUs alone can change places");
    let pdus: Vec<&[u8]> = bytes.chunks(PDU_LEN).collect();
    let data_in = |pdu: &[u8]| match TargetPdu::parse(Bhs::ref_from(&pdu[..BHS_LEN])?) {
        Ok(TargetPdu::DataIn(header)) => Some(header),
        _ => None,
    };
    let mut moved = Vec::with_capacity(bytes.len());
    for (pdu, from) in pdus.iter().zip(order) {
        let mut header = data_in(pdu).context("a target sends Data-In")?;
        header.buffer_offset = (from * SEGMENT_LEN) as u32;
        let bhs = header.emit();
        moved.extend(bhs);
        moved.extend(to_wire(crc32c(&bhs)));
        moved.extend_from_slice(&pdus[*from][HEAD_LEN..]);
    }
    Ok(moved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::spec::LONGEST;

    #[test]
    fn each_kind_of_work_is_done_to_its_end() {
        for (work, name) in Work::ALL {
            for len in [512, SEGMENT_LEN, LONGEST] {
                let mut bench = Bench::new(work).expect("a session");
                for _ in 0..2 {
                    let mut job = bench.prepare(work, len).expect("a command");
                    let outcome = bench.do_job(&mut job);
                    assert!(
                        arrived(&outcome).is_none_or(|data| data.iter().copied().eq((0..len).map(pattern))),
                        "{name}"
                    );
                    job.check(outcome, len).expect(name);
                }
            }
        }
    }

    /// The data that has come to its place.
    fn arrived(outcome: &Outcome) -> Option<&[u8]> {
        match outcome {
            Outcome::Read(iscsi_initiator::Event::Completed { command, .. }) => command.data_in.as_deref(),
            Outcome::Collected(iscsi_target::Event::DataOut { buffer, .. }) => Some(buffer),
            _ => None,
        }
    }

    #[test]
    fn commands_go_round_robin() {
        let mut bench = Bench::new(Work::DataIn).expect("a session");
        let lanes: Vec<usize> = (0..2 * crate::sandbox::pair::CONNECTIONS)
            .map(|_| bench.prepare(Work::DataIn, 512).expect("a command").lane)
            .collect();
        let (first, second) = lanes.split_at(lanes.len() / 2);
        let mut sorted = first.to_vec();
        sorted.sort_unstable();
        assert_eq!((sorted, first), ((0..first.len()).collect(), second));
    }
}
