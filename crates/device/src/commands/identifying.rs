//! REPORT IDENTIFYING INFORMATION and SET IDENTIFYING INFORMATION (SPC-5 6.32, 6.45).

use std::sync::Arc;

use lunette_scsi::{AdditionalSense, FieldPointer, SenseData};

use crate::commands::context::Cx;
use crate::coroutine::Reply;
use crate::unit::identifying::InformationType;

/// The INFORMATION TYPE that reports the supported types with their maximum lengths.
const SUPPORTED: u8 = 0x7f;

const TYPE_FIELD: FieldPointer = FieldPointer::cdb(10).bit(7);
const LIST_LENGTH_FIELD: FieldPointer = FieldPointer::cdb(6);

/// Executes REPORT IDENTIFYING INFORMATION.
pub(crate) async fn report_identifying_information(cx: Cx) -> Reply {
    let information = match information_type(&cx) {
        SUPPORTED => InformationType::ALL.into_iter().flat_map(descriptor).collect(),
        other => cx.unit()?.identifying().read(InformationType::decode(other).ok_or(TYPE_FIELD)?),
    };
    // The longest information has 512 bytes.
    let [high, low] = (information.len() as u16).to_be_bytes();
    let data = [&[0, 0, high, low], information.as_slice()].concat();
    cx.reply(&data, cx.cdb.u32_at(6) as usize).await
}

/// Executes SET IDENTIFYING INFORMATION. An empty list removes the information.
pub(crate) async fn set_identifying_information(cx: Cx) -> Reply {
    let kind = InformationType::decode(information_type(&cx)).ok_or(TYPE_FIELD)?;
    let list_len = cx.cdb.u32_at(6);
    if list_len > u32::from(kind.max_len()) {
        return Err(LIST_LENGTH_FIELD.into());
    }
    let list = cx.data_out(u64::from(list_len), 1).await?;
    let information = list.as_deref().unwrap_or_default();
    if information.len() as u64 != u64::from(list_len) {
        return Err(SenseData::PARAMETER_LIST_LENGTH_ERROR);
    }
    if !information.is_empty() && !kind.accepts(information) {
        return Err(FieldPointer::data(0).into());
    }
    let (unit, by, information) = (Arc::clone(cx.unit()?), cx.nexus.id, information.to_vec());
    let change = move || {
        if unit.identifying().set(kind, information)? {
            unit.raise_for_others(by, AdditionalSense::DEVICE_IDENTIFIER_CHANGED);
        }
        Ok(())
    };
    cx.persist(change).await?;
    Ok(None)
}

fn information_type(cx: &Cx) -> u8 {
    cx.cdb.byte(10) >> 1
}

/// A descriptor of the list of supported types: INFORMATION TYPE and MAXIMUM INFORMATION LENGTH.
fn descriptor(kind: InformationType) -> [u8; 4] {
    let [high, low] = kind.max_len().to_be_bytes();
    [(kind as u8) << 1, 0, high, low]
}
