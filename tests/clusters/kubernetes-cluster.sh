#!/usr/bin/env bash
# A real Kubernetes cluster on this machine, without a registry of images or a container engine of its own: etcd, API
# server, controller manager, scheduler, and a kubelet with containerd and runc for each node.
#
#   kubernetes-cluster.sh build DIR   install Debian's packages and build Kubernetes' programs, from Debian 12's own
#                                     source package (v1.20), into DIR/bin: 5 to 15 minutes, once
#   kubernetes-cluster.sh up DIR [--nodes 2] [--port 16443] [--owner PID]
#                                     start it; returns when all nodes are ready. DIR/kubeconfig is its administrator's.
#                                     With --owner everything ends when that process has.
#   kubernetes-cluster.sh image DIR NAME ROOTFS [WORD...]   load a folder as an image on every node
#   kubernetes-cluster.sh kill-node DIR N         SIGKILL node N: its kubelet and all that runs there
#   kubernetes-cluster.sh kill-kubelet DIR N      SIGKILL only its kubelet: what runs there goes on
#   kubernetes-cluster.sh start-node DIR N        start its kubelet again
#   kubernetes-cluster.sh kill-api DIR            SIGKILL the API server
#   kubernetes-cluster.sh start-api DIR           start it again; returns when it is ready
#   kubernetes-cluster.sh down DIR                end all of it, containers included; DIR/bin and the logs stay
#
# Nodes are called node1, node2, ... Pods have addresses 10.88.N.x and reach each other and this machine, which they
# find at 10.88.0.1; hostPath volumes work; there is no DNS. One cluster a machine at a time; needs root.
# Exit codes: 0 done, 1 it failed, 2 wrong usage, 3 this machine cannot (a right or a package is missing).
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin

fail() { echo "kubernetes-cluster.sh: $1" >&2; exit "${2:-1}"; }
usage() { sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2; exit 2; }

[ $# -ge 2 ] || usage
verb=$1 directory=$2
shift 2
case $verb in build | up) mkdir -p "$directory" ;; esac
directory=$(cd "$directory" 2>/dev/null && pwd) || fail "there is no directory $directory; \`up\` makes one" 2
bin=$directory/bin run=$directory/run log=$directory/log kubeconfig=$directory/kubeconfig
address=10.88.0.1 service_address=10.96.0.1

# Process files hold "PID START", so that a number which the system has given away since is never taken for ours.
start_of() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
is_running() { # NAME: prints the process id
  local pid start
  read -r pid start 2>/dev/null <"$run/$1.process" || return 1
  [ -n "$start" ] && [ "$(start_of "$pid")" = "$start" ] && echo "$pid"
}
start() { # NAME COMMAND...: in the background
  local name=$1
  shift
  ! is_running "$name" >/dev/null || fail "$name runs already"
  setsid "$@" >>"$log/$name.log" 2>&1 </dev/null &
  echo "$! $(start_of $!)" >"$run/$name.process"
}
end() { # NAME SIGNAL: returns when the process is gone
  local pid
  if pid=$(is_running "$1"); then
    kill "-$2" "$pid" 2>/dev/null || true
    for _ in $(seq 100); do is_running "$1" >/dev/null || break; sleep 0.05; done
    kill -KILL "$pid" 2>/dev/null || true
    while is_running "$1" >/dev/null; do sleep 0.05; done
  fi
  rm -f "$run/$1.process"
}
wait_for() { # SECONDS WHAT COMMAND...: until it succeeds
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $deadline ] || fail "$what; the logs are in $log"
    sleep 0.2
  done
}
kube() { timeout 20 kubectl --kubeconfig "$kubeconfig" "$@"; }
containers() { # NODE WORD...
  local node=$1
  shift
  timeout 60 ctr -a "$run/node$node/containerd.sock" -n k8s.io "$@"
}
nodes() { ls -d "$run"/node* 2>/dev/null | sed 's/.*node//' | sort -n; }
port() { cat "$run/port"; }
check_node() { [ -d "$run/node${1:?N is missing}" ] || fail "the cluster has no node $1; it has: $(nodes | tr '\n' ' ')" 2; }

is_built() {
  local program
  for program in kubelet kube-apiserver kube-scheduler kube-controller-manager; do
    [ -x "$bin/$program" ] || return 1
  done
}
update_lists() {
  apt-get -o DPkg::Lock::Timeout=600 update -q >"$log/apt.log" 2>&1 ||
    fail "apt-get update: $(tail -n 1 "$log/apt.log")" 3
}
mirror() { # prints where this machine gets Debian's own packages, whatever files say so
  local codename
  codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' 'Label: Debian' \
    "Codename: $codename" 2>/dev/null | sed -n 1p
}
install() { # PACKAGE...
  DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y -q --allow-downgrades "$@" >"$log/apt.log" 2>&1 ||
    fail "apt-get cannot install $*: $(tail -n 1 "$log/apt.log")" 3
}
build() {
  mkdir -p "$log" "$bin"
  [ "$(id -u)" = 0 ] || fail "needs root" 3
  # Only Debian 12 has the whole of Kubernetes as source, and a containerd that speaks its language.
  local uri
  uri=$(mirror)
  [ -n "$uri" ] || { update_lists && uri=$(mirror); }
  [ -n "$uri" ] || fail "apt-get knows no mirror of Debian's packages; name one in /etc/apt/sources.list" 3
  {
    echo "Types: deb deb-src"
    echo "URIs: $uri"
    echo "Suites: bookworm"
    echo "Components: main"
    echo "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg"
  } >/etc/apt/sources.list.d/kubernetes-cluster.sources
  grep -q bookworm /etc/os-release ||
    printf 'Package: *\nPin: release n=bookworm\nPin-Priority: 100\n' >/etc/apt/preferences.d/kubernetes-cluster
  update_lists
  install containerd/bookworm runc etcd-server containernetworking-plugins iptables conntrack ebtables socat \
    busybox-static iproute2 openssl python3
  command -v kubectl >/dev/null || install kubernetes-client/bookworm
  if is_built; then return; fi
  install golang-1.19-go dpkg-dev gcc libc6-dev
  local tree=$directory/gopath/src/k8s.io/kubernetes program packages
  if [ ! -d "$tree" ]; then
    mkdir -p "$(dirname "$tree")"
    (cd "$directory" && apt-get source -q --download-only kubernetes/bookworm >"$log/source.log" 2>&1 &&
      dpkg-source -x kubernetes_*.dsc "$tree.part" >>"$log/source.log" 2>&1 && mv "$tree.part" "$tree") ||
      fail "Kubernetes' source cannot be fetched: $(tail -n 1 "$log/source.log")" 3
  fi
  export GOPATH=$directory/gopath GOCACHE=$directory/gocache GO111MODULE=off GOROOT=/usr/lib/go-1.19 PATH=/usr/lib/go-1.19/bin:$PATH
  unset GOFLAGS
  cd "$tree"
  # The source package leaves one generated file out: the OpenAPI models.
  go build -o "$bin/openapi-gen" k8s.io/kubernetes/vendor/k8s.io/kube-openapi/cmd/openapi-gen
  packages=$(grep -rl '+k8s:openapi-gen=true' --include=*.go staging/src/k8s.io pkg |
    grep -v -e _test.go -e testdata -e sample- -e code-generator | xargs -n1 dirname | sort -u |
    sed 's#^staging/src/#k8s.io/kubernetes/vendor/#; s#^pkg/#k8s.io/kubernetes/pkg/#' | paste -sd,)
  "$bin/openapi-gen" --logtostderr -i "$packages" -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
    -h hack/boilerplate/boilerplate.generatego.txt -r "$directory/openapi-violations"
  for program in kube-apiserver kube-scheduler kube-controller-manager; do
    CGO_ENABLED=0 go build -ldflags '-s -w' -o "$bin/$program" "k8s.io/kubernetes/cmd/$program"
  done
  CGO_ENABLED=1 go build -ldflags '-s -w' -o "$bin/kubelet" k8s.io/kubernetes/cmd/kubelet
  chmod -R u+w "$directory/gopath" "$directory/gocache"
  rm -rf "$directory/gopath" "$directory/gocache" "$directory"/kubernetes_* "$directory/openapi-violations"
}

start_api() {
  start api "$bin/kube-apiserver" --etcd-servers "http://127.0.0.1:$(($(port) + 1))" --cert-dir "$run/pki" \
    --secure-port "$(port)" --bind-address 0.0.0.0 --advertise-address "$address" \
    --kubelet-preferred-address-types InternalIP --token-auth-file "$run/tokens.csv" --authorization-mode Node,RBAC \
    --allow-privileged=true --service-account-key-file "$run/pki/accounts.key" \
    --service-account-signing-key-file "$run/pki/accounts.key" \
    --service-account-issuer https://kubernetes.default.svc --service-cluster-ip-range 10.96.0.0/16 \
    --disable-admission-plugins ServiceAccount
  wait_for 120 "the API server makes no certificate" test -s "$run/pki/apiserver.crt"
  # It signs its own certificate, with what it signs it by in the same file.
  cat >"$kubeconfig.new" <<E
apiVersion: v1
kind: Config
clusters: [{name: local, cluster: {server: "https://$address:$(port)", certificate-authority-data: $(base64 -w0 "$run/pki/apiserver.crt")}}]
users: [{name: administrator, user: {token: $(cut -d, -f1 "$run/tokens.csv")}}]
contexts: [{name: local, context: {cluster: local, user: administrator}}]
current-context: local
E
  chmod 600 "$kubeconfig.new"
  mv "$kubeconfig.new" "$kubeconfig"
  wait_for 120 "the API server does not start" kube get --raw /readyz
}

start_kubelet() { # N
  local home=$run/node$1
  start "kubelet$1" "$bin/kubelet" --config "$home/kubelet.yaml" --kubeconfig "$kubeconfig" --root-dir "$home/kubelet" \
    --cert-dir "$home/pki" --container-runtime remote --container-runtime-endpoint "unix://$home/containerd.sock" \
    --hostname-override "node$1"
}

start_node() { # N
  local n=$1 home=$run/node$1
  mkdir -p "$home/cni"
  cat >"$home/cni/10-bridge.conflist" <<E
{"cniVersion": "0.4.0", "name": "pods$n", "plugins": [
  {"type": "bridge", "bridge": "k8sbr$n", "isGateway": true, "ipMasq": false, "ipam": {"type": "host-local",
   "dataDir": "$home/ipam", "ranges": [[{"subnet": "10.88.$n.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
E
  cat >"$home/containerd.toml" <<E
version = 2
root = "$home/containerd"
state = "$home/state"
[grpc]
  address = "$home/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/local/pause:1"
  disable_apparmor = true
  restrict_oom_score_adj = true
  stream_server_port = "$((10700 + n))"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$home/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
E
  cat >"$home/kubelet.yaml" <<E
kind: KubeletConfiguration
apiVersion: kubelet.config.k8s.io/v1beta1
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
port: $((10250 + n))
readOnlyPort: 0
healthzPort: 0
nodeStatusUpdateFrequency: 2s
syncFrequency: 5s
evictionHard: {nodefs.available: "1%", imagefs.available: "1%", memory.available: "50Mi"}
imageGCHighThresholdPercent: 100
E
  start "containerd$n" containerd -c "$home/containerd.toml"
  wait_for 30 "containerd of node $n does not start" containers "$n" version
  load "$n" docker.io/local/pause:1 "$run/pause" /bin/sleep 1000000000
  start_kubelet "$n"
}

load() { # NODE NAME ROOTFS WORD...
  local n=$1 name=$2 root=$3
  shift 3
  [ -d "$root" ] || fail "there is no folder $root" 2
  python3 - "$name" "$root" "$run/image.tar" "$@" <<'E'
import hashlib, io, json, sys, tarfile
name, root, out, *command = sys.argv[1:]
layer_bytes = io.BytesIO()
with tarfile.open(fileobj=layer_bytes, mode="w") as layer:
    layer.add(root, arcname=".")
layer = layer_bytes.getvalue()
layer_id = hashlib.sha256(layer).hexdigest()
config = json.dumps({"architecture": "amd64", "os": "linux", "config": {"Cmd": command, "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]},
                     "rootfs": {"type": "layers", "diff_ids": ["sha256:" + layer_id]}}).encode()
config_id = hashlib.sha256(config).hexdigest()
manifest = json.dumps([{"Config": config_id + ".json", "RepoTags": [name], "Layers": [layer_id + "/layer.tar"]}]).encode()
with tarfile.open(out, "w") as image:
    for path, data in ((config_id + ".json", config), (layer_id + "/layer.tar", layer), ("manifest.json", manifest)):
        entry = tarfile.TarInfo(path)
        entry.size = len(data)
        image.addfile(entry, io.BytesIO(data))
E
  containers "$n" images import --snapshotter native "$run/image.tar" >/dev/null
  rm -f "$run/image.tar"
}

redirect() { # ADD or DELETE: what the cluster's own service of its API server would do
  iptables -w -t nat "$1" PREROUTING -d "$service_address" -p tcp --dport 443 -j REDIRECT --to-ports "$(port)"
}
are_ready() { [ "$(kube get nodes --no-headers 2>/dev/null | grep -cw Ready)" = "$1" ]; }

up() {
  local count=2 first_port=16443 owner='' n
  while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || fail "$1 needs a value" 2
    case $1 in
      --nodes) count=$2 ;;
      --port) first_port=$2 ;;
      --owner) owner=$2 ;;
      *) fail "unknown option $1" 2 ;;
    esac
    shift 2
  done
  [ "$(id -u)" = 0 ] || fail "needs root" 3
  is_built || fail "Kubernetes' programs are not built: kubernetes-cluster.sh build $directory" 3
  [ ! -d "$run" ] || fail "a cluster runs in $directory, or has not been ended: kubernetes-cluster.sh down $directory"
  ip -4 address show dev lo | grep -q " $address/" && fail "another cluster runs on this machine"
  for n in containerd runc etcd kubectl iptables openssl /usr/lib/cni/bridge; do
    command -v $n >/dev/null || fail "there is no $n: kubernetes-cluster.sh build $directory installs it" 3
  done
  mkdir -p "$run/pki" "$run/pause/bin" "$log"
  rm -f "$log"/*.log
  trap 'code=$?; if [ $code != 0 ]; then down; fi' EXIT
  echo "$first_port" >"$run/port"
  ls -d /run/netns/cni-* >"$run/namespaces-before" 2>/dev/null || true
  cp /bin/busybox "$run/pause/bin/sleep"
  openssl genrsa -out "$run/pki/accounts.key" 2048 2>/dev/null
  (umask 077 && echo "$(openssl rand -hex 16),administrator,1,\"system:masters\"" >"$run/tokens.csv")
  ip address add "$address/32" dev lo || fail "cannot give this machine the address $address" 3
  ip address add "$service_address/32" dev lo
  redirect -A || fail "iptables cannot redirect connections here" 3
  echo 1 >/proc/sys/net/ipv4/ip_forward 2>/dev/null || true
  if [ -n "$owner" ]; then
    setsid bash -c "while [ \"\$(sed 's/.*) //' /proc/$owner/stat 2>/dev/null | cut -d' ' -f20)\" = '$(start_of "$owner")' ] &&
      [ -d '$run' ]; do sleep 0.5; done; [ ! -d '$run' ] || exec bash '${BASH_SOURCE[0]}' down '$directory'" \
      >/dev/null 2>&1 </dev/null &
  fi

  local etcd=http://127.0.0.1:$((first_port + 1)) peer=http://127.0.0.1:$((first_port + 2))
  start etcd etcd --data-dir "$run/etcd" --unsafe-no-fsync --listen-client-urls "$etcd" --advertise-client-urls "$etcd" \
    --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" --initial-cluster "default=$peer"
  start_api
  start controller-manager "$bin/kube-controller-manager" --kubeconfig "$kubeconfig" --port 0 --secure-port 0 \
    --service-account-private-key-file "$run/pki/accounts.key" --root-ca-file "$run/pki/apiserver.crt" \
    --leader-elect=false --node-monitor-period 1s --node-monitor-grace-period 8s --pod-eviction-timeout 5s
  start scheduler "$bin/kube-scheduler" --kubeconfig "$kubeconfig" --port 0 --secure-port 0 --leader-elect=false
  for n in $(seq "$count"); do start_node "$n"; done
  wait_for 120 "not all nodes are ready" are_ready "$count"
  trap - EXIT
}

end_containers() { # N: SIGKILL
  containers "$1" tasks ls -q 2>/dev/null |
    xargs -r -P 8 -I '{}' timeout 60 ctr -a "$run/node$1/containerd.sock" -n k8s.io tasks kill -s SIGKILL '{}' >/dev/null 2>&1 || true
}

down() {
  local n
  [ -d "$run" ] || return 0
  for n in $(nodes); do end "kubelet$n" KILL; done
  for n in scheduler controller-manager api etcd; do end "$n" KILL; done
  for n in $(nodes); do
    # With their control groups and mounts.
    containers "$n" tasks ls -q 2>/dev/null |
      xargs -r -P 8 -I '{}' timeout 60 ctr -a "$run/node$n/containerd.sock" -n k8s.io tasks rm -f '{}' >/dev/null 2>&1 || true
    end "containerd$n" TERM
    grep -o "$run/node$n/[^ ]*" /proc/mounts | sort -r | xargs -r -n1 umount -l 2>/dev/null || true
    ip link del "k8sbr$n" 2>/dev/null || true
  done
  grep -o "$run/[^ ]*" /proc/mounts | sort -r | xargs -r -n1 umount -l 2>/dev/null || true
  # The network namespaces of its pods have their names outside of the directory.
  for n in /run/netns/cni-*; do
    [ -e "$n" ] || continue
    grep -qx "$n" "$run/namespaces-before" 2>/dev/null || { umount -l "$n" 2>/dev/null || true; rm -f "$n"; }
  done
  redirect -D 2>/dev/null || true
  ip address del "$service_address/32" dev lo 2>/dev/null || true
  ip address del "$address/32" dev lo 2>/dev/null || true
  rm -rf "$run" "$kubeconfig"
}

case $verb in
  build) build ;;
  up) up "$@" ;;
  image)
    [ $# -ge 2 ] || usage
    name=$1 root=$2
    shift 2
    [ $# -gt 0 ] || set -- /bin/sh
    for n in $(nodes); do load "$n" "$name" "$root" "$@"; done
    ;;
  kill-node)
    check_node "${1:-}"
    end "kubelet$1" KILL
    end_containers "$1"
    ;;
  kill-kubelet)
    check_node "${1:-}"
    end "kubelet$1" KILL
    ;;
  start-node)
    check_node "${1:-}"
    start_kubelet "$1"
    ;;
  kill-api) end api KILL ;;
  start-api) start_api ;;
  down) down ;;
  *) usage ;;
esac
