#!/usr/bin/env bash
# Pushes the images of a release as one index, and the chart: push.sh FOLDER REPOSITORY VERSION
# FOLDER contains the archives of `cargo xtask release`, and gets image.digest and chart.digest. The registry must be
# logged in, for podman and for Helm.
set -euo pipefail
folder=$1 repository=$2 version=$3

index=localhost/belayer-index:$version
podman manifest rm "$index" 2>/dev/null || true
podman manifest create "$index"
for archive in "$folder/belayer-$version"-*-image.tar; do
  podman manifest add "$index" "oci-archive:$archive"
done
podman manifest push --all --rm --digestfile "$folder/image.digest" "$index" "docker://$repository:$version"

# Helm adds the chart's name.
pushed=$(helm push "$folder/belayer-chart-$version.tgz" "oci://$repository/charts" 2>&1)
echo "$pushed"
sed -n 's/^Digest: //p' <<<"$pushed" >"$folder/chart.digest"
