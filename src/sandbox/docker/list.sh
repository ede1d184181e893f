# Prints the entries of the directory $1, each as its mode in hexadecimal digits, its size, its time and its name, which ends
# with a NUL. The name may begin with `./`. Exits with an error number.
[ -e "$1" ] || exit 2
[ -d "$1" ] || exit 20
cd -- "$1" 2>/dev/null || exit 13
# A process for many entries, where `stat` can end a line with a NUL. That of busybox cannot.
if stat --printf= . 2>/dev/null && command -v find >/dev/null; then
  # One that is removed meanwhile is left out.
  find . ! -name . -prune -exec stat --printf '%f %s %Y\n%n\0' {} + 2>/dev/null
  exit 0
fi
for name in * .*; do
  case $name in . | ..) continue ;; esac
  # It may be a pattern without a match, or have been removed meanwhile.
  if stat -c '%f %s %Y' -- "$name" 2>/dev/null; then
    printf '%s\0' "$name"
  fi
done
exit 0
