//! Arithmetic on polynomials over GF(2), modulo the Castagnoli polynomial, all of it usable at compile time.
//!
//! A polynomial of degree below 32 is a `u32` in *reflected* order, the order of CRC32C's shift register: bit 31 is the
//! coefficient of `x^0`, bit 0 that of `x^31`. Addition is XOR. A message of bytes is a polynomial too: the lowest bit
//! of the first byte has the highest degree. Its register, started from `r` and fed `n` bytes `m`, becomes `r *
//! x^(8n) + m * x^32` modulo the polynomial.

/// The Castagnoli polynomial, reflected, without its term `x^32`.
pub(crate) const POLYNOMIAL: u32 = 0x82F6_3B78;

/// The polynomial `1`.
pub(crate) const ONE: u32 = 1 << 31;

/// The powers of `x` repeat after this many: the polynomial is `x + 1` times a primitive polynomial of degree 31.
const PERIOD: i64 = (1 << 31) - 1;

/// `SQUARES[k]` is `x^(2^k)`.
const SQUARES: [u32; 31] = {
    let mut squares = [ONE >> 1; 31];
    let mut k = 1;
    while k < squares.len() {
        squares[k] = multiply(squares[k - 1], squares[k - 1]);
        k += 1;
    }
    squares
};

/// The product of two polynomials.
pub(crate) const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut term = ONE;
    while term != 0 {
        if a & term != 0 {
            product ^= b;
        }
        b = times_x(b);
        term >>= 1;
    }
    product
}

/// The product with `x`: one shift of the register.
pub(crate) const fn times_x(a: u32) -> u32 {
    (a >> 1) ^ (POLYNOMIAL & (a & 1).wrapping_neg())
}

/// `x^n`, also for negative `n`: `x` has an inverse, for the polynomial has a constant term.
pub(crate) const fn x_to(n: i64) -> u32 {
    let n = n.rem_euclid(PERIOD);
    let mut power = ONE;
    let mut k = 0;
    while k < SQUARES.len() {
        if n >> k & 1 == 1 {
            power = multiply(power, SQUARES[k]);
        }
        k += 1;
    }
    power
}

/// `x^(8 * bytes)`: the factor that carries a register over this many zero bytes.
pub(crate) const fn x_to_bytes(bytes: u64) -> u32 {
    x_to((bytes % PERIOD.cast_unsigned()).cast_signed() * 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_period_is_the_period() {
        assert_eq!(multiply(x_to(PERIOD - 1), x_to(1)), ONE);
        assert_eq!(x_to(0), ONE);
        // The period is prime, so 1 is its only proper divisor.
        assert_ne!(x_to(1), ONE);
    }

    #[test]
    fn x_to_the_32_is_the_polynomials_tail() {
        assert_eq!(x_to(32), POLYNOMIAL);
    }

    #[test]
    fn negative_powers_are_inverses() {
        for n in [1, 7, 64, 4096, PERIOD] {
            assert_eq!(multiply(x_to(n), x_to(-n)), ONE);
        }
    }

    #[test]
    fn a_power_is_that_many_shifts() {
        let mut shifted = ONE;
        for n in 0..2048 {
            assert_eq!(x_to(n), shifted);
            shifted = times_x(shifted);
        }
        assert_eq!(x_to_bytes(200), x_to(1600));
        assert_eq!(x_to_bytes(u64::MAX), multiply(x_to_bytes(u64::MAX - 1), x_to(8)));
    }
}
