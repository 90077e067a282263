//! Installs missing programs by name from Debian's packages.

use std::env;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use super::command::{self, Words, words};
use super::{ENGINES, Engine, state};

/// A program, and the Debian package that contains it.
pub(super) type Need = (&'static str, &'static str);

/// Not for an engine, but for tests of all of them: a wrong clock.
const TOOLS: [Need; 1] = [("faketime", "faketime")];

/// Directories of programs that are not on every user's path.
const MORE_FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];
const POSTGRES_FOLDER: &str = "/usr/lib/postgresql";

/// Ensures that all programs of the engines are installed.
pub(super) fn ensure(engines: &[&Engine]) -> Result<()> {
    let tools = if engines.len() == ENGINES.len() { &TOOLS[..] } else { &[] };
    ensure_needs(engines.iter().flat_map(|engine| engine.needs).chain(tools))
}

/// Ensures that these programs are installed.
pub(super) fn ensure_needs<'a>(needs: impl IntoIterator<Item = &'a Need>) -> Result<()> {
    let missing = needs.into_iter().filter(|(program, _)| find(program).is_none());
    let mut packages: Vec<&str> = missing.map(|(_, package)| *package).collect();
    packages.sort_unstable();
    packages.dedup();
    if packages.is_empty() { Ok(()) } else { install(&packages) }
}

/// Returns the path of a program: the newest PostgreSQL's own first, since Debian's wrappers on the path only
/// select one.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let more = MORE_FOLDERS.iter().map(PathBuf::from);
    let mut folders = postgres_folders().into_iter().chain(env::split_paths(&path)).chain(more);
    folders.find_map(|folder| Some(folder.join(program)).filter(|path| path.is_file()))
}

/// Returns the same as a word of a command, after `ensure`.
pub(super) fn program(name: &str) -> Result<String> {
    let path = find(name).with_context(|| format!("{name} is not installed"))?;
    Ok(path.to_string_lossy().into_owned())
}

/// Some servers refuse to run as root.
#[cfg(unix)]
pub(super) fn we_are_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Engines run on Unix only.
#[cfg(not(unix))]
pub(super) fn we_are_root() -> bool {
    false
}

fn postgres_folders() -> Vec<PathBuf> {
    let entries = fs::read_dir(POSTGRES_FOLDER).into_iter().flatten().flatten();
    let version = |name: &str| name.parse::<u32>().ok();
    let mut versions: Vec<u32> =
        entries.filter_map(|entry| version(&entry.file_name().to_string_lossy())).collect();
    versions.sort_unstable_by(|a, b| b.cmp(a));
    versions.iter().map(|version| PathBuf::from(format!("{POSTGRES_FOLDER}/{version}/bin"))).collect()
}

fn install(packages: &[&str]) -> Result<()> {
    let by_hand = format!("apt-get install --no-install-recommends {}", packages.join(" "));
    let Some(apt) = apt() else {
        bail!("missing, and we may not install it; as root:\n  {by_hand}");
    };
    eprintln!("installing {}", packages.join(" "));
    let folder = state::cache()?;
    let apt =
        |more: &[&str]| [&apt[..], &more.iter().map(|&word| word.to_owned()).collect::<Words>()].concat();
    // Old lists may still work: if not, installing fails.
    if let Err(error) = command::run(&apt(&["update"]), &folder) {
        eprintln!("{error:#}");
    }
    let install = apt(&[&["install", "-y", "--no-install-recommends"], packages].concat());
    command::run(&install, &folder).with_context(|| format!("cannot install; try\n  {by_hand}"))
}

/// Returns `apt-get` with the required rights. At run level 1 a package starts no service; if that is
/// ignored, the service uses its default port, and ours use others.
fn apt() -> Option<Words> {
    find("apt-get")?;
    let env = ["env", "RUNLEVEL=1", "DEBIAN_FRONTEND=noninteractive"];
    let apt = words(["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300"]);
    let who = if we_are_root() { vec![] } else { sudo()? };
    Some([who, words(env), apt].concat())
}

/// Returns `sudo` if it needs no password.
fn sudo() -> Option<Words> {
    find("sudo")?;
    let sudo = words(["sudo", "-n"]);
    command::output(&[&sudo[..], &words(["true"])].concat()).ok()?;
    Some(sudo)
}
