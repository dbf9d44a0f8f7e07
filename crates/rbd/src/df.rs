//! The room of a pool, as the monitors tell it.

/// The question to the monitors.
pub(crate) const COMMAND: &str = r#"{"prefix": "df", "format": "json"}"#;

/// The bytes that the pool has room for, from the answer: what is free, divided by what a byte of the pool takes.
/// `None` when the monitors do not know, because no manager tells them.
pub(crate) fn free_bytes(answer: &[u8], pool: &str) -> Option<u64> {
    let answer: serde_json::Value = serde_json::from_slice(answer).ok()?;
    if answer["stats"]["total_bytes"].as_u64()? == 0 {
        return None;
    }
    let pools = answer["pools"].as_array()?;
    pools.iter().find(|found| found["name"] == pool)?["stats"]["max_avail"].as_u64()
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
        assert_eq!(free_bytes(answer, "rbd"), Some(600));
        assert_eq!(free_bytes(answer, "none"), None);
    }

    #[test]
    fn a_cluster_without_a_manager_does_not_know() {
        let answer = br#"{"stats": {"total_bytes": 0}, "pools": [{"name": "rbd", "stats": {"max_avail": 0}}]}"#;
        assert_eq!(free_bytes(answer, "rbd"), None);
        assert_eq!(free_bytes(b"", "rbd"), None);
    }
}
