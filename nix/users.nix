# Who there is in a sandbox: root, nobody and `agent`, who works there, may use sudo and has an identity for commits.
{pkgs}: let
  name = "agent";
  id = "1000";
  home = "/home/${name}";
  workspace = "/workspace";
  etc = file: text: pkgs.writeTextDir "etc/${file}" text;
in {
  inherit name home workspace;

  files = pkgs.symlinkJoin {
    name = "sandbox-users";
    paths = [
      (etc "passwd" ''
        root:x:0:0:root:/root:/bin/bash
        ${name}:x:${id}:${id}:${name}:${home}:/bin/bash
        nobody:x:65534:65534:nobody:/var/empty:/bin/false
      '')
      (etc "group" ''
        root:x:0:
        ${name}:x:${id}:
        nogroup:x:65534:
      '')
      (etc "nsswitch.conf" ''
        hosts: files dns
      '')
      (etc "os-release" ''
        ID=ralph-sandbox
        NAME="ralph sandbox"
        PRETTY_NAME="ralph sandbox (Nix)"
      '')
      (etc "gitconfig" ''
        [user]
          name = ralph
          email = ralph@localhost
        [init]
          defaultBranch = main
      '')
      (etc "pam.d/sudo" ''
        account sufficient pam_permit.so
        auth sufficient pam_permit.so
        session sufficient pam_permit.so
      '')
    ];
  };

  # What the Nix store cannot hold: owners, a set-user-id program, and a file that only root may read.
  commands = ''
    mkdir -p ./tmp ./var/empty ./var/tmp ./root ./usr/bin ./etc .${home}/.local/bin .${workspace}
    chmod 1777 ./tmp ./var/tmp
    chmod 700 ./root
    chown -R ${id}:${id} .${home} .${workspace}
    install -m 4755 ${pkgs.sudo}/bin/sudo ./usr/bin/sudo
    echo '${name} ALL=(ALL:ALL) NOPASSWD: ALL' >./etc/sudoers
    chmod 440 ./etc/sudoers
  '';
}
