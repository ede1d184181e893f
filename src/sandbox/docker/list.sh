# Prints the entries of the directory $1, each as its mode in hexadecimal digits, its size, its time and its name, which ends
# with a NUL. Exits with an error number.
[ -e "$1" ] || exit 2
[ -d "$1" ] || exit 20
cd -- "$1" 2>/dev/null || exit 13
for name in * .*; do
  case $name in . | ..) continue ;; esac
  # It may be a pattern without a match, or have been removed meanwhile.
  if stat -c '%f %s %Y' -- "$name" 2>/dev/null; then
    printf '%s\0' "$name"
  fi
done
exit 0
