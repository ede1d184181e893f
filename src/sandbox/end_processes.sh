# Ends all processes of the user, except for this one and its ancestors.
if [ ! -r /proc/self/stat ]; then
  # macOS: processes of ralph have a mark in their environment, which is hidden for programs of the system itself: those
  # are found as descendants.
  ps -x -ww -E -o pid= -o ppid= -o command= | awk '
    { parent[$1] = $2; if (/RALPH_MARK=/) marked[$1] = 1 }
    END {
      for (pid in parent)
        for (at = pid; at > 1 && at in parent; at = parent[at])
          if (at in marked) { print pid; break }
    }' | while read -r pid; do
    [ "$pid" = "$$" ] || kill -9 "$pid" 2>/dev/null
  done
  exit 0
fi
# Reads the state and the parent of a process. Its name, in parentheses, may contain anything.
look() {
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
  rest=${stat##*) }
  state=${rest%% *}
  rest=${rest#* }
  parent=${rest%% *}
}
kept=" 1 $$ "
pid=$$
while look "$pid" && [ "$parent" -gt 1 ]; do
  pid=$parent
  kept="$kept$pid "
done
rounds=0
while [ "$rounds" -lt 100 ]; do
  killed=no
  for dir in /proc/[0-9]*; do
    pid=${dir#/proc/}
    case "$kept" in *" $pid "*) continue ;; esac
    look "$pid" || continue
    case "$state" in Z | X) continue ;; esac
    kill -9 "$pid" 2>/dev/null && killed=yes
  done
  [ "$killed" = no ] && exit 0
  # Killed processes take a moment to end.
  rounds=$((rounds + 1))
  sleep 0.05
done
exit 1
