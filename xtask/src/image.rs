// SPDX-License-Identifier: MIT OR Apache-2.0
//! Puts the VM's initial root file system together, and keeps it until one of its parts changes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufWriter;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::artefacts::{self, Artefact};
use crate::c_programs::Compiler;
use crate::cpio::{Archive, Kind};
use crate::error::{Error, InFile};
use crate::fingerprint::Fingerprint;
use crate::kernel::{self, ADMIN_PATH, Kernel};
use crate::own_modules::{APM, APM_KUNIT, OwnModule, SOFT_HCA};
use crate::{guest, shell, userland, workspace};

/// The stock modules that the VM loads; what they depend on comes along.
const MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_console",
    // What notices that the kernel stands still.
    "i6300esb",
    "configfs",
    "ib_core",
    "ib_uverbs",
    "ib_umad",
    "iw_cm",
    "ib_cm",
    "rdma_cm",
    "rdma_ucm",
    "rdmavt",
    "ib_ipoib",
    "veth",
    // What an operator may have put his IPoIB interfaces into.
    "bonding",
    // What the drill `programs` uses.
    "brd",
    "ib_srp",
    "ib_srpt",
    "nfsd",
    "nfsv4",
    "nvme_rdma",
    "nvmet_rdma",
    "rds_rdma",
    "rpcrdma",
    "sd_mod",
    // What the drill `refused` uses: RoCE.
    "rdma_rxe",
];

/// Likewise, where the kernel has them: the checksum that RoCE asks for by name on kernels up to 6.12, and which is
/// not among the modules that it depends on; and what runs unit tests.
const MODULES_OF_SOME: &[&str] = &["crc32_generic", KUNIT];

/// None of Debian's kernels has it, the checking kernel does.
const KUNIT: &str = "kunit";

/// What of the project goes into an image.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// The module and the project's programs.
    Everything,
    /// The module only: the world without the project's programs.
    Stock,
}

enum Source {
    Directory,
    File(PathBuf),
    Text(String),
    Symlink(String),
    Console,
}

/// What is to be in the archive, by place; a directory sorts before what is in it.
#[derive(Default)]
struct Tree {
    entries: BTreeMap<String, (u32, Source)>,
}

impl Tree {
    fn add(&mut self, place: impl Into<String>, permissions: u32, source: Source) {
        let place = place.into();
        for (index, _) in place.match_indices('/') {
            let directory = place[..index].to_owned();
            self.entries
                .entry(directory)
                .or_insert((0o755, Source::Directory));
        }
        self.entries.insert(place, (permissions, source));
    }

    fn add_file(&mut self, from: &Path, place: impl Into<String>) -> Result<(), Error> {
        let mode = fs::metadata(from).in_file(from)?.permissions().mode();
        self.add(place, mode & 0o777, Source::File(from.to_path_buf()));
        Ok(())
    }

    fn has(&self, place: &str) -> bool {
        self.entries.contains_key(place)
    }

    /// Of all that is in the tree.
    fn fingerprint(&self) -> Result<Fingerprint, Error> {
        let mut fingerprint = Fingerprint::default();
        for (place, (permissions, source)) in &self.entries {
            fingerprint.add(&(place, permissions));
            match source {
                Source::Directory => fingerprint.add(&0),
                Source::Console => fingerprint.add(&1),
                Source::Text(text) | Source::Symlink(text) => fingerprint.add(text),
                Source::File(path) => add_file(path, &mut fingerprint)?,
            }
        }
        Ok(fingerprint)
    }

    fn write(&self, path: &Path) -> Result<(), Error> {
        let file = File::create(path).in_file(path)?;
        let mut archive = Archive::new(BufWriter::new(file));
        for (place, (permissions, source)) in &self.entries {
            match source {
                Source::Directory => archive.add(place, *permissions, &Kind::Directory),
                Source::Text(text) => {
                    archive.add(place, *permissions, &Kind::File(text.as_bytes()))
                }
                Source::Symlink(to) => archive.add(place, *permissions, &Kind::Symlink(to)),
                Source::Console => {
                    archive.add(place, *permissions, &Kind::Device { major: 5, minor: 1 })
                }
                Source::File(from) => {
                    let content = fs::read(from).in_file(from)?;
                    archive.add(place, *permissions, &Kind::File(&content))
                }
            }
            .in_file(path)?;
        }
        archive.finish().in_file(path).map(drop)
    }
}

/// Small files count by their content, since some are made anew each time.
fn add_file(path: &Path, fingerprint: &mut Fingerprint) -> Result<(), Error> {
    const SMALL: u64 = 256 << 10;
    if fs::metadata(path).in_file(path)?.len() <= SMALL {
        return fingerprint.add_content(path);
    }
    fingerprint.add_file(path);
    Ok(())
}

/// The image for `content`, built anew only if one of its parts changed.
///
/// With `force`, a software HCA that does not compile is left out.
pub(crate) fn build(
    kernel: &Kernel,
    vm_dir: &Path,
    content: Content,
    force: bool,
) -> Result<PathBuf, Error> {
    let mut tree = Tree::default();
    add_skeleton(&mut tree);
    add_scripts(&mut tree)?;
    let mut modules = vec![(APM, APM.build(kernel, vm_dir)?)];
    if kernel.module_files(&[KUNIT]).is_ok() {
        modules.push((APM_KUNIT, APM_KUNIT.build(kernel, vm_dir)?));
    }
    match SOFT_HCA.build(kernel, vm_dir) {
        Err(error) if force => eprintln!("xtask: image without the software HCA: {error}"),
        built => modules.push((SOFT_HCA, built?)),
    }
    add_modules(&mut tree, kernel, &modules, vm_dir)?;
    let compiler = Compiler::new(vm_dir)?;
    let mut programs = compiler.of_world()?;
    programs.extend(compiler.stock()?);
    if content == Content::Everything {
        let ours = artefacts::rust(vm_dir)?;
        programs.extend(compiler.linked(&ours)?);
        programs.extend(ours);
    }
    add_programs(&mut tree, &programs, vm_dir)?;
    add_busybox(&mut tree)?;
    store(&tree, vm_dir)
}

/// An archive of the files to be found in `/host`, and of `texts` at their places.
pub(crate) fn second_archive(
    path: &Path,
    copies: &[PathBuf],
    texts: &[(&str, u32, &str)],
) -> Result<(), Error> {
    let mut tree = Tree::default();
    for from in copies {
        let name = from.canonicalize().in_file(from)?;
        let name = name
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        add_recursively(&mut tree, from, &format!("host/{name}"))?;
    }
    for (place, permissions, text) in texts {
        tree.add(*place, *permissions, Source::Text((*text).to_owned()));
    }
    tree.write(path)
}

fn add_recursively(tree: &mut Tree, from: &Path, place: &str) -> Result<(), Error> {
    if !from.is_dir() {
        return tree.add_file(from, place);
    }
    tree.add(place, 0o755, Source::Directory);
    for entry in fs::read_dir(from).in_file(from)? {
        let entry = entry.in_file(from)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        add_recursively(tree, &entry.path(), &format!("{place}/{name}"))?;
    }
    Ok(())
}

fn add_skeleton(tree: &mut Tree) {
    for directory in guest::DIRECTORIES {
        tree.add(*directory, 0o755, Source::Directory);
    }
    for (place, to) in guest::LINKS {
        tree.add(*place, 0o777, Source::Symlink((*to).to_owned()));
    }
    for (place, text) in guest::TEXTS {
        tree.add(*place, 0o644, Source::Text((*text).to_owned()));
    }
    tree.add("dev/console", 0o600, Source::Console);
}

fn add_scripts(tree: &mut Tree) -> Result<(), Error> {
    for (from, place, permissions) in guest::SCRIPTS {
        let path = workspace::root().join(from);
        if path.is_dir() {
            add_recursively(tree, &path, place)?;
        } else {
            let text = fs::read_to_string(&path).in_file(&path)?;
            tree.add(*place, *permissions, Source::Text(text));
        }
    }
    Ok(())
}

/// Adds the stock modules and ours, indexed for modprobe.
fn add_modules(
    tree: &mut Tree,
    kernel: &Kernel,
    own: &[(OwnModule, PathBuf)],
    vm_dir: &Path,
) -> Result<(), Error> {
    let base = vm_dir.join("modules");
    let relative = format!("lib/modules/{}", kernel.release);
    let staging = base.join(&relative);
    if base.exists() {
        fs::remove_dir_all(&base).in_file(&base)?;
    }
    let from = kernel.modules_dir();
    let mut files = kernel.module_files(MODULES)?;
    for name in MODULES_OF_SOME {
        files.extend(kernel.module_files(&[name]).unwrap_or_default());
    }
    files.extend(
        [
            "modules.builtin",
            "modules.builtin.modinfo",
            "modules.order",
        ]
        .map(str::to_owned),
    );
    for file in &files {
        artefacts::copy(&from.join(file), &staging.join(file))?;
    }
    for (module, built) in own {
        artefacts::copy(built, &staging.join(format!("extra/{}.ko", module.name)))?;
    }
    kernel::merge_module_directories(&base)?;
    let mut depmod = Command::new("depmod");
    depmod
        .env("PATH", ADMIN_PATH)
        .arg("-b")
        .arg(&base)
        .arg(&kernel.release);
    shell::output("depmod", &mut depmod)?;
    add_recursively(tree, &staging, &format!("usr/{relative}"))
}

/// Adds Debian's programs and ours, with their libraries.
fn add_programs(tree: &mut Tree, ours: &[Artefact], vm_dir: &Path) -> Result<(), Error> {
    let debian = userland::files()?;
    let machine_code = debian
        .iter()
        .chain(ours.iter().map(|artefact| &artefact.from))
        .map(PathBuf::as_path)
        .filter(|path| userland::is_elf(path));
    let known = vm_dir.join("libraries");
    for library in userland::libraries(&machine_code.collect::<Vec<_>>(), &known)? {
        tree.add_file(&library, userland::place(&library))?;
    }
    for path in &debian {
        let place = userland::place(path);
        match userland::link_target(path)? {
            Some(target) => tree.add(place, 0o777, Source::Symlink(target)),
            None => tree.add_file(path, place)?,
        }
    }
    for artefact in ours {
        tree.add_file(&artefact.from, artefact.to.as_str())?;
    }
    Ok(())
}

/// Adds busybox under every name that no real program has.
fn add_busybox(tree: &mut Tree) -> Result<(), Error> {
    for applet in userland::busybox_applets()? {
        let taken = ["usr/bin", "usr/sbin"]
            .iter()
            .any(|dir| tree.has(&format!("{dir}/{applet}")));
        if !taken {
            let place = format!("usr/bin/{applet}");
            tree.add(place, 0o777, Source::Symlink("/usr/bin/busybox".to_owned()));
        }
    }
    Ok(())
}

fn store(tree: &Tree, vm_dir: &Path) -> Result<PathBuf, Error> {
    let dir = vm_dir.join("images");
    fs::create_dir_all(&dir).in_file(&dir)?;
    let path = dir.join(format!("{}.cpio", tree.fingerprint()?));
    if path.is_file() {
        return Ok(path);
    }
    shell::progress("building the VM's image");
    remove_oldest(&dir)?;
    let unfinished = path.with_extension("new");
    tree.write(&unfinished)?;
    fs::rename(&unfinished, &path).in_file(&path)?;
    Ok(path)
}

/// Leaves room for a new image: few are kept.
fn remove_oldest(dir: &Path) -> Result<(), Error> {
    const KEPT: usize = 4;
    let mut images = Vec::new();
    for entry in fs::read_dir(dir).in_file(dir)? {
        let path = entry.in_file(dir)?.path();
        images.push((
            fs::metadata(&path)
                .and_then(|metadata| metadata.modified())
                .ok(),
            path,
        ));
    }
    images.sort();
    images.reverse();
    for (_, path) in images.iter().skip(KEPT) {
        fs::remove_file(path).in_file(path)?;
    }
    Ok(())
}
