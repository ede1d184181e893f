# Fails when a Nix file here is not formatted as `nix fmt` would.
{
  lib,
  runCommand,
  alejandra,
}:
runCommand "ralph-nix-format" {
  src = lib.fileset.toSource {
    root = ../.;
    fileset = lib.fileset.fileFilter (file: file.hasExt "nix") ../.;
  };
  nativeBuildInputs = [alejandra];
} ''
  alejandra --check "$src"
  touch "$out"
''
