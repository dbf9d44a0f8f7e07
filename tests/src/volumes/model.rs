//! The content of the volumes of a writer: each number goes to a place of its own, and then to the head.

/// Blocks of a command.
pub(super) const BLOCKS: u16 = 8;

/// Bytes of a command.
pub(super) const LEN: usize = BLOCKS as usize * 512;

/// The places of numbers, behind the head.
const PLACES: u64 = 61;

/// Bytes of a volume.
pub(super) const VOLUME_BYTES: u64 = (1 + PLACES) * LEN as u64;

/// The blocks of a number.
pub(super) fn filled(number: u64) -> Vec<u8> {
    number.to_be_bytes().repeat(LEN / 8)
}

/// The block at which the place of a number begins.
pub(super) fn place(number: u64) -> u32 {
    (1 + (number % PLACES) as u32) * u32::from(BLOCKS)
}

/// The number at the head of a volume, after a check of all of it: each place has the last number that was written
/// there. That of the next number may be there already, before the head is.
pub(super) fn check(content: &[u8]) -> Result<u64, String> {
    if content.len() as u64 != VOLUME_BYTES {
        return Err(format!("it has {} bytes", content.len()));
    }
    let numbers = content.chunks(LEN).map(number).collect::<Option<Vec<u64>>>().ok_or("a write is torn")?;
    let head = numbers[0];
    for (place, found) in (0..).zip(&numbers[1..]) {
        // The last number up to the head that is of this place; 0 is the new volume.
        let known = head.saturating_sub((head + PLACES - place) % PLACES);
        let is_next = *found == head + 1 && (head + 1) % PLACES == place;
        if *found != known && !is_next {
            return Err(format!("the head is {head}, and place {place} has {found} instead of {known}"));
        }
    }
    Ok(head)
}

/// The number that all of a command has.
fn number(blocks: &[u8]) -> Option<u64> {
    let first = blocks.first_chunk()?;
    blocks.chunks(8).all(|word| word == first).then(|| u64::from_be_bytes(*first))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(numbers: u64) -> Vec<u8> {
        let mut content = vec![0; VOLUME_BYTES as usize];
        for number in 1..=numbers {
            let at = place(number) as usize * 512;
            content[at..at + LEN].copy_from_slice(&filled(number));
        }
        content[..LEN].copy_from_slice(&filled(numbers));
        content
    }

    #[test]
    fn a_content_is_that_of_one_moment() {
        for numbers in [0, 1, 5, PLACES - 1, PLACES, PLACES + 1, 3 * PLACES + 7] {
            assert_eq!(check(&written(numbers)), Ok(numbers));
            let mut next = written(numbers + 1);
            next[..LEN].copy_from_slice(&filled(numbers));
            assert_eq!(check(&next), Ok(numbers), "the place is written before the head");
            let mut torn = written(numbers);
            torn[LEN - 1] ^= 1;
            assert!(check(&torn).is_err());
            let mut later = written(numbers + 2);
            later[..LEN].copy_from_slice(&filled(numbers));
            assert!(check(&later).is_err(), "two places are ahead");
        }
        let mut lost = written(5);
        let at = place(3) as usize * 512;
        lost[at..at + LEN].copy_from_slice(&filled(0));
        assert!(check(&lost).unwrap_err().contains("place 3 has 0 instead of 3"));
    }
}
