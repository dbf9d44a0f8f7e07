use super::*;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const NOW: Time = Time::new(Duration::from_secs(9));

#[test]
fn before_a_sample_it_is_a_third_of_a_second_by_section_6_2_2() {
    let rtt = Rtt::default();
    assert_eq!((rtt.smoothed(), rtt.variance(), rtt.first_sample_at()), (ms(333), ms(333) / 2, None));
    assert_eq!(rtt.probe_timeout(), ms(333) + ms(666) + ACK_DELAY);
}

#[test]
fn the_first_sample_is_taken_as_it_is_by_section_5_3() {
    let mut rtt = Rtt::default();
    rtt.sample(ms(40), ms(3), NOW);
    assert_eq!((rtt.latest(), rtt.smoothed(), rtt.variance(), rtt.min()), (ms(40), ms(40), ms(20), ms(40)));
    assert_eq!(rtt.first_sample_at(), Some(NOW));
}

#[test]
fn later_samples_are_smoothed_without_the_delay_of_the_peer_by_section_5_3() {
    let mut rtt = Rtt::default();
    rtt.sample(ms(40), ms(0), NOW);
    rtt.sample(ms(52), ms(4), NOW);
    // 48 ms: 40 × 7/8 + 48 / 8, and 20 × 3/4 + 8 / 4.
    assert_eq!((rtt.smoothed(), rtt.variance(), rtt.min()), (ms(41), ms(17), ms(40)));
    assert_eq!(rtt.probe_timeout(), ms(41) + ms(68) + ACK_DELAY);
}

#[test]
fn a_delay_beyond_the_agreed_one_is_part_of_the_path_by_section_5_3() {
    let (mut honest, mut liar) = (Rtt::default(), Rtt::default());
    for rtt in [&mut honest, &mut liar] {
        rtt.sample(ms(40), ms(0), NOW);
    }
    honest.sample(ms(80), ACK_DELAY, NOW);
    liar.sample(ms(80), ms(39), NOW);
    assert_eq!(honest, liar);
}

#[test]
fn a_delay_does_not_make_the_path_faster_than_ever_by_section_5_3() {
    let mut rtt = Rtt::default();
    rtt.sample(ms(40), ms(0), NOW);
    rtt.sample(ms(42), ms(4), NOW);
    assert_eq!(rtt.smoothed(), ms(40) * 7 / 8 + ms(42) / 8);
}

#[test]
fn the_shortest_is_of_raw_samples_by_section_5_2() {
    let mut rtt = Rtt::default();
    for (latest, delay) in [(40, 0), (30, 5), (50, 5)] {
        rtt.sample(ms(latest), ms(delay), NOW);
    }
    assert_eq!(rtt.min(), ms(30));
}

#[test]
fn a_timer_is_no_shorter_than_its_resolution_by_section_6_2_1() {
    let mut rtt = Rtt::default();
    for _ in 0..200 {
        rtt.sample(Duration::from_micros(50), ms(0), NOW);
    }
    assert!(rtt.probe_timeout() >= GRANULARITY + ACK_DELAY + Duration::from_micros(49));
}
