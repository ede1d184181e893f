//! Fakes of `tart`, `sbx` and `docker sandbox`: scripts in this directory, whose VMs are containers. Each set of them has a
//! directory of its own, which is put on a `PATH`.

use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use ralph::exec::Host;
use ralph::sandbox::vm::VmOptions;
use tempfile::TempDir;

use super::skip;

/// The directory of the scripts.
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/vms");

/// A host with some of the programs. Everything that they created is removed on drop.
pub struct Site {
    dir: TempDir,
    id: String,
}

impl Site {
    /// A host with these programs, whose VMs start from this image of the engine.
    pub fn with(programs: &[&str], image: &str) -> Self {
        let site = Self {
            dir: TempDir::new().unwrap(),
            id: format!("{:016x}", fastrand::u64(..)),
        };
        std::fs::create_dir_all(site.path("bin/state")).unwrap();
        for program in programs {
            let script = if *program == "tart" { "tart" } else { "sbx" };
            symlink(format!("{SCRIPTS}/{script}"), site.path("bin").join(program)).unwrap();
        }
        site.put("id", &site.id);
        site.put("engine", &std::env::var("DOCKER_HOST").unwrap_or_default());
        site.put("base", image);
        site.put("os", "darwin");
        site.put("images", image);
        // Loading an image into `sbx` takes a while, and most tests are not about that.
        site.put("templates", &format!("{image}\n"));
        site
    }

    /// Connects the VMs to a network whose default route is an address of the host. The error says why that is impossible.
    pub fn connect(&self) -> Result<Ipv4Addr, String> {
        skip::program("nsenter")?;
        let name = format!("ralph-test-vm-{}", self.id);
        let said = |args: &[&str]| {
            let output = Command::new("docker").args(args).output().unwrap();
            let said =
                [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).trim().to_owned());
            if output.status.success() {
                Ok(said[0].clone())
            } else {
                Err(said[1].clone())
            }
        };
        said(&["network", "create", "--label", &name, &name])?;
        let gateway = said(&[
            "network",
            "inspect",
            "-f",
            "{{(index .IPAM.Config 0).Gateway}}",
            &name,
        ])?;
        self.put("network", &name);
        self.put("gateway", &gateway);
        gateway
            .parse()
            .map_err(|_| format!("{gateway:?} is not an address"))
    }

    /// The options of a provider on this host.
    pub fn options(&self) -> VmOptions {
        VmOptions {
            base: self.path("sandboxes"),
            guest_dir: self.path("guest"),
            host: self.host(),
            host_name: "test".to_owned(),
        }
    }

    /// A `PATH` with these programs first.
    pub fn search_path(&self) -> String {
        let path = std::env::var("PATH").unwrap();
        format!("{}:{path}", self.path("bin").display())
    }

    /// Starts programs from that `PATH`.
    pub fn host(&self) -> Host {
        let path = self.search_path();
        let engine = std::env::var("DOCKER_HOST").map(|host| ("DOCKER_HOST".to_owned(), host));
        let path = ("PATH".to_owned(), path);
        Host::new(std::iter::once(path).chain(engine).collect())
    }

    /// Writes a state file of the programs.
    pub fn put(&self, name: &str, value: &str) {
        std::fs::write(self.path("bin/state").join(name), value).unwrap();
    }

    /// Reads a state file of the programs.
    pub fn kept(&self, name: &str) -> String {
        std::fs::read_to_string(self.path("bin/state").join(name)).unwrap_or_default()
    }

    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    /// Adds a program to the VMs, as if their image had it.
    pub fn provide(&self, program: &Path) {
        let program = std::fs::canonicalize(program).unwrap();
        self.put("program", program.to_str().unwrap());
    }

    /// Installs a program that does nothing, such as `softnet`, with these permission bits.
    pub fn install(&self, name: &str, mode: u32) {
        use std::os::unix::fs::PermissionsExt;
        let program = self.path("bin").join(name);
        std::fs::copy(Path::new("/bin/true"), &program).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(mode)).unwrap();
    }

    /// Installs a shell script.
    pub fn script(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt;
        let program = self.path("bin").join(name);
        std::fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// Installs a `sudo` that fails, as if it asked for a password.
    pub fn forbid_sudo(&self) {
        let program = self.path("bin/sudo");
        std::fs::copy(Path::new("/bin/false"), &program).unwrap();
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let label = format!("label=ralph-test-vm-{}", self.id);
        let made = Command::new("docker")
            .args(["ps", "-aq", "--filter", &label])
            .output();
        let made = made.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        for container in made.unwrap_or_default().lines() {
            let _ = Command::new("docker")
                .args(["rm", "-f", "-v", container])
                .output();
        }
        if let Some(pid) = self.kept("proxy").split(' ').next().filter(|pid| !pid.is_empty()) {
            let _ = Command::new("kill").arg(pid).output();
        }
        if !self.kept("network").is_empty() {
            let _ = Command::new("docker")
                .args(["network", "rm", &self.kept("network")])
                .output();
        }
        let images = format!("reference=ralph-test-vm-{}-*", self.id);
        let made = Command::new("docker")
            .args(["images", "-q", "--filter", &images])
            .output();
        let made = made.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        for image in made.unwrap_or_default().lines() {
            let _ = Command::new("docker").args(["rmi", "-f", image]).output();
        }
    }
}
