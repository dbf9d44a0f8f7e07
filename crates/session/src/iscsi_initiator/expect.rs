//! The purpose of bytes that are due on a connection.

use lunette_pdu::{DataIn, TargetPdu};

use super::event::TaskTag;
use super::table::Table;
use super::task::Task;

/// The purpose of the data segment of the header that has just been read.
pub(super) enum Expect {
    /// No data segment follows.
    Nothing,
    /// The segment is collected, and handled with its header.
    Segment(TargetPdu),
    /// Data of a task.
    Data(DataIn),
    /// The Data-In at a recovery level above 0: only undamaged bytes count.
    Recoverable(DataIn),
}

impl Expect {
    /// Where the bytes go, when they belong to a task.
    pub(super) fn place<'a>(&self, tasks: &'a mut Table<Task>) -> Option<&'a mut [u8]> {
        let (Self::Data(pdu) | Self::Recoverable(pdu)) = self else { return None };
        let task = tasks.get_mut(TaskTag::from_itt(pdu.itt))?;
        Some(task.place(pdu.buffer_offset, pdu.data_segment_len as u32))
    }
}
