# Prints the length and the permission bits of the file $1. Exits with an error number.
[ ! -d "$1" ] || exit 21
[ -e "$1" ] || exit 2
[ -f "$1" ] || exit 22
[ -r "$1" ] || exit 13
stat -L -c '%s %a' -- "$1"
