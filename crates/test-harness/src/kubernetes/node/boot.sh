# The first process of a node: sh boot.sh DIRECTORY PROGRAM NAME CGROUP
# It has its own mount, PID and network namespaces. When it ends, the kernel kills everything in them.
set -eu
dir=$1 program=$2 name=$3 group=$4
trap 'exit 1' TERM

# Directories that programs use at fixed paths are private to the node.
for place in /var/lib /var/log; do
  mkdir -p "$dir/machine$place"
  mount --bind "$dir/machine$place" $place
done
mount -t tmpfs tmpfs /run

# The kubelet sets these for the whole machine, so they are replaced by files.
mkdir -p "$dir/machine/sys"
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
  kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  path=/proc/sys/${setting%=*}
  [ -f "$path" ] || continue
  copy=$dir/machine/sys/$(echo "${setting%=*}" | tr / -)
  echo "${setting#*=}" > "$copy"
  mount --bind "$copy" "$path"
done

# Starts a program of the node. The node ends when it exits.
begin() {
  what=$1
  shift
  ("$@" > "$dir/logs/$what.log" 2>&1 || true; echo "$what ended:"; tail -n 12 "$dir/logs/$what.log"; kill -TERM 1) &
}

begin containerd containerd --config "$dir/containerd.toml"
turns=0
until ctr version > /dev/null 2>&1; do
  turns=$((turns + 1))
  [ $turns -lt 600 ] || { echo "containerd does not answer"; tail -n 20 "$dir/logs/containerd.log"; exit 1; }
  sleep 0.05
done
ctr --namespace k8s.io images import "$dir/pause.tar"

begin kube-proxy "$program" kube-proxy --config="$dir/kube-proxy.yaml"
begin kubelet "$program" kubelet --config="$dir/kubelet.yaml" --kubeconfig="$dir/kubelet.kubeconfig" \
  --hostname-override="$name" --node-ip="$5" \
  --node-labels=topology.kubernetes.io/region=region-1,topology.kubernetes.io/zone=zone-1
while :; do wait; done
