//! LUN maps: the logical units that an initiator sees, and under which numbers.

use std::collections::{BTreeMap, BTreeSet};

use lunette_scsi::Lun;

/// The logical units of a device that the initiators of one host see.
///
/// The numbers of a device are those of its configuration. A map gives a host a part of them, under other numbers where
/// it says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LunMap {
    places: Places,
    read_only: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Places {
    /// All units, each under its own number.
    All,
    /// By the number in the device.
    Only(BTreeMap<Lun, Place>),
}

/// How a host sees a logical unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The number that the host uses.
    pub lun: Lun,
    /// Writes of the host are refused.
    pub read_only: bool,
}

/// A map that leads two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LunMapError {
    /// Two entries are for one logical unit of the device.
    #[error("LUN {0} is mapped twice")]
    UnitTwice(Lun),
    /// Two logical units would have one number.
    #[error("two logical units are mapped to LUN {0}")]
    NumberTwice(Lun),
}

impl LunMap {
    /// All logical units, each under its own number.
    pub fn all(read_only: bool) -> Self {
        Self { places: Places::All, read_only }
    }

    /// A view of these logical units, by their numbers in the device, and no others. With `read_only`, writes to all of
    /// them are refused.
    ///
    /// # Errors
    ///
    /// When a logical unit, or a number for the host, is there twice.
    pub fn only(entries: impl IntoIterator<Item = (Lun, Place)>, read_only: bool) -> Result<Self, LunMapError> {
        let (mut places, mut numbers) = (BTreeMap::new(), BTreeSet::new());
        for (lun, place) in entries {
            if !numbers.insert(place.lun) {
                return Err(LunMapError::NumberTwice(place.lun));
            }
            if places.insert(lun, place).is_some() {
                return Err(LunMapError::UnitTwice(lun));
            }
        }
        Ok(Self { places: Places::Only(places), read_only })
    }

    /// Where the host sees the logical unit with this number in the device; `None`: it does not.
    pub fn place(&self, lun: Lun) -> Option<Place> {
        let place = match &self.places {
            Places::All => Place { lun, read_only: false },
            Places::Only(places) => *places.get(&lun)?,
        };
        Some(Place { read_only: place.read_only || self.read_only, ..place })
    }
}

impl Default for LunMap {
    /// All logical units, each under its own number.
    fn default() -> Self {
        Self::all(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lun(number: u16) -> Lun {
        Lun::new(number).unwrap()
    }

    fn entry(from: u16, to: u16, read_only: bool) -> (Lun, Place) {
        (lun(from), Place { lun: lun(to), read_only })
    }

    #[test]
    fn a_map_leads_each_unit_to_one_number_or_to_none() {
        let map = LunMap::only([entry(0, 7, false), entry(7, 0, true)], false).unwrap();
        assert_eq!(map.place(lun(0)), Some(Place { lun: lun(7), read_only: false }));
        assert_eq!(map.place(lun(7)), Some(Place { lun: lun(0), read_only: true }));
        assert_eq!(map.place(lun(1)), None);
        assert_eq!(LunMap::all(true).place(lun(3)), Some(Place { lun: lun(3), read_only: true }));
        assert_eq!(
            LunMap::only([entry(0, 7, false)], true).unwrap().place(lun(0)).map(|place| place.read_only),
            Some(true)
        );
        assert_eq!(
            LunMap::only([entry(0, 7, false), entry(1, 7, false)], false),
            Err(LunMapError::NumberTwice(lun(7)))
        );
        assert_eq!(LunMap::only([entry(0, 7, false), entry(0, 8, false)], false), Err(LunMapError::UnitTwice(lun(0))));
    }
}
