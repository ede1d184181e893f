# The command line of each agent, as a function of what can be had from the Nix packages.
#
# The ones of Claude Code and Cursor are not free software: without `allowUnfree` a placeholder stands in their place,
# which says so when it is called.
{pkgs}: let
  orPlaceholder = package: command: isUsable:
    if isUsable package
    then [pkgs.${package}]
    else [(placeholder package command)];

  placeholder = package: command:
    pkgs.writeShellScriptBin command ''
      echo "${command}: not part of this image. Allow the unfree package '${package}' in the packages that" >&2
      echo "mkSandboxImage is given, or add one that has '${command}' to its 'packages'." >&2
      exit 127
    '';
in {
  # Built into ralph: it needs no program of its own.
  actions = _isUsable: [];
  claude = orPlaceholder "claude-code" "claude";
  codex = orPlaceholder "codex" "codex";
  cursor = orPlaceholder "cursor-cli" "cursor-agent";
}
