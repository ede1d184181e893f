# Creates the directories of a sandbox. Prints the home directory, PATH and processor architecture, then the values of the
# variables that are given as arguments.
mkdir -p -- "$HOME/.ralph/staging" "$HOME/ralph/work" "$HOME/ralph/home" || exit
cd -- "$HOME" || exit
printf '%s\n%s\n%s\n' "$(pwd -P)" "$PATH" "$(uname -m)"
for variable; do
    eval "printf '%s\n' \"\${$variable-}\""
done
