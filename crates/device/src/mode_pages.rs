//! Mode pages: one table of what there is, and the values of a logical unit (SPC-5 7.5, SBC-4 6.5).

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lunette_scsi::mode::select::SelectedPage;
use lunette_scsi::mode::{self, PageCode, PageControl, caching, control};
use lunette_scsi::{SenseData, SenseFormat};
use lunette_store::Capabilities;

/// A byte of the parameters and the bits of it that MODE SELECT may change.
type Changeable = (usize, u8);

/// One page.
pub(crate) struct ModePage {
    pub(crate) code: PageCode,
    pub(crate) subpage: u8,
    /// Parameters of a unit that nobody has changed.
    defaults: fn(Capabilities) -> Vec<u8>,
    changeable: fn(Capabilities) -> &'static [Changeable],
}

/// The pages, in the order of their codes and subpage codes.
pub(crate) static PAGES: [ModePage; 7] = [
    fixed(PageCode::READ_WRITE_ERROR_RECOVERY, 0, |_| mode::ERROR_RECOVERY.to_vec()),
    fixed(PageCode::DISCONNECT_RECONNECT, 0, |_| mode::DISCONNECT_RECONNECT.to_vec()),
    ModePage {
        code: PageCode::CACHING,
        subpage: 0,
        defaults: |store| {
            let mut parameters = vec![0; caching::LEN];
            parameters[caching::WCE_AT] = if store.volatile_cache { caching::WCE } else { 0 };
            parameters
        },
        // A store that puts every write on stable storage has no cache to turn on.
        changeable: |store| if store.volatile_cache { &[(caching::WCE_AT, caching::WCE)] } else { &[] },
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
];

/// A page without changeable bits.
const fn fixed(code: PageCode, subpage: u8, defaults: fn(Capabilities) -> Vec<u8>) -> ModePage {
    ModePage { code, subpage, defaults, changeable: |_| &[] }
}

/// The parameters of each page of [`PAGES`].
type Values = [Vec<u8>; PAGES.len()];

const WRITE_CACHE: u8 = 0x01;
const WRITE_PROTECT: u8 = 0x02;
const DESCRIPTOR_SENSE: u8 = 0x04;

/// The mode parameters of one logical unit, shared by all its nexuses. What commands decide by stands in one word.
pub(crate) struct ModeState {
    store: Capabilities,
    flags: AtomicU8,
    values: Mutex<Sets>,
}

struct Sets {
    current: Values,
    saved: Values,
}

impl ModeState {
    /// Nothing changed, nothing saved.
    pub(crate) fn new(store: Capabilities) -> Self {
        let values: Values = std::array::from_fn(|index| (PAGES[index].defaults)(store));
        let flags = AtomicU8::new(flags(&values));
        Self { store, flags, values: Mutex::new(Sets { current: values.clone(), saved: values }) }
    }

    /// WCE: writes may be acknowledged before they are on stable storage.
    pub(crate) fn write_cache(&self) -> bool {
        self.flags.load(Ordering::Acquire) & WRITE_CACHE != 0
    }

    /// SWP: software write protection.
    pub(crate) fn write_protect(&self) -> bool {
        self.flags.load(Ordering::Acquire) & WRITE_PROTECT != 0
    }

    /// `D_SENSE`.
    pub(crate) fn sense_format(&self) -> SenseFormat {
        match self.flags.load(Ordering::Acquire) & DESCRIPTOR_SENSE {
            0 => SenseFormat::Fixed,
            _ => SenseFormat::Descriptor,
        }
    }

    /// The pages that `wanted` accepts, one after the other.
    pub(crate) fn pages(&self, control: PageControl, wanted: impl Fn(&ModePage) -> bool) -> Vec<u8> {
        let values = self.values();
        let mut pages = Vec::new();
        for (index, page) in PAGES.iter().enumerate().filter(|(_, page)| wanted(page)) {
            let parameters = match control {
                PageControl::Current => values.current[index].clone(),
                PageControl::Saved => values.saved[index].clone(),
                PageControl::Default => (page.defaults)(self.store),
                PageControl::Changeable => page.mask(self.store),
            };
            let savable = !(page.changeable)(self.store).is_empty();
            pages.extend(mode::page(page.code, page.subpage, savable, &parameters));
        }
        pages
    }

    /// Takes over the pages of a MODE SELECT, all or none, and saves all when `save` says so. Tells whether a value in
    /// force has changed.
    ///
    /// # Errors
    ///
    /// INVALID FIELD IN PARAMETER LIST, pointing at the page that there is not, the wrong length, or the bit that cannot
    /// be changed.
    pub(crate) fn select(&self, pages: &[SelectedPage<'_>], save: bool) -> Result<bool, SenseData> {
        let mut values = self.values();
        let mut changed = values.current.clone();
        for page in pages {
            let index = find(page)?;
            let current = &mut changed[index];
            if page.parameters.len() != current.len() {
                return Err(page.length_field().into());
            }
            let mask = PAGES[index].mask(self.store);
            for (at, (wanted, mask)) in page.parameters.iter().zip(mask).enumerate() {
                let stray = (wanted ^ current[at]) & !mask;
                if stray != 0 {
                    return Err(page.parameter_field(at, stray.ilog2() as u8).into());
                }
            }
            current.copy_from_slice(page.parameters);
        }
        if save {
            values.saved.clone_from(&changed);
        }
        let differs = changed != values.current;
        self.take_over(&mut values, changed);
        Ok(differs)
    }

    /// A reset: the saved values are in force again (SPC-5 5.13).
    pub(crate) fn reset(&self) {
        let mut values = self.values();
        let saved = values.saved.clone();
        self.take_over(&mut values, saved);
    }

    fn take_over(&self, values: &mut Sets, current: Values) {
        self.flags.store(flags(&current), Ordering::Release);
        values.current = current;
    }

    fn values(&self) -> MutexGuard<'_, Sets> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ModePage {
    fn mask(&self, store: Capabilities) -> Vec<u8> {
        let mut mask = vec![0; (self.defaults)(store).len()];
        for (at, bits) in (self.changeable)(store) {
            mask[*at] |= bits;
        }
        mask
    }
}

/// The index of a page in the table.
fn find(page: &SelectedPage<'_>) -> Result<usize, SenseData> {
    if let Some(index) = PAGES.iter().position(|known| (known.code, known.subpage) == (page.code, page.subpage)) {
        return Ok(index);
    }
    let known = PAGES.iter().any(|known| known.code == page.code);
    Err(if known { page.subpage_field() } else { page.code_field() }.into())
}

fn flags(values: &Values) -> u8 {
    let set = |code: PageCode, at: usize, bit: u8| {
        let index = PAGES.iter().position(|page| page.code == code && page.subpage == 0);
        index.and_then(|index| values[index].get(at)).is_some_and(|byte| byte & bit != 0)
    };
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    flag(set(PageCode::CACHING, caching::WCE_AT, caching::WCE), WRITE_CACHE)
        | flag(set(PageCode::CONTROL, control::SWP_AT, control::SWP), WRITE_PROTECT)
        | flag(set(PageCode::CONTROL, control::D_SENSE_AT, control::D_SENSE), DESCRIPTOR_SENSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_by_code_and_subpage() {
        assert!(PAGES.is_sorted_by_key(|page| (page.code, page.subpage)));
    }

    #[test]
    fn a_reset_brings_back_what_was_saved() {
        let state = ModeState::new(Capabilities { volatile_cache: true, ..Capabilities::default() });
        let caching = |wce| SelectedPage { code: PageCode::CACHING, subpage: 0, parameters: wce, at: 4 };
        let (mut off, mut on) = ([0; caching::LEN], [0; caching::LEN]);
        (off[0], on[0]) = (0, caching::WCE);
        assert!(state.write_cache());
        assert_eq!(state.select(&[caching(&off)], true), Ok(true));
        assert_eq!(state.select(&[caching(&on)], false), Ok(true));
        assert_eq!(state.select(&[caching(&on)], false), Ok(false), "nothing changed");
        assert!(state.write_cache());
        state.reset();
        assert!(!state.write_cache());
    }
}
