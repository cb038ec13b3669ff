#!/usr/bin/env bash
# Fetches cuDNN's header-only C++ interface into build/third_party and prints the folder of its
# headers; quick when it is there. Without it the CUDA module is built with our own attention alone.
set -euo pipefail
cd "$(dirname "$0")/.."

version=1.32.0
folder=build/third_party/cudnn_frontend-$version
stop() {
  echo "setup_cuda: $1; building attention without cuDNN" >&2
  exit 1
}

if ! echo '#include <cudnn.h>' | c++ -I/usr/local/cuda/include -E - >/dev/null 2>&1; then
  stop "expected cudnn.h beside CUDA's headers, got none"
fi
if [ ! -f "$folder/include/cudnn_frontend.h" ]; then
  mkdir -p "$folder"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --dest "$folder" "nvidia-cudnn-frontend==$version" >&2 || stop "pip could not fetch the headers"
  python3 - "$folder" <<'UNPACK' >&2 || stop "the package holds no headers"
import pathlib, sys, zipfile

folder = pathlib.Path(sys.argv[1])
(wheel,) = folder.glob("*.whl")
with zipfile.ZipFile(wheel) as package:
    names = [name for name in package.namelist() if name.startswith("include/")]
    assert "include/cudnn_frontend.h" in names
    package.extractall(folder, names)
wheel.unlink()
UNPACK
fi
echo "$PWD/$folder/include"
