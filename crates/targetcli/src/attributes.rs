//! The attributes of LIO: the values that they take here, and those that they have by default.
//!
//! A disk of Lunette has one way to behave where LIO has a switch. Such an attribute takes the value that is true, and
//! refuses all others. An attribute that only tunes LIO takes any number, because nothing depends on it.

use std::collections::BTreeMap;

use crate::failure::Failure;

/// The values of attributes that are not as by default.
pub(crate) type Numbers = BTreeMap<String, i64>;

/// The values that an attribute takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    /// Nothing: it tells something.
    Nothing,
    /// One of these.
    OneOf(&'static [i64]),
    /// Any number that is not negative. It is shown again, and has no effect.
    AnyNumber,
}

/// An attribute.
#[derive(Debug)]
pub(crate) struct Attribute {
    pub(crate) name: &'static str,
    pub(crate) default: i64,
    pub(crate) takes: Takes,
    pub(crate) about: &'static str,
}

const fn one(name: &'static str, default: i64, takes: Takes, about: &'static str) -> Attribute {
    Attribute { name, default, takes, about }
}

const FLAG: Takes = Takes::OneOf(&[0, 1]);
const ZERO: Takes = Takes::OneOf(&[0]);
const ONE: Takes = Takes::OneOf(&[1]);

/// The attributes of storage objects.
pub(crate) const OF_OBJECTS: &[Attribute] = &[
    one("block_size", 512, Takes::OneOf(&[512, 4096]), "Block size of the underlying device."),
    one("emulate_3pc", 1, ONE, "Third Party Copy."),
    one("emulate_caw", 1, ONE, "Compare and Write."),
    one("emulate_dpo", 1, ONE, "Disable Page Out."),
    one("emulate_fua_read", 1, ONE, "Force Unit Access read."),
    one("emulate_fua_write", 1, ONE, "Force Unit Access write."),
    one("emulate_model_alias", 1, FLAG, "If set to 1, the product of the disk has the name of the storage object."),
    one("emulate_pr", 1, ONE, "SCSI Reservations."),
    one("emulate_rest_reord", 0, Takes::AnyNumber, "Restricted Reordering. It has no effect."),
    one("emulate_tas", 1, Takes::AnyNumber, "Task Aborted Status. It has no effect: initiators choose."),
    one("emulate_tpu", 1, FLAG, "UNMAP. Thin disks offer it whatever this says."),
    one("emulate_tpws", 1, FLAG, "WRITE SAME with UNMAP. Thin disks offer it whatever this says."),
    one("emulate_ua_intlck_ctrl", 0, ZERO, "Unit Attention Interlock."),
    one("emulate_write_cache", 1, ONE, "Write Cache Enable. Initiators change it, by MODE SELECT."),
    one("enforce_pr_isids", 1, ONE, "Persistent reservations belong to ISIDs."),
    one("fabric_max_sectors", 8192, Takes::AnyNumber, "It has no effect."),
    one("force_pr_aptpl", 0, ZERO, "Activate Persistence across Target Power Loss for all registrations."),
    one("hw_block_size", 512, Takes::Nothing, "Hardware block size in bytes."),
    one("hw_pi_prot_type", 0, Takes::Nothing, "DIF protection of the underlying hardware."),
    one("hw_queue_depth", 128, Takes::Nothing, "Hardware queue depth."),
    one("is_nonrot", 1, Takes::AnyNumber, "It has no effect."),
    one("max_unmap_block_desc_count", 1, Takes::AnyNumber, "It has no effect."),
    one("max_unmap_lba_count", 8192, Takes::AnyNumber, "It has no effect."),
    one("max_write_same_len", 4096, Takes::AnyNumber, "It has no effect."),
    one("optimal_sectors", 8192, Takes::AnyNumber, "It has no effect."),
    one("pi_prot_format", 0, ZERO, "DIF protection format."),
    one("pi_prot_type", 0, ZERO, "DIF protection type."),
    one("queue_depth", 128, Takes::AnyNumber, "It has no effect."),
    one("unmap_granularity", 1, Takes::AnyNumber, "It has no effect."),
    one("unmap_granularity_alignment", 0, Takes::AnyNumber, "It has no effect."),
    one("unmap_zeroes_data", 1, Takes::AnyNumber, "It has no effect: blocks without space read as zeroes."),
];

/// The attributes of portal groups.
pub(crate) const OF_TPGS: &[Attribute] = &[
    one("authentication", 0, FLAG, "If set to 1, enforce authentication for this TPG."),
    one("cache_dynamic_acls", 0, FLAG, "It has no effect: without an ACL, an initiator has none."),
    one("default_cmdsn_depth", 64, Takes::AnyNumber, "It has no effect."),
    one("default_erl", 0, ZERO, "Default Error Recovery Level: set the parameter ErrorRecoveryLevel."),
    one("demo_mode_discovery", 1, ONE, "In demo mode, enable discovery."),
    one("demo_mode_write_protect", 1, FLAG, "If set to 1 in demo mode, prevent writes to LUNs."),
    one("fabric_prot_type", 0, ZERO, "Fabric DIF protection type."),
    one("generate_node_acls", 0, FLAG, "If set to 1, allow all initiators to login (i.e. demo mode)."),
    one("login_keys_workaround", 1, Takes::AnyNumber, "It has no effect."),
    one("login_timeout", 15, Takes::AnyNumber, "It has no effect: see login_timeout of the configuration file."),
    one("prod_mode_write_protect", 0, FLAG, "If set to 1, prevent writes to LUNs of initiators with an ACL."),
    one("t10_pi", 0, ZERO, "T10 Protection Information."),
    one("tpg_enabled_sendtargets", 1, ONE, "SendTargets advertises the TPG only if it is enabled."),
];

/// The attributes of the ACLs of initiators.
pub(crate) const OF_ACLS: &[Attribute] = &[
    one("authentication", -1, Takes::OneOf(&[-1]), "As the TPG says."),
    one("dataout_timeout", 3, Takes::AnyNumber, "It has no effect."),
    one("dataout_timeout_retries", 5, Takes::AnyNumber, "It has no effect."),
    one("default_erl", 0, ZERO, "Default Error Recovery Level."),
    one("nopin_response_timeout", 30, Takes::AnyNumber, "It has no effect."),
    one("nopin_timeout", 15, Takes::AnyNumber, "It has no effect."),
    one("random_datain_pdu_offsets", 0, ZERO, "Random Data-In PDU offsets."),
    one("random_datain_seq_offsets", 0, ZERO, "Random Data-In sequence offsets."),
    one("random_r2t_offsets", 0, ZERO, "Random R2T offsets."),
];

/// The attribute of this name.
pub(crate) fn find(table: &'static [Attribute], name: &str) -> Option<&'static Attribute> {
    table.iter().find(|attribute| attribute.name == name)
}

/// The value of an attribute of `table`; 0 for one that is not in it.
pub(crate) fn value(table: &'static [Attribute], numbers: &Numbers, name: &str) -> i64 {
    numbers.get(name).copied().or_else(|| find(table, name).map(|attribute| attribute.default)).unwrap_or_default()
}

/// Sets an attribute to a number as rtslib does.
pub(crate) fn set(table: &'static [Attribute], numbers: &mut Numbers, name: &str, value: i64) -> Result<(), Failure> {
    let attribute = find(table, name).ok_or_else(|| Failure::new(format!("Cannot find attribute: {name}")))?;
    let refused = |why: String| Failure::new(format!("Cannot set attribute {name}: {why}"));
    match attribute.takes {
        Takes::Nothing => return Err(Failure::new(format!("Parameter {name} is read-only."))),
        Takes::OneOf(all) if !all.contains(&value) => {
            let all: Vec<String> = all.iter().map(ToString::to_string).collect();
            return Err(refused(format!("[Errno 22] Invalid argument; Lunette has {}", all.join(" or "))));
        }
        Takes::AnyNumber if value < 0 => return Err(refused("[Errno 22] Invalid argument".into())),
        Takes::OneOf(_) | Takes::AnyNumber => {}
    }
    numbers.insert(name.into(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_default_is_a_value_that_its_attribute_takes() {
        for table in [OF_OBJECTS, OF_TPGS, OF_ACLS] {
            for attribute in table.iter().filter(|attribute| attribute.takes != Takes::Nothing) {
                let set = set(table, &mut Numbers::new(), attribute.name, attribute.default);
                assert_eq!(set, Ok(()), "{}", attribute.name);
            }
            assert!(table.is_sorted_by_key(|attribute| attribute.name), "it is printed in this order");
        }
    }

    #[test]
    fn a_value_that_would_have_to_change_something_is_refused() {
        for (name, value) in [("emulate_write_cache", 0), ("emulate_pr", 0), ("pi_prot_type", 1), ("block_size", 520)] {
            let error = set(OF_OBJECTS, &mut Numbers::new(), name, value).unwrap_err().to_string();
            assert!(error.starts_with(&format!("Cannot set attribute {name}: [Errno 22]")), "{error}");
        }
        assert!(set(OF_OBJECTS, &mut Numbers::new(), "colour", 1).is_err());
        assert!(set(OF_OBJECTS, &mut Numbers::new(), "hw_block_size", 512).is_err());
    }
}
