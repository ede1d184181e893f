# Builds the sandbox image and loads it into Docker.
{
  stdenv,
  writeShellScriptBin,
  image,
}:
(writeShellScriptBin "docker-image" (
  # The program that streams an image is as Linux as the image: elsewhere the file is loaded.
  if stdenv.hostPlatform.isLinux
  then ''set -o pipefail; ${image} | "''${DOCKER:-docker}" load''
  else ''exec "''${DOCKER:-docker}" load --input ${image.tarball}''
))
.overrideAttrs (previous: {
  meta = previous.meta // {description = "Build the sandbox image and load it into Docker";};
})
