//! `cargo xtask python` and `cargo xtask bench python`: the wheel, as it is released, in a clean environment.

use std::env;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::repository::{root, succeed, target};
use crate::services;

const USAGE: &str = "usage: cargo xtask python test [PYTEST OPTION…], or cargo xtask python docs";
/// The version that the wheel is built with.
const MATURIN: &str = "maturin==1.16.0";
/// The largest wheel that is released, in bytes.
const WHEEL_MAX: u64 = 6 << 20;
/// The minor versions of Python 3 that the wheel is for.
const VERSIONS: RangeInclusive<u32> = 10..=14;
/// The tests that need no framework. They are repeated with every version of Python that the machine has.
const WITHOUT_FRAMEWORKS: [&str; 8] = [
    "tests/test_client.py",
    "tests/test_guard.py",
    "tests/test_guide.py",
    "tests/test_limiter.py",
    "tests/test_processes.py",
    "tests/test_shared.py",
    "tests/test_values.py",
    "tests/test_vectors.py",
];

/// Runs the tests, with the arguments of pytest, or builds the API reference.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    match args {
        ["test", options @ ..] => test(options),
        ["docs"] => docs(),
        _ => bail!(USAGE),
    }
}

/// With options, only the interpreter that builds the wheel runs the tests.
fn test(options: &[&str]) -> Result<()> {
    let engines = services::up()?;
    let (environment, wheel) = Environment::create()?;
    let (server, programs) = (server()?, rust_programs()?);
    let pytest = |environment: &Environment, arguments: &[&str]| {
        let mut tests = environment.python();
        tests.args(["-m", "pytest", "--strict-markers", "-p", "no:cacheprovider"]).args(arguments);
        tests.envs(engines.iter().cloned()).env("THROTTLEKIT_BIN", &server).envs(programs.clone());
        succeed(tests.env("THROTTLEKIT_PYTHON_DOCS", docs_folder()))
    };
    pytest(&environment, options)?;
    if !options.is_empty() {
        return Ok(());
    }
    let others = other_interpreters(&environment)?;
    println!("other versions of Python with the same wheel: {}", others.len());
    for interpreter in others {
        println!("── {}", interpreter.display());
        let environment = Environment::new("python-other", &interpreter)?;
        environment.install_pytest()?;
        environment.install(&wheel)?;
        pytest(&environment, &WITHOUT_FRAMEWORKS)?;
    }
    Ok(())
}

/// Returns an interpreter of every further version that this machine has, on its path or installed by pyenv.
fn other_interpreters(tested: &Environment) -> Result<Vec<PathBuf>> {
    let minor = tested.python().args(["-c", "import sys; print(sys.version_info.minor)"]).output()?;
    let minor: u32 = String::from_utf8(minor.stdout)?.trim().parse()?;
    let others = VERSIONS.filter(|other| *other != minor);
    Ok(others.filter_map(|minor| candidates(minor).into_iter().find(|path| creates_venvs(path))).collect())
}

fn candidates(minor: u32) -> Vec<PathBuf> {
    let pyenv = env::var_os("PYENV_ROOT").map(PathBuf::from);
    let pyenv = pyenv.or_else(|| env::home_dir().map(|home| home.join(".pyenv")));
    let versions = pyenv.and_then(|root| fs::read_dir(root.join("versions")).ok());
    let prefix = format!("3.{minor}.");
    let installed = versions.into_iter().flatten().flatten().filter_map(|version| {
        let named = version.file_name().to_str()?.starts_with(&prefix);
        named.then(|| version.path().join("bin/python3"))
    });
    [PathBuf::from(format!("python3.{minor}"))].into_iter().chain(installed).collect()
}

fn creates_venvs(interpreter: &Path) -> bool {
    let mut probe = Command::new(interpreter);
    probe.args(["-c", "import ensurepip, venv"]).stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

/// Builds the API reference as a site, which fails if a public name has no docstring.
fn docs() -> Result<()> {
    let (environment, _) = Environment::create()?;
    succeed(environment.python().arg("reference.py").arg(docs_folder()))
}

/// Runs the benchmarks, which fail below a threshold.
pub(crate) fn bench() -> Result<()> {
    let engines = services::up_only(&["redis"])?;
    let (environment, _) = Environment::create()?;
    let mut bench = environment.python();
    bench.arg("bench/bench.py").envs(engines);
    succeed(&mut bench)
}

/// A virtual environment with the wheel and what tests need, and nothing else.
struct Environment {
    folder: PathBuf,
}

impl Environment {
    /// Creates it, with the wheel at the returned path. That is built in another one, so that nothing of its build is
    /// left.
    fn create() -> Result<(Self, PathBuf)> {
        let interpreter = PathBuf::from(env::var_os("PYTHON").unwrap_or_else(|| "python3".into()));
        let builder = Self::new("python-build", &interpreter)?;
        builder.pip(&["install", "--quiet", MATURIN])?;
        let wheel = builder.wheel()?;
        let environment = Self::new("python-test", &interpreter)?;
        environment.pip(&["install", "--quiet", "--requirement", &requirements().display().to_string()])?;
        environment.install(&wheel)?;
        Ok((environment, wheel))
    }

    fn new(name: &str, interpreter: &Path) -> Result<Self> {
        let folder = target().join(name);
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

    fn install(&self, wheel: &Path) -> Result<()> {
        self.pip(&["install", "--quiet", "--no-deps", &wheel.display().to_string()])
    }

    /// Installs pytest and its plugins in the versions that all tests have.
    fn install_pytest(&self) -> Result<()> {
        let all = fs::read_to_string(requirements())?;
        let pytest: Vec<_> = all.lines().filter(|line| line.starts_with("pytest")).collect();
        self.pip(&[&["install", "--quiet"], pytest.as_slice()].concat())
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

/// Returns the path of the server: that of the environment, or else built with the features that CI's other stages have,
/// so that nothing is compiled twice.
fn server() -> Result<PathBuf> {
    if let Some(path) = env::var_os("THROTTLEKIT_BIN") {
        return Ok(path.into());
    }
    let words = ["build", "--locked", "--workspace", "--features", "full", "--bin", "throttlekit"];
    succeed(cargo().args(words).current_dir(root()))?;
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

fn requirements() -> PathBuf {
    project().join("tests/requirements.txt")
}

fn project() -> PathBuf {
    root().join("clients/python")
}
