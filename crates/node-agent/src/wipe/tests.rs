//! Tests with real directories, and as root with real mounts.

mod mounted;
mod races;
mod world;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{IFlags, Mode, OFlags};

use super::*;
use world::{OTHER, UID, World, make_immutable};

#[test]
fn all_files_of_a_pod_are_removed_and_no_others() {
    let world = World::new();
    world.fill("a/b/c", 3);
    world.fill("", 2);
    fs::create_dir_all(world.root().join(OTHER).join("x")).unwrap();
    fs::write(world.root().join("beside"), "mine").unwrap();
    let wiped = world.wipe();
    assert_eq!(wiped.left.to_string(), "");
    assert_eq!(wiped.removed, 9);
    assert!(!world.dir().exists());
    assert!(world.root().join(OTHER).join("x").exists());
    assert!(world.root().join("beside").exists());
}

#[test]
fn a_wipe_of_what_is_gone_is_complete() {
    let world = World::new();
    assert_eq!(world.wipe(), Wiped::default());
    world.fill("a", 1);
    world.wipe();
    assert_eq!(world.wipe(), Wiped::default());
}

#[test]
fn all_templates_are_wiped_and_a_missing_parent_is_nothing() {
    let world = World::with([
        "{root}/{podUID}",
        "{root}/cache/{podUID}/v1",
        "{root}/none/{podUID}",
    ]);
    world.fill("a", 1);
    let cache = world.root().join("cache").join(UID);
    fs::create_dir_all(cache.join("v1/x")).unwrap();
    fs::create_dir_all(cache.join("v2")).unwrap();
    assert_eq!(world.wipe().left.to_string(), "");
    assert!(!world.dir().exists());
    assert!(!cache.join("v1").exists());
    assert!(cache.join("v2").exists(), "not in the template");
}

// No link leads to a file of value: a broken implementation must not destroy anything.
#[test]
fn planted_symbolic_links_are_removed_and_never_followed() {
    let world = World::new();
    let victim = world.victim();
    world.fill("a", 1);
    for (name, target) in [
        ("to-dir", victim.as_path()),
        ("to-file", &victim.join("file")),
        ("to-dir-above", victim.parent().unwrap()),
        ("up", Path::new("../..")),
        ("a/other", &world.root().join(OTHER)),
        ("proc", Path::new("/proc/self/fdinfo")),
        ("dangling", Path::new("/nowhere")),
    ] {
        symlink(target, world.dir().join(name)).unwrap();
    }
    assert_eq!(world.wipe().left.to_string(), "");
    assert!(!world.dir().exists());
    world.assert_victim_unharmed();
}

#[test]
fn a_link_in_place_of_the_pods_directory_is_removed_itself() {
    let world = World::new();
    symlink(world.victim(), world.dir()).unwrap();
    assert_eq!(world.wipe().left.to_string(), "");
    assert!(fs::symlink_metadata(world.dir()).is_err());
    world.assert_victim_unharmed();
}

#[test]
fn a_link_above_the_pods_directory_stops_the_wipe() {
    let world = World::with(["{root}/a/{podUID}"]);
    let target = world.victim();
    fs::create_dir_all(target.join(UID).join("x")).unwrap();
    symlink(&target, world.root().join("a")).unwrap();
    let left = world.wipe().left;
    assert_eq!(left.why(), Some(Why::Symlink), "{left}");
    assert!(target.join(UID).join("x").exists());
}

#[test]
fn an_invalid_root_is_rejected() {
    let world = World::new();
    let link = world.temp().join("link");
    symlink(world.root(), &link).unwrap();
    let file = world.temp().join("file");
    fs::write(&file, "").unwrap();
    let open = |path: &Path| {
        let layout = Layout::new([path.to_str().unwrap()], [""; 0]).unwrap();
        Wiper::new(layout).unwrap_err()
    };
    assert!(matches!(open(&link), RootError::Symlink(_)));
    assert!(matches!(open(&file), RootError::NoDirectory(_)));
    assert!(matches!(
        open(&world.temp().join("none")),
        RootError::Absent(_)
    ));
}

#[test]
fn a_wipe_without_its_root_is_not_complete() {
    let world = World::new();
    fs::remove_dir_all(world.root()).unwrap();
    let left = world.wipe().left;
    assert_eq!(left.why(), Some(Why::NoRoot), "{left}");
}

#[test]
fn removing_a_hard_link_keeps_the_file() {
    let world = World::new();
    let file = world.victim().join("file");
    world.fill("a", 1);
    fs::hard_link(&file, world.dir().join("a/stolen")).unwrap();
    assert_eq!(world.wipe().left.to_string(), "");
    world.assert_victim_unharmed();
}

#[test]
fn files_of_every_type_are_removed_without_opening_them() {
    let world = World::new();
    world.fill("a", 1);
    let dir = world.dir().join("a");
    let mkfifo = |name: &str| {
        rustix::fs::mknodat(
            rustix::fs::CWD,
            dir.join(name),
            rustix::fs::FileType::Fifo,
            Mode::RWXU,
            0,
        )
    };
    // Opening it would block for ever.
    mkfifo("fifo").unwrap();
    let _socket = UnixListener::bind(dir.join("s")).unwrap();
    fs::write(dir.join("with\nnew line and \x1b"), "").unwrap();
    fs::write(dir.join("-rf"), "").unwrap();
    fs::set_permissions(dir.join("-rf"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::write(world.dir().join("*"), "").unwrap();
    assert_eq!(world.wipe().left.to_string(), "");
    assert!(!world.dir().exists());
}

#[test]
fn a_tree_deeper_than_any_path_is_removed_with_few_open_files() {
    let world = World::new();
    world.fill("", 1);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let open = |dir: &rustix::fd::OwnedFd, name: &str| {
        rustix::fs::openat(dir, name, flags, Mode::empty()).unwrap()
    };
    let mut at = rustix::fs::open(world.dir(), flags, Mode::empty()).unwrap();
    // 3,000 levels with names of 20 bytes: the path has 60,000, the limit of Linux is 4,095.
    for level in 0..3_000 {
        let name = format!("{level:020}");
        rustix::fs::mkdirat(&at, &name, Mode::RWXU).unwrap();
        if level % 100 == 0 {
            let file = OFlags::CREATE | OFlags::WRONLY;
            drop(rustix::fs::openat(&at, "file", file, Mode::RWXU).unwrap());
        }
        at = open(&at, &name);
    }
    drop(at);
    let wiped = world.wipe();
    assert_eq!(wiped.left.to_string(), "");
    assert_eq!(wiped.removed, 3_000 + 30 + 2);
    assert!(!world.dir().exists());
}

#[test]
fn ten_thousand_files_in_one_directory_are_removed() {
    let world = World::new();
    world.fill("wide", 10_000);
    let wiped = world.wipe();
    assert_eq!(wiped.left.to_string(), "");
    assert_eq!(wiped.removed, 10_002);
}

#[test]
fn the_next_attempt_continues_after_the_deadline() {
    let world = World::new();
    world.fill("a", 5);
    let wiped = world.wiper().wipe(&world.proof(), Instant::now());
    assert_eq!(wiped.left.why(), Some(Why::Time), "{}", wiped.left);
    assert!(world.dir().exists());
    assert_eq!(world.wipe().left.to_string(), "");
    assert!(!world.dir().exists());
}

#[test]
fn an_immutable_file_is_reported_and_others_are_removed() {
    let world = World::new();
    world.fill("a", 3);
    world.fill("b", 3);
    let kept = fs::File::open(world.dir().join("a/0")).unwrap();
    if !make_immutable(&kept) {
        return;
    }
    let wiped = world.wipe();
    rustix::fs::ioctl_setflags(&kept, IFlags::empty()).unwrap();
    assert_eq!(wiped.left.why(), Some(Why::Immutable), "{}", wiped.left);
    let text = wiped.left.to_string();
    assert!(text.ends_with("a/0 is immutable"), "{text}");
    assert!(!world.dir().join("b").exists());
    assert!(!world.dir().join("a/1").exists());
    assert_eq!(world.wipe().left.to_string(), "");
}

#[test]
fn an_immutable_empty_directory_does_not_cause_a_busy_loop() {
    let world = World::new();
    world.fill("a/locked/inner", 0);
    let locked = fs::File::open(world.dir().join("a/locked")).unwrap();
    if !make_immutable(&locked) {
        return;
    }
    // The wipe must end long before this deadline.
    let far = Instant::now() + Duration::from_secs(3_600);
    let wiped = world.wiper().wipe(&world.proof(), far);
    rustix::fs::ioctl_setflags(&locked, IFlags::empty()).unwrap();
    assert_eq!(wiped.left.why(), Some(Why::Immutable), "{}", wiped.left);
    assert_eq!(world.wipe().left.to_string(), "");
}
