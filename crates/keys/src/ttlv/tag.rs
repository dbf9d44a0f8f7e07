//! The tags that this crate reads or writes (KMIP 1.4, section 9.1.3.1).

use std::fmt;

/// The meaning of a value: 24 bits, of which the first eight are 0x42 for the standard's own tags.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u32);

macro_rules! tags {
    ($($name:ident = $value:literal,)*) => {
        #[allow(missing_docs, reason = "the names are the standard's")]
        impl Tag {
            $(pub const $name: Self = Self($value);)*
        }

        const NAMES: &[(Tag, &str)] = &[$((Tag::$name, stringify!($name)),)*];
    };
}

tags! {
    ACTIVATION_DATE = 0x42_0001,
    APPLICATION_SPECIFIC_INFORMATION = 0x42_0004,
    ASYNCHRONOUS_INDICATOR = 0x42_0007,
    ATTRIBUTE = 0x42_0008,
    ATTRIBUTE_INDEX = 0x42_0009,
    ATTRIBUTE_NAME = 0x42_000a,
    ATTRIBUTE_VALUE = 0x42_000b,
    AUTHENTICATION = 0x42_000c,
    BATCH_COUNT = 0x42_000d,
    BATCH_ERROR_CONTINUATION_OPTION = 0x42_000e,
    BATCH_ITEM = 0x42_000f,
    BATCH_ORDER_OPTION = 0x42_0010,
    COMPROMISE_DATE = 0x42_0020,
    COMPROMISE_OCCURRENCE_DATE = 0x42_0021,
    CONTACT_INFORMATION = 0x42_0022,
    CRITICALITY_INDICATOR = 0x42_0026,
    CRYPTOGRAPHIC_ALGORITHM = 0x42_0028,
    CRYPTOGRAPHIC_LENGTH = 0x42_002a,
    CRYPTOGRAPHIC_USAGE_MASK = 0x42_002c,
    DEACTIVATION_DATE = 0x42_002f,
    DESTROY_DATE = 0x42_0033,
    INITIAL_DATE = 0x42_0039,
    KEY_BLOCK = 0x42_0040,
    KEY_COMPRESSION_TYPE = 0x42_0041,
    KEY_FORMAT_TYPE = 0x42_0042,
    KEY_MATERIAL = 0x42_0043,
    KEY_VALUE = 0x42_0045,
    KEY_WRAPPING_DATA = 0x42_0046,
    KEY_WRAPPING_SPECIFICATION = 0x42_0047,
    LAST_CHANGE_DATE = 0x42_0048,
    MAXIMUM_ITEMS = 0x42_004f,
    MAXIMUM_RESPONSE_SIZE = 0x42_0050,
    MESSAGE_EXTENSION = 0x42_0051,
    NAME = 0x42_0053,
    NAME_TYPE = 0x42_0054,
    NAME_VALUE = 0x42_0055,
    OBJECT_GROUP = 0x42_0056,
    OBJECT_TYPE = 0x42_0057,
    OPAQUE_DATA_TYPE = 0x42_0059,
    OPAQUE_DATA_VALUE = 0x42_005a,
    OPAQUE_OBJECT = 0x42_005b,
    OPERATION = 0x42_005c,
    PROTOCOL_VERSION = 0x42_0069,
    PROTOCOL_VERSION_MAJOR = 0x42_006a,
    PROTOCOL_VERSION_MINOR = 0x42_006b,
    QUERY_FUNCTION = 0x42_0074,
    REQUEST_HEADER = 0x42_0077,
    REQUEST_MESSAGE = 0x42_0078,
    REQUEST_PAYLOAD = 0x42_0079,
    RESPONSE_HEADER = 0x42_007a,
    RESPONSE_MESSAGE = 0x42_007b,
    RESPONSE_PAYLOAD = 0x42_007c,
    RESULT_MESSAGE = 0x42_007d,
    RESULT_REASON = 0x42_007e,
    RESULT_STATUS = 0x42_007f,
    REVOCATION_MESSAGE = 0x42_0080,
    REVOCATION_REASON = 0x42_0081,
    REVOCATION_REASON_CODE = 0x42_0082,
    SECRET_DATA = 0x42_0085,
    SECRET_DATA_TYPE = 0x42_0086,
    SERVER_INFORMATION = 0x42_0088,
    STATE = 0x42_008d,
    STORAGE_STATUS_MASK = 0x42_008e,
    SYMMETRIC_KEY = 0x42_008f,
    TEMPLATE_ATTRIBUTE = 0x42_0091,
    TIME_STAMP = 0x42_0092,
    UNIQUE_BATCH_ITEM_ID = 0x42_0093,
    UNIQUE_IDENTIFIER = 0x42_0094,
    VENDOR_IDENTIFICATION = 0x42_009d,
    ATTESTATION_CAPABLE_INDICATOR = 0x42_00d3,
    OFFSET_ITEMS = 0x42_00d4,
    LOCATED_ITEMS = 0x42_00d5,
    CLIENT_CORRELATION_VALUE = 0x42_0105,
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(tag, _)| tag == self) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "{:#08x}", self.0),
        }
    }
}
