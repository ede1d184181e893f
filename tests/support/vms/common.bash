# What the fakes share. Each VM is a container; its state is a directory below `state`, beside the program itself.
here=$(cd "$(dirname "$0")" && pwd)
state=$here/state
prefix=ralph-test-vm-$(cat "$state/id")

# The address of the engine, which is not in the environment of ralph.
if [[ -s $state/engine ]]; then
  DOCKER_HOST=$(cat "$state/engine")
  export DOCKER_HOST
fi

# The real `docker`: one of the fakes has the same name.
docker=$(PATH=$(printf %s "$PATH" | tr : '\n' | grep -vxF "$here" | paste -sd:) command -v docker)

# The first process of a container. It reaps orphans.
keep='mkfifo /tmp/.keep; exec 3<>/tmp/.keep; while :; do read -r <&3; done'

fail() { # CODE MESSAGE
  echo "$2" >&2
  exit "$1"
}

runs() { # CONTAINER
  [[ $("$docker" container inspect -f '{{.State.Running}}' "$1" 2>/dev/null) == true ]]
}

# Makes a container: the user who runs this, network and directories as they are given. A file `program` in `state` names a
# program that it has, as if its image had it.
make() { # CONTAINER IMAGE ARGUMENTS…
  local name=$1 image=$2 brought=()
  shift 2
  [[ ! -e $state/program ]] || brought=(-v "$(cat "$state/program"):/usr/local/bin/$(basename "$(cat "$state/program")"):ro")
  "$docker" run -d --name "$name" --label "$prefix" --user "$(id -u):$(id -g)" "${brought[@]}" "$@" "$image" \
    /bin/bash -c "$keep" >/dev/null
}

# The network of the site; none, where the test made none.
network() { if [[ -e $state/network ]]; then cat "$state/network"; else echo none; fi; }

# Lets a container send to nothing but itself and what is given, in words of iptables. What else it sends is dropped. A file
# `leaky` in `state` makes it forget that; with an address in it, only for that address.
fence() { # CONTAINER ARGUMENTS…
  [[ ! -e $state/leaky || -s $state/leaky ]] || return 0
  local pid box=$1 path=$PATH:/usr/sbin:/sbin leak
  leak=$(cat "$state/leaky" 2>/dev/null || true)
  shift
  pid=$("$docker" container inspect -f '{{.State.Pid}}' "$box")
  PATH=$path nsenter -t "$pid" -n env LEAK="$leak" sh -e -s -- "$@" <<'TEXT' || fail 1 "root privileges are required to run and passwordless sudo was not available"
iptables -P OUTPUT DROP
iptables -A OUTPUT -o lo -j ACCEPT
iptables -A OUTPUT "$@" -j ACCEPT
[ -z "$LEAK" ] || iptables -A OUTPUT -d "$LEAK" -j ACCEPT
ip6tables -P OUTPUT DROP
TEXT
}

# Takes its time for as long as a file is in `state`, and says which process does.
wait_for_no() { # FILE
  [[ -e $state/$1 ]] || return 0
  echo $$ >"$state/making"
  while [[ -e $state/$1 ]]; do sleep 0.1; done
}

# A limit in words of the engine, which gives no more processors than there are.
processors() { echo $(($1 < $(nproc) ? $1 : $(nproc))); }

# Keeps the command line, for tests that look at it.
printf '%q ' "$(basename "$0")" "$@" >>"$state/calls" && echo >>"$state/calls"
