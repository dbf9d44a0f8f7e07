//! Mode pages: the table of supported pages, and their values on a logical unit (SPC-5 7.5, SBC-4 6.5).

pub(crate) mod common;

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_scsi::mode::select::SelectedPage;
use lunette_scsi::mode::{self, PageCode, PageControl, caching, control, error_recovery};
use lunette_scsi::{SenseData, SenseFormat};
use lunette_state::{StateError, StateStore};
use lunette_store::Capabilities;

use crate::persist::{self, StateSlot, ValueReader, put_bytes};
use crate::unit::LogicalUnitConfig;
use crate::unit::space;

/// A byte of the parameters, with the bits of it that MODE SELECT may change.
type Changeable = (usize, u8);

/// The properties of a unit that determine its mode parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnitTraits {
    store: Capabilities,
    threshold_bytes: Option<u64>,
}

impl UnitTraits {
    pub(crate) fn of(config: &LogicalUnitConfig) -> Self {
        Self { store: config.store.capabilities(), threshold_bytes: config.soft_threshold_bytes }
    }
}

/// A row of the table of mode pages.
pub(crate) struct ModePage {
    pub(crate) code: PageCode,
    pub(crate) subpage: u8,
    /// The default parameters; empty where the unit does not have the page.
    defaults: fn(UnitTraits) -> Vec<u8>,
    changeable: fn(UnitTraits) -> &'static [Changeable],
}

/// The pages, in the order of their codes and subpage codes.
pub(crate) static PAGES: [ModePage; 8] = [
    ModePage {
        code: PageCode::READ_WRITE_ERROR_RECOVERY,
        subpage: 0,
        defaults: |traits| {
            let mut parameters = vec![0; error_recovery::LEN];
            parameters[error_recovery::LBPERE_AT] = if traits.store.unmap { error_recovery::LBPERE } else { 0 };
            parameters
        },
        changeable: |traits| {
            if traits.store.unmap { &[(error_recovery::LBPERE_AT, error_recovery::LBPERE)] } else { &[] }
        },
    },
    fixed(PageCode::DISCONNECT_RECONNECT, 0, |_| mode::DISCONNECT_RECONNECT.to_vec()),
    ModePage {
        code: PageCode::CACHING,
        subpage: 0,
        defaults: |traits| {
            let mut parameters = vec![0; caching::LEN];
            parameters[caching::WCE_AT] = if traits.store.volatile_cache { caching::WCE } else { 0 };
            parameters
        },
        // A store that makes every write durable has no cache to enable.
        changeable: |traits| if traits.store.volatile_cache { &[(caching::WCE_AT, caching::WCE)] } else { &[] },
    },
    ModePage {
        code: PageCode::CONTROL,
        subpage: 0,
        defaults: |_| control::DEFAULT.to_vec(),
        changeable: |_| &[(control::D_SENSE_AT, control::D_SENSE), (control::SWP_AT, control::SWP)],
    },
    fixed(PageCode::CONTROL, mode::CONTROL_EXTENSION_SUBPAGE, |_| mode::CONTROL_EXTENSION.to_vec()),
    fixed(PageCode::POWER_CONDITION, 0, |_| mode::POWER_CONDITION.to_vec()),
    fixed(PageCode::INFORMATIONAL_EXCEPTIONS, 0, |_| mode::INFORMATIONAL_EXCEPTIONS.to_vec()),
    fixed(PageCode::INFORMATIONAL_EXCEPTIONS, mode::LOGICAL_BLOCK_PROVISIONING_SUBPAGE, |traits| {
        traits.threshold_bytes.map_or_else(Vec::new, |bytes| mode::provisioning::parameters(space::sets(bytes)))
    }),
];

/// A page without changeable bits.
const fn fixed(code: PageCode, subpage: u8, defaults: fn(UnitTraits) -> Vec<u8>) -> ModePage {
    ModePage { code, subpage, defaults, changeable: |_| &[] }
}

/// The parameters of each page of [`PAGES`].
type PageValues = [Vec<u8>; PAGES.len()];

const WRITE_CACHE: u8 = 0x01;
const WRITE_PROTECT: u8 = 0x02;
const DESCRIPTOR_SENSE: u8 = 0x04;
const REPORT_THRESHOLDS: u8 = 0x08;

/// The mode parameters of one logical unit, shared by all its nexuses. Commands read them from one word.
pub(crate) struct ModeState {
    traits: UnitTraits,
    flags: AtomicU8,
    values: Mutex<PageSets>,
    slot: Option<Arc<StateSlot>>,
    /// Whether several servers have them in common.
    is_common: bool,
}

struct PageSets {
    current: PageValues,
    saved: PageValues,
    published: common::Published,
}

impl ModeState {
    /// Loads the parameters that `state` holds for the unit with this serial number, or else the defaults. With
    /// `is_common`, they are those that a gateway publishes.
    pub(crate) fn open(
        traits: UnitTraits,
        state: Option<&Arc<dyn StateStore>>,
        serial: &str,
        is_common: bool,
    ) -> Result<Self, StateError> {
        let decode = |bytes: &[u8]| decode(bytes, traits);
        let (slot, saved_value) = persist::open(state, format!("mode-pages/{serial}"), decode)?;
        let values = saved_value.unwrap_or_else(|| defaults(traits));
        let flags = AtomicU8::new(flags(&values));
        let sets = PageSets { current: values.clone(), saved: values, published: common::Published::default() };
        Ok(Self { traits, flags, values: Mutex::new(sets), slot, is_common })
    }

    /// Whether MODE SELECT can save pages, which needs a state store. Saved values exist only then.
    pub(crate) fn can_save(&self) -> bool {
        self.slot.is_some()
    }

    /// WCE: writes may be acknowledged before they are on stable storage.
    pub(crate) fn write_cache(&self) -> bool {
        self.flags.load(Ordering::Acquire) & WRITE_CACHE != 0
    }

    /// SWP: software write protection.
    pub(crate) fn write_protect(&self) -> bool {
        self.flags.load(Ordering::Acquire) & WRITE_PROTECT != 0
    }

    /// LBPERE: reaching a provisioning threshold raises a unit attention.
    pub(crate) fn reports_thresholds(&self) -> bool {
        self.flags.load(Ordering::Acquire) & REPORT_THRESHOLDS != 0
    }

    /// The sense data format that `D_SENSE` selects.
    pub(crate) fn sense_format(&self) -> SenseFormat {
        match self.flags.load(Ordering::Acquire) & DESCRIPTOR_SENSE {
            0 => SenseFormat::Fixed,
            _ => SenseFormat::Descriptor,
        }
    }

    /// The pages that `wanted` accepts, concatenated.
    pub(crate) fn pages(&self, control: PageControl, wanted: impl Fn(&ModePage) -> bool) -> Vec<u8> {
        let values = self.values();
        let mut pages = Vec::new();
        let is_supported = |index: usize| !values.current[index].is_empty();
        for (index, page) in PAGES.iter().enumerate().filter(|(index, page)| is_supported(*index) && wanted(page)) {
            let parameters = match control {
                PageControl::Current => values.current[index].clone(),
                PageControl::Saved => values.saved[index].clone(),
                PageControl::Default => (page.defaults)(self.traits),
                PageControl::Changeable => page.mask(self.traits),
            };
            let savable = self.can_save() && page.is_changeable(self.traits);
            pages.extend(mode::page(page.code, page.subpage, savable, &parameters));
        }
        pages
    }

    /// Applies the pages of a MODE SELECT, all or none. Returns whether a current value changed.
    ///
    /// # Errors
    ///
    /// INVALID FIELD IN PARAMETER LIST, pointing at an unknown page, a wrong length, or a bit that cannot be changed.
    pub(crate) fn select(&self, pages: &[SelectedPage<'_>]) -> Result<bool, SenseData> {
        let mut values = self.values();
        let next = selected(pages, &values.current, self.traits)?;
        let is_change = next != values.current;
        self.take_over(&mut values, next);
        Ok(is_change)
    }

    /// Saves all savable pages with those of a MODE SELECT, and then applies them like [`Self::select`].
    pub(crate) fn select_and_save(&self, pages: &[SelectedPage<'_>]) -> Result<Result<bool, SenseData>, StateError> {
        let Some(slot) = &self.slot else { return Ok(self.select(pages)) };
        let turn = slot.turn();
        let next = match selected(pages, &self.values().current, self.traits) {
            Ok(next) => next,
            Err(sense) => return Ok(Err(sense)),
        };
        turn.save(Some(&encode(&next, self.traits)))?;
        self.values().saved = next;
        // Current values that have changed since stay as they are.
        Ok(self.select(pages))
    }

    /// The current parameters, as they would be saved.
    pub(crate) fn handover(&self) -> Vec<u8> {
        encode(&self.values().current, self.traits)
    }

    /// Takes over the current parameters of a predecessor. Pages that could not be changed there stay as they are.
    /// `None`, and nothing changes, for other bytes than those of [`handover`](Self::handover).
    pub(crate) fn inherit(&self, bytes: &[u8]) -> Option<()> {
        let mut values = self.values();
        let current = decode_over(values.current.clone(), bytes, self.traits)?;
        self.take_over(&mut values, current);
        Some(())
    }

    /// Restores the saved values on a reset (SPC-5 5.13). A reset does not reach the other servers of a unit, so what
    /// they have in common stays.
    pub(crate) fn reset(&self) {
        if self.is_common {
            return;
        }
        let mut values = self.values();
        let saved = values.saved.clone();
        self.take_over(&mut values, saved);
    }

    fn take_over(&self, values: &mut PageSets, current: PageValues) {
        self.flags.store(flags(&current), Ordering::Release);
        values.current = current;
    }

    fn values(&self) -> MutexGuard<'_, PageSets> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ModePage {
    fn is_changeable(&self, traits: UnitTraits) -> bool {
        !(self.changeable)(traits).is_empty()
    }

    fn mask(&self, traits: UnitTraits) -> Vec<u8> {
        let mut mask = vec![0; (self.defaults)(traits).len()];
        for (at, bits) in (self.changeable)(traits) {
            mask[*at] |= bits;
        }
        mask
    }
}

/// The values with these pages of a MODE SELECT in their places.
fn selected(pages: &[SelectedPage<'_>], values: &PageValues, traits: UnitTraits) -> Result<PageValues, SenseData> {
    let mut changed = values.clone();
    for page in pages {
        let index = find(page, &changed)?;
        let current = &mut changed[index];
        if page.parameters.len() != current.len() {
            return Err(page.length_field().into());
        }
        let mask = PAGES[index].mask(traits);
        for (at, (wanted, mask)) in page.parameters.iter().zip(mask).enumerate() {
            let stray = (wanted ^ current[at]) & !mask;
            if stray != 0 {
                return Err(page.parameter_field(at, stray.ilog2() as u8).into());
            }
        }
        current.copy_from_slice(page.parameters);
    }
    Ok(changed)
}

/// The index of a page in the table.
fn find(page: &SelectedPage<'_>, values: &PageValues) -> Result<usize, SenseData> {
    let index = PAGES.iter().position(|known| (known.code, known.subpage) == (page.code, page.subpage));
    if let Some(index) = index.filter(|index| !values[*index].is_empty()) {
        return Ok(index);
    }
    let known = PAGES.iter().any(|known| known.code == page.code);
    Err(if known { page.subpage_field() } else { page.code_field() }.into())
}

fn defaults(traits: UnitTraits) -> PageValues {
    std::array::from_fn(|index| (PAGES[index].defaults)(traits))
}

/// Version of the encoding of saved pages.
const VERSION: u8 = 1;

/// Encodes the changeable pages: version; then for each page its code, its subpage code, and its parameters after their
/// length in two bytes.
fn encode(values: &PageValues, traits: UnitTraits) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    for (page, parameters) in PAGES.iter().zip(values).filter(|(page, _)| page.is_changeable(traits)) {
        bytes.extend_from_slice(&[page.code.0, page.subpage]);
        put_bytes(&mut bytes, parameters);
    }
    bytes
}

/// Decodes a value of [`encode`]: the changeable bits of each page that still exists, since the store and this table
/// may have changed. `None` for any other bytes.
fn decode(bytes: &[u8], traits: UnitTraits) -> Option<PageValues> {
    decode_over(defaults(traits), bytes, traits)
}

/// Like [`decode`], and pages that are not in the bytes stay as they are in `values`.
fn decode_over(mut values: PageValues, bytes: &[u8], traits: UnitTraits) -> Option<PageValues> {
    let mut reader = ValueReader(bytes);
    if reader.take()? != [VERSION] {
        return None;
    }
    while !reader.is_empty() {
        let ([code, subpage], parameters) = (reader.take()?, reader.bytes()?);
        let known = PAGES.iter().position(|page| (page.code, page.subpage) == (PageCode(code), subpage));
        let Some(index) = known else { continue };
        let mask = PAGES[index].mask(traits);
        for ((value, saved), mask) in values[index].iter_mut().zip(parameters).zip(mask) {
            *value = *value & !mask | saved & mask;
        }
    }
    Some(values)
}

fn flags(values: &PageValues) -> u8 {
    let set = |code: PageCode, at: usize, bit: u8| {
        let index = PAGES.iter().position(|page| page.code == code && page.subpage == 0);
        index.and_then(|index| values[index].get(at)).is_some_and(|byte| byte & bit != 0)
    };
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    flag(set(PageCode::CACHING, caching::WCE_AT, caching::WCE), WRITE_CACHE)
        | flag(set(PageCode::CONTROL, control::SWP_AT, control::SWP), WRITE_PROTECT)
        | flag(set(PageCode::CONTROL, control::D_SENSE_AT, control::D_SENSE), DESCRIPTOR_SENSE)
        | flag(
            set(PageCode::READ_WRITE_ERROR_RECOVERY, error_recovery::LBPERE_AT, error_recovery::LBPERE),
            REPORT_THRESHOLDS,
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_by_code_and_subpage() {
        assert!(PAGES.is_sorted_by_key(|page| (page.code, page.subpage)));
    }

    const STORE: Capabilities = Capabilities {
        read_only: false,
        volatile_cache: true,
        unmap: false,
        unmap_zeroes: false,
        anchors: false,
        write_zeroes: false,
        memory: false,
    };
    const CACHED: UnitTraits = UnitTraits { store: STORE, threshold_bytes: None };

    #[test]
    fn saved_pages_fit_a_store_that_has_changed() {
        let mut values = defaults(CACHED);
        values[2][caching::WCE_AT] = 0;
        values[3][control::SWP_AT] = control::SWP;
        let bytes = encode(&values, CACHED);
        assert_eq!(decode(&bytes, CACHED), Some(values));
        let uncached = UnitTraits { store: Capabilities { volatile_cache: false, ..STORE }, ..CACHED };
        let values = decode(&bytes, uncached).unwrap();
        assert_eq!(values[2], defaults(uncached)[2]);
        assert_eq!(flags(&values), WRITE_PROTECT);
        let unknown_page = [&bytes[..], &[0x3e, 0, 0, 1, 7]].concat();
        assert_eq!(decode(&unknown_page, uncached), Some(values));
    }

    #[test]
    fn a_page_that_the_predecessor_could_not_change_stays_as_it_is_saved() {
        let mut saved = defaults(CACHED);
        saved[2][caching::WCE_AT] = 0;
        let uncached = UnitTraits { store: Capabilities { volatile_cache: false, ..STORE }, ..CACHED };
        let mut current = defaults(uncached);
        current[3][control::SWP_AT] |= control::SWP;
        let inherited = decode_over(saved, &encode(&current, uncached), CACHED).unwrap();
        assert_eq!(flags(&inherited), WRITE_PROTECT);
    }

    #[test]
    fn truncated_and_newer_values_are_refused() {
        let bytes = encode(&defaults(CACHED), CACHED);
        assert_eq!(decode(&bytes[..bytes.len() - 1], CACHED), None);
        assert_eq!(decode(&[2], CACHED), None);
        assert_eq!(decode(&[], CACHED), None);
    }
}
