//! The `ralph` program: parses, calls the library, returns an exit code.

fn main() -> std::process::ExitCode {
    ralph::cli::main()
}
