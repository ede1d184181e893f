# Builds the sandbox image of the project in the current directory and loads it into Docker, under the tag that
# `ralph run` uses.
{
  lib,
  writeShellScriptBin,
  ralph,
}:
(writeShellScriptBin "docker-image" ''exec ${lib.getExe ralph} image build "$@"'')
.overrideAttrs (previous: {
  meta = previous.meta // {description = "Build the sandbox image and load it into Docker";};
})
