use super::*;

const fn us(us: u64) -> Time {
    Time::new(Duration::from_micros(us))
}

/// 1 byte per µs, and 64 KiB at once.
const RATE: Rate = Rate { bytes_per_second: 1e6, burst: MAX_BURST_BYTES };

fn empty(now: Time) -> Pacer {
    let mut pacer = Pacer::new(MAX_BURST_BYTES, now);
    pacer.on_sent(MAX_BURST_BYTES);
    pacer
}

#[test]
fn a_batch_leaves_at_once_and_the_next_one_at_the_rate() {
    let mut pacer = Pacer::new(MAX_BURST_BYTES, us(0));
    assert_eq!(pacer.allow(1400, MAX_BURST_BYTES, RATE, us(0)), Ok(MAX_BURST_BYTES));
    pacer.on_sent(MAX_BURST_BYTES);
    assert_eq!(pacer.allow(1400, MAX_BURST_BYTES, RATE, us(0)), Err(us(MAX_BURST_BYTES)));
    assert_eq!(pacer.allow(1400, 14_000, RATE, us(0)), Err(us(14_000)));
    assert_eq!(pacer.allow(1400, MAX_BURST_BYTES, RATE, us(MAX_BURST_BYTES)), Ok(MAX_BURST_BYTES));
}

#[test]
fn what_is_less_than_a_millisecond_early_leaves() {
    let mut pacer = empty(us(0));
    assert_eq!(pacer.allow(1400, 14_000, RATE, us(399)), Err(us(14_000)));
    assert_eq!(pacer.allow(1400, 14_000, RATE, us(400)), Ok(1400));
    pacer.on_sent(1400);
    // It is paid back: the next one must wait for both.
    assert_eq!(pacer.allow(1400, 1400, RATE, us(400)), Err(us(2800)));
    assert_eq!(pacer.allow(1400, 1400, RATE, us(1800)), Ok(1400));
}

#[test]
fn the_rate_is_kept_over_time() {
    let mut pacer = empty(us(0));
    let mut now = us(0);
    let mut sent = 0;
    while now < us(1_000_000) {
        match pacer.allow(1400, 14_000, RATE, now) {
            Ok(bytes) => {
                pacer.on_sent(bytes);
                sent += bytes;
            }
            Err(at) => now = at,
        }
    }
    assert!((1_000_000 - 14_000..1_000_000 + 15_000).contains(&sent), "{sent} bytes in a second");
}

#[test]
fn idle_time_is_worth_one_burst() {
    let mut pacer = empty(us(0));
    assert_eq!(pacer.allow(1400, 1 << 20, RATE, us(1 << 40)), Ok(MAX_BURST_BYTES + 1000));
}

#[test]
fn a_datagram_beyond_the_burst_leaves_when_the_bucket_is_full() {
    let rate = Rate { burst: 1000, ..RATE };
    let mut pacer = Pacer::new(1000, us(0));
    assert_eq!(pacer.allow(1400, 1400, rate, us(0)), Ok(1400));
    pacer.on_sent(1400);
    assert_eq!(pacer.allow(1400, 1400, rate, us(0)), Err(us(1400)));
}

#[test]
fn a_burst_is_a_quarter_of_the_window_within_bounds() {
    let burst = |window| Rate::new(window, Duration::from_millis(10), 1.25, 14_000).burst;
    assert_eq!((burst(20_000), burst(100_000), burst(1 << 30)), (14_000, 25_000, MAX_BURST_BYTES));
    let rate = Rate::new(100_000, Duration::from_millis(10), 1.25, 14_000);
    assert!((rate.bytes_per_second - 12.5e6).abs() < 1.0);
    assert!(Rate::new(1 << 32, Duration::ZERO, 2.0, 14_000).bytes_per_second.is_finite());
}
