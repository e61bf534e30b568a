//! Mounts, as root.

use std::fs;
use std::time::{Duration, Instant};

use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_bind_recursive};

use super::world::{World, may_mount, mount_tmpfs};
use crate::wipe::Why;

#[test]
fn mounts_of_the_pod_are_unmounted_and_its_directories_removed() {
    if !may_mount() {
        return;
    }
    let world = World::new();
    for dir in ["m", "m2", "spa ce"] {
        world.fill(dir, 1);
        mount_tmpfs(&world.dir().join(dir)).unwrap();
    }
    // Nested, stacked, and one that hides another.
    world.fill("m/inner", 1);
    mount_tmpfs(&world.dir().join("m/inner")).unwrap();
    mount_tmpfs(&world.dir().join("m2")).unwrap();
    world.fill("m2/hidden", 1);
    mount_tmpfs(&world.dir().join("m2/hidden")).unwrap();
    mount_tmpfs(&world.dir().join("m2")).unwrap();
    mount_tmpfs(&world.dir()).unwrap();
    assert_eq!(world.mounts().len(), 8);
    assert_eq!(world.wipe().left.to_string(), "");
    assert!(world.mounts().is_empty());
    assert!(!world.dir().exists());
}

#[test]
fn a_bind_mount_is_unmounted_and_its_source_stays() {
    if !may_mount() {
        return;
    }
    let world = World::new();
    world.fill("bind", 0);
    world.fill("file", 1);
    let victim = world.victim();
    mount_bind(&victim, world.dir().join("bind")).unwrap();
    mount_bind(victim.join("file"), world.dir().join("file/0")).unwrap();
    assert_eq!(world.wipe().left.to_string(), "");
    assert!(!world.dir().exists());
    world.assert_victim_unharmed();
}

#[test]
fn a_mount_in_use_stays_and_is_reported() {
    if !may_mount() {
        return;
    }
    let world = World::new();
    world.fill("busy", 0);
    world.fill("rest", 5);
    mount_tmpfs(&world.dir().join("busy")).unwrap();
    let open = fs::File::create(world.dir().join("busy/open")).unwrap();
    for _ in 0..2 {
        let left = world.wipe().left;
        assert_eq!(left.why(), Some(Why::MountBusy), "{left}");
        let text = left.to_string();
        assert!(text.contains("/busy is a mount in use"), "{text}");
        assert!(world.dir().join("busy/open").exists(), "behind a mount");
        assert!(!world.dir().join("rest").exists(), "the rest is removed");
    }
    drop(open);
    assert_eq!(world.wipe().left.to_string(), "");
    assert!(!world.dir().exists());
}

#[test]
fn mounts_below_a_shared_bind_mount_stay_in_the_source() {
    if !may_mount() {
        return;
    }
    let world = World::new();
    let shared = world.temp().join("shared");
    fs::create_dir(&shared).unwrap();
    mount_tmpfs(&shared).unwrap();
    rustix::mount::mount_change(&shared, MountPropagationFlags::SHARED).unwrap();
    let inner = shared.join("inner");
    fs::create_dir(&inner).unwrap();
    mount_tmpfs(&inner).unwrap();
    fs::write(inner.join("file"), "precious").unwrap();
    world.fill("bind", 0);
    mount_bind_recursive(&shared, world.dir().join("bind")).unwrap();
    assert!(world.dir().join("bind/inner/file").exists());
    assert_eq!(world.wipe().left.to_string(), "");
    assert!(!world.dir().exists());
    assert_eq!(fs::read_to_string(inner.join("file")).unwrap(), "precious");
    assert_eq!(world.mounts(), [shared, inner]);
}

#[test]
fn a_mount_between_the_root_and_the_pods_directory_is_not_entered() {
    if !may_mount() {
        return;
    }
    let world = World::with(["{root}/disk/{podUID}"]);
    let disk = world.root().join("disk");
    fs::create_dir(&disk).unwrap();
    mount_tmpfs(&disk).unwrap();
    let dir = disk.join(super::UID);
    fs::create_dir(&dir).unwrap();
    let left = world.wipe().left;
    assert_eq!(left.why(), Some(Why::Mounted), "{left}");
    assert!(dir.exists());
}

#[test]
fn a_mount_during_the_wipe_loses_no_data() {
    if !may_mount() {
        return;
    }
    let world = World::new();
    let victim = world.victim();
    let until = Instant::now() + Duration::from_secs(3);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let point = world.dir().join("d/point");
            while Instant::now() < until {
                let _ = fs::create_dir_all(&point);
                if mount_bind(&victim, &point).is_ok() {
                    let _ = rustix::mount::unmount(&point, UnmountFlags::DETACH);
                }
            }
        });
        let mut removed = 0;
        while Instant::now() < until {
            removed += world.wiper().wipe(&world.proof(), until).removed;
        }
        assert!(removed > 0, "nothing raced");
    });
    world.assert_victim_unharmed();
    assert_eq!(world.wipe().left.to_string(), "");
}
