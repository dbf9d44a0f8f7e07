//! The condition of volumes, and the nodes that they are published to.

use lunette_api::Trouble;
use lunette_api::volumes::Volume;
use tonic::Status;

use super::labels;
use crate::lunette::{Lunette, Target};
use crate::proto::v1::VolumeCondition;

/// The targets and troubles of a server at one moment.
pub(super) struct Sight {
    targets: Vec<Target>,
    troubles: Vec<Trouble>,
}

impl Sight {
    pub(super) fn new(lunette: &Lunette) -> Result<Self, Status> {
        Ok(Self { targets: lunette.targets()?, troubles: lunette.troubles()? })
    }

    /// The nodes of a volume, and its condition.
    pub(super) fn of(&self, volume: &Volume) -> (Vec<String>, VolumeCondition) {
        let name = labels::value(&volume.labels, labels::TARGET);
        let target = self.targets.iter().find(|target| target.name == name);
        let troubles = self.troubles.iter().filter(|trouble| trouble.of_target() == Some(name));
        let mut faults: Vec<String> = troubles.map(|trouble| trouble.text.clone()).collect();
        if volume.filling {
            faults.push("the volume is being filled".into());
        }
        if let Some(trouble) = volume.taking_over.as_ref().and_then(|taking_over| taking_over.trouble.as_ref()) {
            faults.push(format!("the disk that it takes over: {trouble}"));
        }
        if target.is_none() && !name.is_empty() {
            faults.push(format!("there is no target {name}; it is made when the volume is published"));
        }
        let abnormal = !faults.is_empty();
        let message = if abnormal { faults.join("; ") } else { "the volume is served".into() };
        (target.map(Target::nodes).unwrap_or_default(), VolumeCondition { abnormal, message })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TARGET: &str = "iqn.2026-11.org.example:tank:a";

    fn volume() -> Volume {
        let labels = json!({ "csi.target": TARGET });
        serde_json::from_value(json!({
            "pool": "tank", "name": "a", "size_bytes": 4096, "serial": "s", "created": 1, "labels": labels,
            "filling": false, "luns": [],
        }))
        .unwrap()
    }

    #[test]
    fn a_trouble_of_its_target_makes_a_volume_abnormal() {
        let host = json!({ "name": "n", "initiators": ["iqn.2026-11.org.example:n"] });
        let target = serde_json::from_value(json!({ "name": TARGET, "host": [host] })).unwrap();
        let mut sight = Sight { targets: vec![target], troubles: Vec::new() };
        let (nodes, condition) = sight.of(&volume());
        assert_eq!((nodes, condition.abnormal), (vec!["iqn.2026-11.org.example:n".to_owned()], false));
        let trouble = |target: &str| {
            let text = "the file is gone; put it back";
            json!({ "kind": "lun", "name": "0", "target": target, "cause": "file_deleted", "text": text, "since": 1 })
        };
        sight.troubles = vec![serde_json::from_value(trouble("iqn.2026-11.org.example:other")).unwrap()];
        assert!(!sight.of(&volume()).1.abnormal);
        sight.troubles.push(serde_json::from_value(trouble(TARGET)).unwrap());
        let (_, condition) = sight.of(&volume());
        assert_eq!((condition.abnormal, condition.message.as_str()), (true, "the file is gone; put it back"));
        assert!(sight.of(&Volume { filling: true, ..volume() }).1.message.contains("being filled"));
    }
}
