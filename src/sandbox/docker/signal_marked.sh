# Signals all processes with a mark in their environment, and their descendants. $1: the mark, $2: the signal.
ours=" "
for dir in /proc/[0-9]*; do
  if tr '\0' '\n' 2>/dev/null <"$dir/environ" | grep -qxF -- "RALPH_MARK=$1"; then
    ours="$ours${dir#/proc/} "
  fi
done
grown=yes
while [ "$grown" = yes ]; do
  grown=no
  for dir in /proc/[0-9]*; do
    pid=${dir#/proc/}
    # The name, in parentheses, may contain anything. The parent is the second field after it.
    { read -r stat <"$dir/stat"; } 2>/dev/null || continue
    rest=${stat##*) }
    rest=${rest#* }
    parent=${rest%% *}
    case "$ours" in *" $pid "*) continue ;; esac
    case "$ours" in *" $parent "*) ours="$ours$pid " grown=yes ;; esac
  done
done
for pid in $ours; do
  kill "-$2" "$pid" 2>/dev/null
done
exit 0
