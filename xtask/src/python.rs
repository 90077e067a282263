//! `cargo xtask python` and `cargo xtask bench python`: the wheel, as it is released, in a clean environment.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::repository::{root, succeed};
use crate::services;

const USAGE: &str = "usage: cargo xtask python test [PYTEST OPTION…], or cargo xtask python docs";
/// The version that the wheel is built with.
const MATURIN: &str = "maturin==1.16.0";
/// The largest wheel that is released, in bytes.
const WHEEL_MAX: u64 = 6 << 20;

/// Runs the tests, with the arguments of pytest, or builds the API reference.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    match args {
        ["test", options @ ..] => test(options),
        ["docs"] => docs(),
        _ => bail!(USAGE),
    }
}

fn test(options: &[&str]) -> Result<()> {
    let engines = services::up()?;
    let environment = Environment::create()?;
    let mut tests = environment.python();
    tests.args(["-m", "pytest", "--strict-markers", "-p", "no:cacheprovider"]).args(options);
    tests.envs(engines).env("THROTTLEKIT_BIN", server()?).envs(rust_programs()?);
    tests.env("THROTTLEKIT_PYTHON_DOCS", docs_folder());
    succeed(&mut tests)
}

/// Builds the API reference as a site, which fails if a public name has no docstring.
fn docs() -> Result<()> {
    let environment = Environment::create()?;
    succeed(environment.python().arg("reference.py").arg(docs_folder()))
}

/// Runs the benchmarks, which fail below a threshold.
pub(crate) fn bench() -> Result<()> {
    let engines = services::up_only(&["redis"])?;
    let environment = Environment::create()?;
    let mut bench = environment.python();
    bench.arg("bench/bench.py").envs(engines);
    succeed(&mut bench)
}

/// A virtual environment with the wheel and what tests need, and nothing else.
struct Environment {
    folder: PathBuf,
}

impl Environment {
    /// Creates it. The wheel is built in another one, so that nothing of its build is left.
    fn create() -> Result<Self> {
        let builder = Self::new("python-build")?;
        builder.pip(&["install", "--quiet", MATURIN])?;
        let wheel = builder.wheel()?;
        let environment = Self::new("python-test")?;
        let requirements = project().join("tests/requirements.txt");
        environment.pip(&["install", "--quiet", "--requirement", &requirements.display().to_string()])?;
        environment.pip(&["install", "--quiet", "--no-deps", &wheel.display().to_string()])?;
        Ok(environment)
    }

    fn new(name: &str) -> Result<Self> {
        let folder = target().join(name);
        let interpreter = env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
        let mut create = Command::new(interpreter);
        succeed(create.args(["-m", "venv", "--clear"]).arg(&folder)).context(
            "cannot create a virtual environment: install Python 3.10 or newer with venv (Debian: python3-venv), or \
             set PYTHON",
        )?;
        Ok(Self { folder })
    }

    fn python(&self) -> Command {
        let mut command = Command::new(self.folder.join("bin/python"));
        // Only the wheel is to be found.
        command.current_dir(project()).env_remove("PYTHONPATH").env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    fn pip(&self, args: &[&str]) -> Result<()> {
        succeed(self.python().args(["-m", "pip", "--disable-pip-version-check"]).args(args))
    }

    /// Builds the wheel and returns its path.
    fn wheel(&self) -> Result<PathBuf> {
        let out = target().join("python-wheels");
        if out.exists() {
            fs::remove_dir_all(&out)?;
        }
        let mut build = Command::new(self.folder.join("bin/maturin"));
        build.args(["build", "--release", "--locked", "--out"]).arg(&out).current_dir(project());
        build.env("VIRTUAL_ENV", &self.folder).env("CARGO_TARGET_DIR", target().join("python"));
        succeed(&mut build)?;
        let wheel = only_file(&out)?;
        let bytes = fs::metadata(&wheel)?.len();
        println!("{}: {:.1} MB", wheel.display(), bytes as f64 / 1e6);
        ensure!(bytes <= WHEEL_MAX, "the wheel has {bytes} bytes: at most {WHEEL_MAX} are allowed");
        Ok(wheel)
    }
}

fn only_file(folder: &Path) -> Result<PathBuf> {
    let mut files = fs::read_dir(folder)?;
    let file = files.next().context("maturin has built no wheel")??.path();
    ensure!(files.next().is_none(), "{} has more than one file", folder.display());
    Ok(file)
}

/// Returns the path of the server: that of the environment, or else built.
fn server() -> Result<PathBuf> {
    if let Some(path) = env::var_os("THROTTLEKIT_BIN") {
        return Ok(path.into());
    }
    succeed(cargo().args(["build", "--locked", "-p", "throttlekit-cli"]).current_dir(root()))?;
    Ok(target().join("debug/throttlekit"))
}

/// Builds the Rust programs that the tests compare Python with, and returns the variables that name them.
fn rust_programs() -> Result<[(&'static str, PathBuf); 2]> {
    let target = target().join("python");
    let mut build = cargo();
    build.args(["build", "--release", "--locked", "--examples"]).current_dir(project());
    succeed(build.env("CARGO_TARGET_DIR", &target))?;
    let program = |name| target.join("release/examples").join(name);
    Ok([
        ("THROTTLEKIT_RUST_PEER", program("rust_peer")),
        ("THROTTLEKIT_RUST_SCENARIOS", program("rust_scenarios")),
    ])
}

fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Returns the folder of the API reference.
fn docs_folder() -> PathBuf {
    target().join("python-docs")
}

fn project() -> PathBuf {
    root().join("clients/python")
}

fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |path| root().join(path))
}
