//! Markers in the stream (RFC 3720 appendix A), over sockets.

use lunette_initiator::wait;
use lunette_session::keys::Choices;

use crate::fixture::{Target, blocks, disk, memory, options};

/// Markers stand in headers, data, pads and digests, and in what is received straight into its place.
#[test]
fn data_is_the_same_with_markers_wherever_they_stand() {
    for (interval, segment, connections) in [(64, 512, 1), (67, 8192, 3), (2048, 262_144, 1), (65_535, 262_144, 2)] {
        let target = Target::with(memory(), |config| config.targets[0].offer.marker_interval = Some(2048));
        let mut options = options();
        options.offer.header_digest = Choices(0b10);
        options.offer.data_digest = Choices(0b10);
        options.offer.recv_data_segment_len = segment;
        options.offer.max_connections = connections;
        options.offer.marker_interval = Some(interval);
        let disk = disk(target.address, options);
        let parameters = disk.session().parameters();
        assert!(parameters.of_marker && parameters.if_marker);
        assert_eq!((parameters.of_mark_int, parameters.if_mark_int), (interval, interval));
        for count in [1, 2, 3, 17, 100, 129, 2048, 9000] {
            let data = blocks(count, count as u8);
            wait(disk.write(5, &data, false)).unwrap();
            let mut back = vec![0; data.len()];
            wait(disk.read_into(5, &mut back)).unwrap();
            assert!(back == data, "{count} blocks, an interval of {interval} words, segments of {segment} bytes");
        }
    }
}

#[test]
fn a_target_without_markers_is_used_without_them() {
    let target = Target::new();
    let mut options = options();
    options.offer.marker_interval = Some(2048);
    let disk = disk(target.address, options);
    assert!(!disk.session().parameters().of_marker && !disk.session().parameters().if_marker);
    wait(disk.write(0, &blocks(100, 1), false)).unwrap();
}
