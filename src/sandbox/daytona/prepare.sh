# Makes the directories of a sandbox, and prints where they are, where programs are, and what the processor is; then what
# Daytona gave it in the variables that are named.
mkdir -p -- "$HOME/.ralph/staging" "$HOME/ralph/work" "$HOME/ralph/home" || exit
cd -- "$HOME" || exit
printf '%s\n%s\n%s\n' "$(pwd -P)" "$PATH" "$(uname -m)"
for variable; do
    eval "printf '%s\n' \"\${$variable-}\""
done
