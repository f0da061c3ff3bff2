# Ends what a cluster left and removes its directory: sh end.sh DIRECTORY
# It is run by the directory's watcher, when the process that owned the cluster is gone, and by `cluster down`.
dir=$1
[ -f "$dir/end.sh" ] || exit 0

# A number may have been given to another process meanwhile: ours has the directory in its command line.
for file in "$dir"/pids/*; do
  [ -f "$file" ] || continue
  pid=$(cat "$file")
  if tr '\0' ' ' 2> /dev/null < "/proc/$pid/cmdline" | grep -qF "$dir"; then
    kill -KILL "$pid" 2> /dev/null
    turns=0
    # A process that has ended but that nobody has asked for is a zombie: it has no command line.
    while grep -q . "/proc/$pid/cmdline" 2> /dev/null && [ $turns -lt 500 ]; do
      turns=$((turns + 1))
      sleep 0.01
    done
  fi
done

# The groups of a node's pods, the innermost first. Their processes ended with the node's first one.
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

# The node's network; interfaces, routes and tables go with it.
if [ -f "$dir/netns" ]; then
  ip netns del "$(cat "$dir/netns")" 2> /dev/null
fi

turns=0
while [ -e "$dir" ] && [ $turns -lt 500 ]; do
  rm -rf "$dir" 2> /dev/null && break
  turns=$((turns + 1))
  sleep 0.01
done
