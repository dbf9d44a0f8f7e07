//! The choice of a kernel. All in one test, because it changes what the whole process uses.

use lunette_crc32c::{Features, Kernel, Tier, UnknownTier};
use lunette_crc32c::{choices, copy, crc32c, force, requested, requested_tier, unforce};

#[test]
fn a_kernel_can_be_forced() {
    // The environment decides only how the test begins.
    if let Some(Ok(kernel)) = requested() {
        assert!(choices().all(|choice| choice.kernel == kernel));
    }
    let message = vec![0x5A; 5000];
    let expected = crc32c(&message);

    for kernel in Kernel::all() {
        force(kernel);
        let forced: Vec<_> = choices().map(|choice| (choice.from, choice.kernel.name())).collect();
        assert_eq!(forced, [(0, kernel.name())]);
        assert_eq!(crc32c(&message), expected);
        assert_eq!(copy(&mut vec![0; message.len()], &message), expected);
    }

    unforce();
    let chosen: Vec<_> = choices().collect();
    assert_eq!(chosen[0].from, 0, "a kernel serves the shortest message");
    assert!(chosen.is_sorted_by(|a, b| a.from < b.from));
    assert!(chosen.iter().all(|choice| !["bitwise", "sarwate"].contains(&choice.kernel.name())));
    // A header's digest must not wake the wide units.
    let for_a_header = chosen.iter().rfind(|choice| choice.from <= 48).unwrap();
    assert!(!for_a_header.kernel.name().contains("vpclmul"));
    assert_eq!(crc32c(&message), expected);
}

/// The variable is read at the first digest, so each value needs its own process: this test again, with the variable
/// set.
#[cfg(feature = "std")]
#[test]
fn the_environment_forces_a_kernel() {
    let this = std::env::current_exe().unwrap();
    for (value, works) in [("slicing8", true), ("abacus", false)] {
        let status = std::process::Command::new(&this)
            .args(["--exact", "what_the_environment_forced", "--ignored"])
            .env("LUNETTE_CRC", value)
            .env("LUNETTE_CRC_TEST_EXPECTS", if works { value } else { "" })
            .output()
            .unwrap();
        assert!(status.status.success(), "LUNETTE_CRC={value}: {}", String::from_utf8_lossy(&status.stdout));
    }
}

#[cfg(feature = "std")]
#[test]
#[ignore = "runs in a process whose environment names a kernel"]
fn what_the_environment_forced() {
    let Ok(expected) = std::env::var("LUNETTE_CRC_TEST_EXPECTS") else { return };
    let names: Vec<_> = choices().map(|choice| choice.kernel.name()).collect();
    if expected.is_empty() {
        assert!(requested().unwrap().is_err());
        assert!(!names.contains(&"bitwise"));
    } else {
        assert_eq!(names, [expected]);
    }
    assert_eq!(crc32c(b"123456789"), 0xE306_9283);
}

/// Each tier hides what is beyond it, and adds nothing; an unknown one hides nothing. The variable is read once, so
/// each value needs its own process.
#[cfg(feature = "std")]
#[test]
fn the_environment_hides_extensions() {
    let this = std::env::current_exe().unwrap();
    let here = Features::of_this_cpu();
    let tiers = Tier::all().map(|tier| (tier.name(), here.only(tier.features())));
    for (value, left) in tiers.chain([("abacus", here)]) {
        let status = std::process::Command::new(&this)
            .args(["--exact", "what_the_environment_left", "--ignored"])
            .env("LUNETTE_CPU", value)
            .env("LUNETTE_CPU_TEST_EXPECTS", left.to_string())
            .output()
            .unwrap();
        assert!(status.status.success(), "LUNETTE_CPU={value}: {}", String::from_utf8_lossy(&status.stdout));
    }
}

#[cfg(feature = "std")]
#[test]
#[ignore = "runs in a process whose environment names a tier"]
fn what_the_environment_left() {
    let Ok(expected) = std::env::var("LUNETTE_CPU_TEST_EXPECTS") else { return };
    assert_eq!(Features::of_this_cpu().to_string(), expected);
    match requested_tier().unwrap() {
        Ok(tier) => {
            assert!(Kernel::all().all(|kernel| kernel.needs().without(tier.features()).is_none()));
            assert!(choices().all(|choice| choice.kernel.needs().without(tier.features()).is_none()));
        }
        Err(error) => assert_eq!(error, UnknownTier),
    }
    assert_eq!(crc32c(b"123456789"), 0xE306_9283);
}
