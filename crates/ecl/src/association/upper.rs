//! The owner of the stream.

use lunette_pdu::BHS_LEN;

/// A session's connection, with the driver that takes its events.
pub trait Upper {
    /// How it names a place.
    type Place: Copy;

    /// Whether it takes bytes of the stream now: it holds none back, and does not wait for its driver. What it has
    /// [collected](Self::collects) it deals with first.
    fn takes(&mut self) -> bool;

    /// Whether the next `len` bytes may be [delivered](Self::deliver), whether it takes bytes or not: it keeps them
    /// with those before them, to deal with many short pieces at once.
    fn collects(&self, len: usize) -> bool {
        let _ = len;
        false
    }

    /// Bytes of the stream, in order. What it cannot take it holds back itself, and [`takes`](Self::takes) nothing
    /// until it has.
    fn deliver(&mut self, bytes: &[u8]);

    /// The place of `len` bytes, `pdu_offset` behind the basic header segment of a PDU that is not due yet.
    fn place_early(&mut self, bhs: &[u8; BHS_LEN], pdu_offset: u32, len: usize) -> Option<(Self::Place, &mut [u8])>;

    /// The next `len` bytes of the stream are in their place, `skipped` bytes behind its front. False when they are due
    /// elsewhere.
    fn placed(&mut self, place: Self::Place, skipped: usize, len: usize) -> bool;
}
