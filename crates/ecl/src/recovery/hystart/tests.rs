use super::*;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Rounds of ten samples each, all of one length; the answer is the round in which slow start was over.
fn over_after(rounds: &[u64]) -> (HyStart, Option<usize>) {
    let mut hystart = HyStart::default();
    for (round, rtt) in (0_u64..).zip(rounds) {
        for sample in 0..10 {
            let acknowledged = round * 10 + sample;
            if hystart.on_sample(ms(*rtt), acknowledged, round * 10 + 10) {
                return (hystart, usize::try_from(round).ok());
            }
        }
    }
    (hystart, None)
}

#[test]
fn a_steady_path_is_not_slowed_by_rfc_9406_section_4_2() {
    assert_eq!(over_after(&[50; 20]).1, None);
    assert_eq!(over_after(&[50, 53, 56, 59]).0.growth(800), 800, "less than 4 ms, and than an eighth, in a round");
}

#[test]
fn a_rise_makes_growth_a_quarter_and_ends_slow_start_after_five_rounds_by_rfc_9406_section_4_2() {
    let (hystart, over) = over_after(&[50, 58]);
    assert_eq!((hystart.growth(800), over), (200, None));
    assert_eq!(over_after(&[50, 58, 60, 60, 60, 60, 60]).1, Some(6));
}

#[test]
fn slow_start_goes_on_when_the_round_trip_is_short_again_by_rfc_9406_section_4_2() {
    let (hystart, over) = over_after(&[50, 58, 50, 50, 50, 50, 50, 50]);
    assert_eq!((hystart.growth(800), over), (800, None));
}

#[test]
fn few_samples_are_no_proof_by_rfc_9406_section_4_2() {
    let mut hystart = HyStart::default();
    for round in 0..9 {
        assert!(!hystart.on_sample(ms(50 + round * 20), round, round + 1));
    }
    assert_eq!(hystart.growth(800), 800);
}

#[test]
fn the_rise_is_an_eighth_within_4_and_16_ms_by_rfc_9406_section_4_3() {
    for (before, after, is_slow) in
        [(8, 11, false), (8, 12, true), (64, 71, false), (64, 72, true), (400, 415, false), (400, 416, true)]
    {
        assert_eq!(over_after(&[before, after]).0.growth(800) < 800, is_slow, "{before} to {after} ms");
    }
}
