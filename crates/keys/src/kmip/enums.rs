//! Values that the standard lists (KMIP 1.4, section 9.1.3.2): those that this crate knows.

use std::fmt;

/// Makes an enumeration with the numbers of the standard and the names that people read.
macro_rules! enumeration {
    ($(#[$doc:meta])* $type:ident { $($(#[$variant_doc:meta])* $variant:ident = $value:literal, $name:literal;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "the names are the standard's")]
        pub enum $type { $($(#[$variant_doc])* $variant = $value,)* }

        impl $type {
            /// All values that are known.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The value of a number.
            pub fn from_number(number: u32) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.number() == number)
            }

            /// The number on the wire.
            pub fn number(self) -> u32 {
                self as u32
            }

            /// The standard's name.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

enumeration! {
    /// The operation that a request asks for.
    Operation {
        Create = 1, "Create";
        Register = 3, "Register";
        Locate = 8, "Locate";
        Get = 0xa, "Get";
        GetAttributes = 0xb, "Get Attributes";
        AddAttribute = 0xd, "Add Attribute";
        DeleteAttribute = 0xf, "Delete Attribute";
        Activate = 0x12, "Activate";
        Revoke = 0x13, "Revoke";
        Destroy = 0x14, "Destroy";
        Query = 0x18, "Query";
        DiscoverVersions = 0x1e, "Discover Versions";
    }
}

enumeration! {
    /// The type of an object.
    ObjectType {
        SymmetricKey = 2, "Symmetric Key";
        SecretData = 7, "Secret Data";
        OpaqueData = 8, "Opaque Data";
    }
}

enumeration! {
    /// The state of an object (KMIP 1.4, section 3.22).
    State {
        PreActive = 1, "Pre-Active";
        Active = 2, "Active";
        Deactivated = 3, "Deactivated";
        Compromised = 4, "Compromised";
        Destroyed = 5, "Destroyed";
        DestroyedCompromised = 6, "Destroyed Compromised";
    }
}

enumeration! {
    /// The outcome of a request.
    ResultStatus {
        Success = 0, "Success";
        OperationFailed = 1, "Operation Failed";
        OperationPending = 2, "Operation Pending";
        OperationUndone = 3, "Operation Undone";
    }
}

enumeration! {
    /// Why a request failed.
    ResultReason {
        ItemNotFound = 1, "Item Not Found";
        ResponseTooLarge = 2, "Response Too Large";
        AuthenticationNotSuccessful = 3, "Authentication Not Successful";
        InvalidMessage = 4, "Invalid Message";
        OperationNotSupported = 5, "Operation Not Supported";
        MissingData = 6, "Missing Data";
        InvalidField = 7, "Invalid Field";
        FeatureNotSupported = 8, "Feature Not Supported";
        OperationCanceledByRequester = 9, "Operation Canceled By Requester";
        CryptographicFailure = 0xa, "Cryptographic Failure";
        IllegalOperation = 0xb, "Illegal Operation";
        PermissionDenied = 0xc, "Permission Denied";
        ObjectArchived = 0xd, "Object Archived";
        IndexOutOfBounds = 0xe, "Index Out Of Bounds";
        ApplicationNamespaceNotSupported = 0xf, "Application Namespace Not Supported";
        KeyFormatTypeNotSupported = 0x10, "Key Format Type Not Supported";
        KeyCompressionTypeNotSupported = 0x11, "Key Compression Type Not Supported";
        EncodingOptionError = 0x12, "Encoding Option Error";
        KeyValueNotPresent = 0x13, "Key Value Not Present";
        AttestationRequired = 0x14, "Attestation Required";
        AttestationFailed = 0x15, "Attestation Failed";
        Sensitive = 0x16, "Sensitive";
        NotExtractable = 0x17, "Not Extractable";
        ObjectAlreadyExists = 0x18, "Object Already Exists";
        GeneralFailure = 0x100, "General Failure";
    }
}

enumeration! {
    /// Why an object is revoked.
    RevocationCode {
        Unspecified = 1, "Unspecified";
        KeyCompromise = 2, "Key Compromise";
        CaCompromise = 3, "CA Compromise";
        AffiliationChanged = 4, "Affiliation Changed";
        Superseded = 5, "Superseded";
        CessationOfOperation = 6, "Cessation of Operation";
        PrivilegeWithdrawn = 7, "Privilege Withdrawn";
    }
}

enumeration! {
    /// The subject of a Query. Values above those that this server answers are answered with nothing.
    QueryFunction {
        Operations = 1, "Query Operations";
        Objects = 2, "Query Objects";
        ServerInformation = 3, "Query Server Information";
        ApplicationNamespaces = 4, "Query Application Namespaces";
        ExtensionList = 5, "Query Extension List";
        ExtensionMap = 6, "Query Extension Map";
        AttestationTypes = 7, "Query Attestation Types";
        Rngs = 8, "Query RNGs";
        Validations = 9, "Query Validations";
        Profiles = 0xa, "Query Profiles";
        Capabilities = 0xb, "Query Capabilities";
        ClientRegistrationMethods = 0xc, "Query Client Registration Methods";
    }
}

enumeration! {
    /// How key material is formatted.
    KeyFormat {
        Raw = 1, "Raw";
        Opaque = 2, "Opaque";
        TransparentSymmetricKey = 7, "Transparent Symmetric Key";
    }
}

enumeration! {
    /// The type of a name.
    NameType {
        UninterpretedTextString = 1, "Uninterpreted Text String";
        Uri = 2, "URI";
    }
}

impl State {
    /// Whether the key material is gone.
    pub fn is_destroyed(self) -> bool {
        matches!(self, Self::Destroyed | Self::DestroyedCompromised)
    }
}
