//! Tests in which another thread renames and links during the wipe.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags};

use super::world::World;
use crate::wipe::Why;

/// Duration of each race.
const RACE: Duration = Duration::from_secs(2);

/// Wipes repeatedly while another thread runs `meddle`; returns the number of removed entries.
fn race(world: &World, meddle: impl Fn() + Sync) -> u64 {
    let until = Instant::now() + RACE;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while Instant::now() < until {
                meddle();
            }
        });
        let mut removed = 0;
        while Instant::now() < until {
            removed += world.wiper().wipe(&world.proof(), until).removed;
        }
        removed
    })
}

#[test]
fn a_directory_replaced_by_a_link_is_not_followed() {
    let world = World::new();
    let victim = world.victim();
    let removed = race(&world, || {
        let (dir, link) = (world.dir().join("a/dir"), world.dir().join("a/link"));
        // Names that the victim does not have: some writes go through the link.
        let _ = fs::create_dir_all(dir.join("deep/er"));
        let _ = fs::write(dir.join("mine"), "x");
        let _ = fs::write(dir.join("deep/er/mine"), "x");
        let _ = symlink(&victim, &link);
        for _ in 0..20 {
            let _ = rustix::fs::renameat_with(CWD, &dir, CWD, &link, RenameFlags::EXCHANGE);
        }
    });
    assert!(removed > 100, "only {removed} were removed: nothing raced");
    world.assert_victim_unharmed();
    assert_eq!(world.wipe().left.to_string(), "");
}

#[test]
fn the_pods_directory_replaced_by_a_link_is_not_followed() {
    let world = World::new();
    let victim = world.victim();
    let removed = race(&world, || {
        let aside = world.root().join("aside");
        let _ = fs::create_dir_all(world.dir().join("deep/er"));
        let _ = fs::write(world.dir().join("mine"), "x");
        let _ = symlink(&victim, &aside);
        for _ in 0..20 {
            let _ = rustix::fs::renameat_with(CWD, world.dir(), CWD, &aside, RenameFlags::EXCHANGE);
        }
    });
    assert!(removed > 100, "only {removed} were removed: nothing raced");
    world.assert_victim_unharmed();
}

#[test]
fn directories_moved_in_and_out_are_not_followed() {
    let world = World::new();
    world.victim();
    let removed = race(&world, || {
        let inside = world.dir().join("x/y/z");
        let outside = world.temp().join("outside");
        let _ = fs::create_dir_all(inside.join("deep"));
        let _ = fs::write(inside.join("deep/file"), "x");
        let _ = fs::rename(&inside, &outside);
        let _ = fs::rename(&outside, world.dir().join("x/back"));
    });
    assert!(removed > 100, "only {removed} were removed: nothing raced");
    world.assert_victim_unharmed();
    assert_eq!(world.wipe().left.to_string(), "");
}

#[test]
fn a_writer_that_does_not_stop_is_reported() {
    let world = World::new();
    let until = Instant::now() + RACE;
    std::thread::scope(|scope| {
        let wiped = {
            let writer = |name: &'static str| {
                let world = &world;
                move || {
                    while Instant::now() < until + Duration::from_millis(200) {
                        let _ = fs::create_dir_all(world.dir().join(name));
                        let _ = fs::write(world.dir().join(name).join("file"), "x");
                    }
                }
            };
            for name in ["a", "b", "c"] {
                scope.spawn(writer(name));
            }
            // A wipe may succeed between two writes.
            let mut last = world.wiper().wipe(&world.proof(), until);
            while Instant::now() < until {
                last = world.wiper().wipe(&world.proof(), until);
            }
            last
        };
        let fine =
            wiped.left.is_empty() || matches!(wiped.left.why(), Some(Why::Time | Why::Written));
        assert!(fine, "{}", wiped.left);
    });
    assert_eq!(world.wipe().left.to_string(), "");
}
