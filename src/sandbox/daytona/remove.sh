# Removes a file or a whole directory, also what may not be written to. $1: its path. Ends with the number of the error.
[ -e "$1" ] || [ -L "$1" ] || exit 0
[ -L "$1" ] || [ ! -d "$1" ] || chmod -R u+rwX -- "$1" 2>/dev/null
rm -rf -- "$1" 2>/dev/null || exit 13
