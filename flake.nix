{
  description = "Runs coding agents unattended, in a loop, inside a sandbox, and hands back a pull request";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  # Only wires: what is built is in nix/.
  outputs = {
    self,
    nixpkgs,
  }: let
    inherit (nixpkgs) lib;
    systems = ["x86_64-linux" "aarch64-linux" "x86_64-darwin" "aarch64-darwin"];
    forEachSystem = outputs: lib.genAttrs systems (system: outputs nixpkgs.legacyPackages.${system} self.packages.${system});
    # Images are Linux: on a Mac they are those of Linux on the same processor.
    linuxOf = pkgs: nixpkgs.legacyPackages.${builtins.replaceStrings ["darwin"] ["linux"] pkgs.stdenv.hostPlatform.system};
    app = package: {
      type = "app";
      program = lib.getExe package;
      meta = {inherit (package.meta) description;};
    };
  in {
    lib.mkSandboxImage = import ./nix/sandbox-image.nix;

    overlays.default = final: _previous: {
      ralph = final.callPackage ./nix/package.nix {};
    };

    packages = forEachSystem (pkgs: own: {
      ralph = pkgs.callPackage ./nix/package.nix {};
      # For a Mac that can build for Linux, or have it built.
      ralph-with-guest = pkgs.callPackage ./nix/package.nix {inherit (own) guest;};
      guest = (linuxOf pkgs).callPackage ./nix/guest.nix {};
      dockerImage = self.lib.mkSandboxImage {pkgs = linuxOf pkgs;};
      docker-image = own.dockerImage.tarball;
      host-image = let
        linux = linuxOf pkgs;
      in
        linux.callPackage ./nix/host-image.nix {ralph = linux.callPackage ./nix/package.nix {};};
      default = own.ralph;
    });

    apps = forEachSystem (pkgs: own: {
      ralph = app own.ralph;
      docker-image = app (pkgs.callPackage ./nix/load-image.nix {inherit (own) ralph;});
      default = app own.ralph;
    });

    devShells = forEachSystem (pkgs: own: {
      default = pkgs.callPackage ./nix/devshell.nix {inherit (own) ralph;};
    });

    checks = forEachSystem (pkgs: own: {
      inherit (own) ralph;
      devShell = self.devShells.${pkgs.stdenv.hostPlatform.system}.default;
      format = pkgs.callPackage ./nix/format.nix {};
    });

    templates.default = {
      path = ./nix/template;
      description = "A development shell that is also the sandbox image";
    };

    formatter = forEachSystem (pkgs: _own: pkgs.alejandra);
  };
}
