//! Keys from passphrases: Argon2id (RFC 9106) with a cost that is stored beside what it protects.

use argon2::{Algorithm, Argon2, Params, Version};
use serde::{Deserialize, Serialize};

use crate::secret::{Key, Passphrase};

/// The length of a salt in bytes.
pub(crate) const SALT_LEN: usize = 16;

/// The cost of one guess of a passphrase. The values are bounded in both directions: a stored cost comes from a file
/// that others may have written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Argon2Cost {
    /// The memory in KiB.
    pub memory_kib: u32,
    /// The passes over the memory.
    pub passes: u32,
    /// The lanes. They are computed one after the other here, and an attacker can compute them at once.
    pub lanes: u32,
}

impl Argon2Cost {
    /// 256 MiB and three passes: four times the memory of the second choice of RFC 9106.
    pub const DEFAULT: Self = Self { memory_kib: 256 << 10, passes: 3, lanes: 4 };

    /// The least memory in KiB.
    pub const MIN_MEMORY_KIB: u32 = 8 << 10;
    /// The most memory in KiB.
    pub const MAX_MEMORY_KIB: u32 = 1 << 20;
    /// The most passes.
    pub const MAX_PASSES: u32 = 16;
    /// The most lanes.
    pub const MAX_LANES: u32 = 16;

    /// Checks the bounds.
    ///
    /// # Errors
    ///
    /// Names the value that is out of bounds.
    pub fn check(self) -> Result<Self, CostError> {
        let rows = [
            ("memory_kib", self.memory_kib, Self::MIN_MEMORY_KIB, Self::MAX_MEMORY_KIB),
            ("passes", self.passes, 1, Self::MAX_PASSES),
            ("lanes", self.lanes, 1, Self::MAX_LANES),
        ];
        match rows.into_iter().find(|(_, value, least, most)| !(least..=most).contains(&value)) {
            Some((name, value, least, most)) => Err(CostError { name, value, least, most }),
            None => Ok(self),
        }
    }

    /// The key that belongs to a passphrase and a salt. It takes the memory and the time that the cost says.
    pub(crate) fn key(self, passphrase: &Passphrase, salt: &[u8; SALT_LEN]) -> Result<Key, CostError> {
        let Self { memory_kib, passes, lanes } = self.check()?;
        let parameters = Params::new(memory_kib, passes, lanes, Some(Key::LEN)).expect("Argon2 allows these bounds");
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, parameters);
        let key = Key::filled(|into| argon2.hash_password_into(passphrase.expose(), salt, into));
        Ok(key.expect("Argon2 takes these lengths"))
    }
}

/// A cost of Argon2id that is out of bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} of Argon2id is {value}; {least} to {most} are allowed")]
pub struct CostError {
    name: &'static str,
    value: u32,
    least: u32,
    most: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hex;

    const CHEAP: Argon2Cost = Argon2Cost { memory_kib: Argon2Cost::MIN_MEMORY_KIB, passes: 1, lanes: 1 };

    fn key(passphrase: &str, salt: u8, cost: Argon2Cost) -> Key {
        cost.key(&Passphrase::new(passphrase.into()).unwrap(), &[salt; SALT_LEN]).unwrap()
    }

    #[test]
    fn passphrase_salt_and_each_part_of_the_cost_make_the_key() {
        let first = key("a", 1, CHEAP);
        assert!(first.same_as(&key("a", 1, CHEAP)));
        let others = [
            key("b", 1, CHEAP),
            key("a", 2, CHEAP),
            key("a", 1, Argon2Cost { memory_kib: CHEAP.memory_kib + 8, ..CHEAP }),
            key("a", 1, Argon2Cost { passes: 2, ..CHEAP }),
            key("a", 1, Argon2Cost { lanes: 2, ..CHEAP }),
        ];
        assert!(others.iter().all(|other| !first.same_as(other)));
    }

    /// Computed by the `argon2` command of Debian 12 (the reference code):
    /// `printf password | argon2 saltsaltsaltsalt -id -t 2 -k 8192 -p 2 -l 32 -r`.
    #[test]
    fn the_key_is_that_of_the_reference_code() {
        let cost = Argon2Cost { memory_kib: 8192, passes: 2, lanes: 2 };
        let passphrase = Passphrase::new(b"password".to_vec()).unwrap();
        let key = cost.key(&passphrase, b"saltsaltsaltsalt").unwrap();
        assert_eq!(hex::encode(key.expose()), "296cffab843cc13b3aa8be59ab385246e10bfa8c3626ef0d9be6cb72856287fe");
    }

    #[test]
    fn costs_out_of_bounds_are_refused_by_name() {
        let cases = [
            (Argon2Cost { memory_kib: 8191, ..CHEAP }, "memory_kib"),
            (Argon2Cost { memory_kib: (1 << 20) + 1, ..CHEAP }, "memory_kib"),
            (Argon2Cost { memory_kib: u32::MAX, ..CHEAP }, "memory_kib"),
            (Argon2Cost { passes: 0, ..CHEAP }, "passes"),
            (Argon2Cost { passes: 17, ..CHEAP }, "passes"),
            (Argon2Cost { lanes: 0, ..CHEAP }, "lanes"),
            (Argon2Cost { lanes: 17, ..CHEAP }, "lanes"),
        ];
        for (cost, name) in cases {
            assert!(cost.check().unwrap_err().to_string().starts_with(name), "{cost:?}");
        }
        assert!(Argon2Cost::DEFAULT.check().is_ok());
    }
}
