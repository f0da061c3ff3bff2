# Kills the processes of a cluster and removes its directory: sh end.sh DIRECTORY
# Run by the directory's watcher when the owner of the cluster is gone, and by `cluster down`.
dir=$1
[ -f "$dir/end.sh" ] || exit 0

# Process IDs are reused: our processes have the directory in their command lines.
for file in "$dir"/pids/*; do
  [ -f "$file" ] || continue
  pid=$(cat "$file")
  if tr '\0' ' ' 2> /dev/null < "/proc/$pid/cmdline" | grep -qF "$dir"; then
    kill -KILL "$pid" 2> /dev/null
    turns=0
    # A zombie has no command line.
    while grep -q . "/proc/$pid/cmdline" 2> /dev/null && [ $turns -lt 500 ]; do
      turns=$((turns + 1))
      sleep 0.01
    done
  fi
done

# The cgroups of a node's pods, innermost first. Their processes ended with the node's first process.
if [ -f "$dir/cgroup" ]; then
  group=$(cat "$dir/cgroup")
  turns=0
  while [ $turns -lt 500 ]; do
    for top in /sys/fs/cgroup/"$group" /sys/fs/cgroup/*/"$group"; do
      [ -d "$top" ] && find "$top" -depth -type d -exec rmdir {} + 2> /dev/null
    done
    ls -d /sys/fs/cgroup/"$group" /sys/fs/cgroup/*/"$group" > /dev/null 2>&1 || break
    turns=$((turns + 1))
    sleep 0.01
  done
fi

# The node's network namespace, with its interfaces, routes and tables.
if [ -f "$dir/netns" ]; then
  ip netns del "$(cat "$dir/netns")" 2> /dev/null
fi

turns=0
while [ -e "$dir" ] && [ $turns -lt 500 ]; do
  rm -rf "$dir" 2> /dev/null && break
  turns=$((turns + 1))
  sleep 0.01
done
