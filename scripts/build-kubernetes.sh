#!/bin/sh
# Builds a Kubernetes cluster's programs from the source package of Debian 12 for the long tests, once: later calls find them
# in the cache. Prints the folder with the programs. It needs golang-go, dpkg-dev, and two Go libraries
# (install-system-packages.sh soak). It takes 10 minutes of CPU time, 500 MB in the cache, and 3 GB while it builds.
# The sources come from the machine's own package sources: neither these nor apt's lists are changed.
set -eu
version=1.20.2
programs="kube-apiserver kube-controller-manager kube-scheduler kubelet"
libraries="github.com/modern-go/reflect2 github.com/json-iterator/go"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/gpuyard-tests/kubernetes-$version"
mkdir -p "$cache"
[ "${GPUYARD_BUILD_LOCKED-}" = yes ] || exec env GPUYARD_BUILD_LOCKED=yes flock "$cache/lock" "$0" "$@"
if [ -e "$cache/bin/complete" ]; then
    echo "$cache/bin"
    exit 0
fi
for name in go dpkg-source apt-get; do
    command -v $name >/dev/null 2>&1 || {
        echo "$name not found: install the packages of the long tests with scripts/install-system-packages.sh soak" >&2
        exit 1
    }
done
for library in $libraries; do
    [ -d "/usr/share/gocode/src/$library" ] || {
        echo "the Go library $library was not found: run scripts/install-system-packages.sh soak" >&2
        exit 1
    }
done
work="$cache/work"
rm -rf "$work"
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/apt/parts" "$work/apt/lists/partial" "$work/apt/cache/archives/partial" "$work/bin" "$work/go/src/k8s.io"

# Ask for the sources of every package source that the machine has.
: >"$work/apt/sources.list"
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ ! -e "$file" ] || sed -n 's/^deb /deb-src /p' "$file" >>"$work/apt/sources.list"
done
for file in /etc/apt/sources.list.d/*.sources; do
    [ ! -e "$file" ] || sed 's/^Types:.*/Types: deb-src/' "$file" >"$work/apt/parts/${file##*/}"
done
cat >"$work/apt/apt.conf" <<END
Dir::Etc::SourceList "$work/apt/sources.list";
Dir::Etc::SourceParts "$work/apt/parts";
Dir::State::Lists "$work/apt/lists";
Dir::Cache "$work/apt/cache";
APT::Sandbox::User "root";
END
export APT_CONFIG="$work/apt/apt.conf"
cd "$work"
{
    apt-get update -qq
    apt-get source -qq --download-only kubernetes # apt checks the signed checksums
    case "$(echo ./*.dsc)" in
    *"$version"-*) ;;
    *)
        echo "the package sources have no Kubernetes $version, which Debian 12 has"
        exit 1
        ;;
    esac
    tree="$work/go/src/k8s.io/kubernetes"
    dpkg-source --no-check -x ./*.dsc "$tree"
    cd "$tree"

    # The tree's copies of these two libraries crash when Go 1.18 or later compiled them.
    for library in $libraries; do
        rm -rf "vendor/$library"
        cp -rL "/usr/share/gocode/src/$library" "vendor/$library"
    done
    export GOPATH="$work/go" GOCACHE="$work/go-cache" GO111MODULE=off GOFLAGS= CGO_ENABLED=0
    go build -p 2 -o "$work/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
    inputs=$(
        find vendor/k8s.io/ pkg plugin cmd -follow -name '*.go' ! -path '*/_*' ! -path '*/testdata/*' \
            ! -path 'vendor/k8s.io/code-generator/*' ! -path 'vendor/k8s.io/sample-apiserver/*' ! -path 'vendor/k8s.io/kube-openapi/*' \
            -exec grep -l '+k8s:openapi-gen=' {} + | xargs -n 1 dirname | LC_ALL=C sort -u | sed 's,^,k8s.io/kubernetes/,' | paste -sd ,
    )
    "$work/openapi-gen" -i "$inputs" -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
        -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -r "$work/violations"
    minor=${version#*.}
    stamp=
    for package in component-base/version client-go/pkg/version; do # for the programs, and for what the server answers
        variables=k8s.io/kubernetes/vendor/k8s.io/$package
        stamp="$stamp -X $variables.gitVersion=v$version -X $variables.gitMajor=${version%%.*} -X $variables.gitMinor=${minor%%.*}"
    done
    for program in $programs; do
        go build -p 2 -ldflags "-s -w $stamp" -o "$work/bin/$program" "./cmd/$program"
    done
} >&2
touch "$work/bin/complete"
rm -rf "$cache/bin"
mv "$work/bin" "$cache/bin"
echo "$cache/bin"
