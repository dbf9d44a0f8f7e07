//! The full feature phase of both sides with markers (RFC 3720 appendix A): the same inputs as without, behind two
//! bytes that choose the interval and the recovery level.
//!
//! Each marker that is sent must be right, and as long as no PDU is damaged, everything must be as without markers,
//! whatever the markers that are received say.

use lunette_session::limits::MIN_MARKER_INTERVAL_WORDS;

use crate::full_feature::{self, Recovery};
use crate::initiator_full_feature;
use crate::input::{Input, Random};
use crate::toy;

/// Bytes that follow the header that is lost.
const PINGS: usize = 12;

fn recovery(input: &mut Input<'_>) -> Recovery {
    let marker_interval = Some(MIN_MARKER_INTERVAL_WORDS + u32::from(input.byte()));
    Recovery { marker_interval, level: u32::from(input.byte() % 2), all_are_tasks: true }
}

/// The target of the target's side. From recovery level 1 on, markers make a difference that is wanted: headers may be
/// lost between them, so data that is overdue is asked for again.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let recovery = recovery(&mut input);
    let steps = input.rest();
    let play = |marker_interval| full_feature::play(steps, &Recovery { marker_interval, ..recovery });
    let marked = play(recovery.marker_interval);
    if marked.is_comparable && marked.transcript != play(None).transcript {
        // Tags follow from places in tables, and a server that has served other inputs fills these in another order.
        let play_on_new_server = |marker_interval| {
            toy::forget_idle_server();
            play(marker_interval).transcript
        };
        assert!(play_on_new_server(recovery.marker_interval) == play_on_new_server(None), "markers make a difference");
    }
}

/// The target of the initiator's side.
pub fn run_initiator(data: &[u8]) {
    let mut input = Input::new(data);
    let recovery = recovery(&mut input);
    let (_, marked, spoilt) = initiator_full_feature::play(input.rest(), &recovery);
    if !spoilt {
        let plain = Recovery { marker_interval: None, ..recovery };
        let (_, plain, _) = initiator_full_feature::play(&data[data.len().min(2)..], &plain);
        assert!(marked == plain, "markers make a difference");
    }
}

fn behind_choice(random: &mut Random, steps: fn(&mut Random) -> Vec<u8>) -> Vec<u8> {
    let choice = random.bytes(2);
    [choice, steps(random)].concat()
}

/// Steps that mostly make sense.
pub fn random(random: &mut Random) -> Vec<u8> {
    behind_choice(random, full_feature::random)
}

/// A random input for the initiator's side.
pub fn random_initiator(random: &mut Random) -> Vec<u8> {
    behind_choice(random, initiator_full_feature::random)
}

/// The seeds of the full feature phase at the shortest interval; and damage at recovery level 1: a header digest, then
/// a marker too.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let mut seeds = with_markers(full_feature::seeds());
    // Header digests; immediate pings of no data.
    let ping = [11, 1, 0, 0, 0];
    let lost = [&[0, 1, 0x0d, 4, 1, 6, 6][..], &ping, &[20, 0, 0]].concat();
    let pings = ping.repeat(PINGS);
    seeds.push(("lost_header".into(), [&lost[..], &pings].concat()));
    seeds.push(("lost_header_and_marker".into(), [&lost[..], &[23, 0, 0, 0, 0, 8, 0, 0, 0, 0], &pings].concat()));
    seeds
}

/// The seeds of the initiator's side: a read, a damaged answer, a ping of the target.
pub fn seeds_initiator() -> Vec<(String, Vec<u8>)> {
    let mut seeds = with_markers(initiator_full_feature::seeds());
    let ping = [6, 0, 31, 0, 0];
    let lost = [&[0, 1, 0x10, 0, 2, 0, 16, 15, 0][..], &ping.repeat(12)].concat();
    seeds.push(("lost_header".into(), lost));
    seeds
}

fn with_markers(seeds: Vec<(String, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    seeds.into_iter().map(|(name, bytes)| (name, [&[0, 0][..], &bytes].concat())).collect()
}

#[cfg(test)]
mod tests {
    use lunette_pdu::BHS_LEN;

    use super::*;

    /// Pings that are answered, of those that the seed sends.
    fn answers(seed: &str) -> usize {
        let (_, bytes) = seeds().into_iter().find(|(name, _)| name == seed).expect("it is a seed");
        let mut input = Input::new(&bytes);
        let recovery = recovery(&mut input);
        let steps = input.rest();
        let played = full_feature::play(steps, &recovery);
        let last_words = full_feature::play(&steps[..5], &recovery);
        (played.transcript.len() - last_words.transcript.len()) / (BHS_LEN + 4)
    }

    #[test]
    fn a_lost_header_costs_the_pings_up_to_a_marker_that_is_right() {
        let (lost, lost_two) = (answers("lost_header"), answers("lost_header_and_marker"));
        assert!(0 < lost_two && lost_two < lost && lost < 1 + PINGS, "{lost}, {lost_two}");
    }
}
