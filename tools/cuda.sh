#!/usr/bin/env bash
# Builds the CUDA module, or says in one line why it cannot.
set -euo pipefail
cd "$(dirname "$0")/.."

nvcc=$(command -v nvcc || true)
[ -n "$nvcc" ] || [ ! -x /usr/local/cuda/bin/nvcc ] || nvcc=/usr/local/cuda/bin/nvcc
if [ -z "$nvcc" ]; then
  echo "cuda: expected nvcc on the path or in /usr/local/cuda/bin, got none; install NVIDIA's CUDA toolkit" >&2
  exit 1
fi
if [ ! -e src/backends/cuda/CMakeLists.txt ]; then
  echo "cuda: $nvcc is there, but this version of Octet has no CUDA module; the CPU back end needs none" >&2
  exit 1
fi
cmake -S . -B "$1" -DOCTET_CUDA=ON -DCMAKE_CUDA_COMPILER="$nvcc"
cmake --build "$1" --target octet_cuda -j "$(nproc)"
