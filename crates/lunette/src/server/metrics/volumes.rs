//! The numbers of pools, and the pauses of snapshots.

use super::text::{Label, Text, Type};
use crate::server::volumes::{PAUSE_BOUNDS_US, PauseCounts, PoolNumbers, VolumeCounts};

/// A metric of a pool: its name, what it is, and its value.
type PoolMetric = (&'static str, &'static str, fn(&PoolNumbers) -> u64);

/// The metrics of pools; none for a server without pools.
pub(super) fn volumes(text: &mut Text, VolumeCounts { pools, pauses }: &VolumeCounts) {
    if pools.is_empty() {
        return;
    }
    let each: [PoolMetric; 6] = [
        ("lunette_pool_up", "Whether the pool can be used.", |pool| u64::from(pool.is_up)),
        ("lunette_pool_volumes", "Volumes of the pool.", |pool| pool.volumes),
        ("lunette_pool_committed_bytes", "The lengths of all volumes of the pool.", |pool| pool.committed_bytes),
        ("lunette_pool_total_bytes", "All space of the pool.", |pool| pool.space.total_bytes),
        ("lunette_pool_used_bytes", "Space of the pool that is taken.", |pool| pool.space.used_bytes),
        ("lunette_pool_free_bytes", "Space of the pool that is free.", |pool| pool.space.free_bytes),
    ];
    for (name, help, value) in each {
        text.begin(name, Type::Gauge, help);
        for (pool, numbers) in pools {
            text.sample(name, &[("pool", pool)], value(numbers));
        }
    }
    let name = "lunette_schedule_failures_total";
    text.begin(name, Type::Counter, "Snapshots by schedule that could not be taken.");
    for (pool, numbers) in pools {
        text.sample(name, &[("pool", pool)], numbers.failures);
    }
    let name = "lunette_schedule_last_timestamp_seconds";
    text.begin(name, Type::Gauge, "The moment of the last snapshot by a schedule, in seconds since 1970.");
    for (pool, numbers) in pools {
        for (schedule, moment) in &numbers.taken {
            let labels: [Label<'_>; 2] = [("pool", pool), ("schedule", schedule)];
            text.sample(name, &labels, moment);
        }
    }
    pause(text, pauses);
}

fn pause(text: &mut Text, PauseCounts { classes, total_us }: &PauseCounts) {
    let name = "lunette_snapshot_pause_seconds";
    text.begin(name, Type::Histogram, "The longest time that a request waited for each snapshot.");
    let mut count = 0;
    for (bound_us, more) in PAUSE_BOUNDS_US.iter().zip(classes) {
        count += more;
        text.sample(&format!("{name}_bucket"), &[("le", &seconds(*bound_us))], count);
    }
    let all: u64 = classes.iter().sum();
    text.sample(&format!("{name}_bucket"), &[("le", &"+Inf")], all);
    text.sample(&format!("{name}_sum"), &[], seconds(*total_us));
    text.sample(&format!("{name}_count"), &[], all);
}

fn seconds(us: u64) -> f64 {
    std::time::Duration::from_micros(us).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_have_numbers_and_pauses_classes() {
        let numbers = PoolNumbers { is_up: true, volumes: 3, ..PoolNumbers::default() };
        let mut pauses = PauseCounts::default();
        (pauses.classes[0], pauses.classes[8], pauses.total_us) = (2, 1, 2_500_000);
        let counts = VolumeCounts { pools: [("tank".parse().unwrap(), numbers)].into(), pauses };
        let mut text = Text::default();
        volumes(&mut text, &counts);
        let text = text.into_string();
        for line in [
            "lunette_pool_up{pool=\"tank\"} 1",
            "lunette_pool_volumes{pool=\"tank\"} 3",
            "lunette_snapshot_pause_seconds_bucket{le=\"0.001\"} 2",
            "lunette_snapshot_pause_seconds_bucket{le=\"1\"} 2",
            "lunette_snapshot_pause_seconds_bucket{le=\"+Inf\"} 3",
            "lunette_snapshot_pause_seconds_sum 2.5",
            "lunette_snapshot_pause_seconds_count 3",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}: {text}");
        }
        let mut none = Text::default();
        volumes(&mut none, &VolumeCounts::default());
        assert_eq!(none.into_string(), "");
    }
}
