# Removes the file or directory $1, also if it is write-protected. Exits with an error number.
[ -e "$1" ] || [ -L "$1" ] || exit 0
[ -L "$1" ] || [ ! -d "$1" ] || chmod -R u+rwX -- "$1" 2>/dev/null
rm -rf -- "$1" 2>/dev/null || exit 13
