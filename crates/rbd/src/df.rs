//! The room of a pool, as the monitors tell it.

/// The question to the monitors.
pub(crate) const COMMAND: &str = r#"{"prefix": "df", "format": "json"}"#;

/// The room of a pool, in bytes of its images. A byte takes more than that on the disks of the cluster, which keep
/// copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolRoom {
    /// Taken.
    pub used_bytes: u64,
    /// Free.
    pub free_bytes: u64,
}

/// The room of a pool, from the answer. `None` when the monitors do not know, because no manager tells them.
pub(crate) fn room(answer: &[u8], pool: &str) -> Option<PoolRoom> {
    let answer: serde_json::Value = serde_json::from_slice(answer).ok()?;
    if answer["stats"]["total_bytes"].as_u64()? == 0 {
        return None;
    }
    let pools = answer["pools"].as_array()?;
    let stats = &pools.iter().find(|found| found["name"] == pool)?["stats"];
    Some(PoolRoom { used_bytes: stats["stored"].as_u64()?, free_bytes: stats["max_avail"].as_u64()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_of_the_pool_is_found() {
        let answer = br#"{
            "stats": {"total_bytes": 3000, "total_avail_bytes": 2000, "total_used_bytes": 1000},
            "pools": [
                {"name": "other", "id": 1, "stats": {"stored": 1, "max_avail": 7}},
                {"name": "rbd", "id": 2, "stats": {"stored": 1, "max_avail": 600}}
            ]
        }"#;
        assert_eq!(room(answer, "rbd"), Some(PoolRoom { used_bytes: 1, free_bytes: 600 }));
        assert_eq!(room(answer, "none"), None);
    }

    #[test]
    fn a_cluster_without_a_manager_does_not_know() {
        let answer = br#"{"stats": {"total_bytes": 0}, "pools": [{"name": "rbd", "stats": {"max_avail": 0}}]}"#;
        assert_eq!(room(answer, "rbd"), None);
        assert_eq!(room(b"", "rbd"), None);
    }
}
