//! Log pages (SPC-5 7.3, SBC-4 6.4).

/// The code of a log page. Unknown codes are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageCode(pub u8);

impl PageCode {
    /// Supported Log Pages.
    pub const SUPPORTED_PAGES: Self = Self(0x00);
    /// Write Error Counters.
    pub const WRITE_ERRORS: Self = Self(0x02);
    /// Read Error Counters.
    pub const READ_ERRORS: Self = Self(0x03);
    /// Verify Error Counters.
    pub const VERIFY_ERRORS: Self = Self(0x05);
    /// Logical Block Provisioning.
    pub const LOGICAL_BLOCK_PROVISIONING: Self = Self(0x0c);
    /// The Temperature page.
    pub const TEMPERATURE: Self = Self(0x0d);
    /// Start-Stop Cycle Counter.
    pub const START_STOP_CYCLES: Self = Self(0x0e);
    /// The Background Scan page.
    pub const BACKGROUND_SCAN: Self = Self(0x15);
    /// General Statistics and Performance.
    pub const GENERAL_STATISTICS: Self = Self(0x19);
}

/// The subpage code that asks for the list of pages and subpages.
pub const ALL_SUBPAGES: u8 = 0xff;

/// PC: the kind of values that are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageControl {
    /// The current thresholds.
    Threshold,
    /// The current cumulative values.
    Cumulative,
    /// The thresholds before any LOG SELECT.
    DefaultThreshold,
    /// The initial cumulative values.
    DefaultCumulative,
}

impl PageControl {
    /// Decodes PC from the top two bits of `byte`.
    pub fn decode(byte: u8) -> Self {
        match byte >> 6 {
            0 => Self::Threshold,
            1 => Self::Cumulative,
            2 => Self::DefaultThreshold,
            _ => Self::DefaultCumulative,
        }
    }
}

/// A log parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// PARAMETER CODE.
    pub code: u16,
    /// FORMAT AND LINKING.
    format: u8,
    value: Vec<u8>,
}

impl Parameter {
    /// An unbounded data counter of eight bytes.
    pub fn counter(code: u16, value: u64) -> Self {
        const UNBOUNDED_COUNTER: u8 = 0x02;
        Self { code, format: UNBOUNDED_COUNTER, value: value.to_be_bytes().to_vec() }
    }

    /// A list in binary format, at most 255 bytes.
    pub fn binary(code: u16, value: &[u8]) -> Self {
        const BINARY_LIST: u8 = 0x03;
        Self { code, format: BINARY_LIST, value: value[..value.len().min(usize::from(u8::MAX))].to_vec() }
    }

    /// A count of threshold sets on the Logical Block Provisioning page (SBC-4 6.4.5). `shared` says that other logical
    /// units use the resource too.
    pub fn resource_count(code: u16, count: u32, shared: bool) -> Self {
        const DEDICATED: u8 = 1;
        const SHARED: u8 = 2;
        let scope = if shared { SHARED } else { DEDICATED };
        Self::binary(code, &[&count.to_be_bytes()[..], &[scope, 0, 0, 0]].concat())
    }

    fn emit(&self) -> Vec<u8> {
        let [high, low] = self.code.to_be_bytes();
        [&[high, low, self.format, self.value.len() as u8], self.value.as_slice()].concat()
    }
}

/// DS: the page cannot be saved.
const DS: u8 = 0x80;
/// SPF: the page has a subpage code.
const SPF: u8 = 0x40;

/// Encodes a page of parameters.
pub fn page(code: PageCode, parameters: &[Parameter]) -> Vec<u8> {
    let body: Vec<u8> = parameters.iter().flat_map(Parameter::emit).collect();
    [&[DS | code.0, 0], &len_field(&body)[..], &body].concat()
}

/// Encodes the Supported Log Pages page.
pub fn supported_pages(pages: &[PageCode]) -> Vec<u8> {
    let body: Vec<u8> = pages.iter().map(|page| page.0).collect();
    [&[PageCode::SUPPORTED_PAGES.0, 0], &len_field(&body)[..], &body].concat()
}

/// Encodes the Supported Log Pages and Subpages page, or the Supported Subpages page of another page.
pub fn supported_subpages(page: PageCode, pages: &[(PageCode, u8)]) -> Vec<u8> {
    let body: Vec<u8> = pages.iter().flat_map(|(page, subpage)| [page.0, *subpage]).collect();
    [&[SPF | page.0, ALL_SUBPAGES], &len_field(&body)[..], &body].concat()
}

fn len_field(body: &[u8]) -> [u8; 2] {
    u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_count_their_parameters() {
        let parameters = [Parameter::counter(5, 0x0102), Parameter::binary(0x0100, &[7, 8])];
        let expected = [0x82, 0, 0, 18, 0, 5, 2, 8, 0, 0, 0, 0, 0, 0, 1, 2, 1, 0, 3, 2, 7, 8];
        assert_eq!(page(PageCode::WRITE_ERRORS, &parameters), expected);
    }

    #[test]
    fn lists_of_pages_have_their_own_form() {
        assert_eq!(supported_pages(&[PageCode(0), PageCode::TEMPERATURE]), [0, 0, 0, 2, 0, 0x0d]);
        let all = [(PageCode(0), 0), (PageCode(0), ALL_SUBPAGES)];
        assert_eq!(supported_subpages(PageCode(0), &all), [0x40, 0xff, 0, 4, 0, 0, 0, 0xff]);
    }
}
