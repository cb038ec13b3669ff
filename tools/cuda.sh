#!/usr/bin/env bash
# Builds the CUDA module into BUILD/cuda, or says in one line why it cannot:  tools/cuda.sh BUILD
# OCTET_CUDA_ARCH names the architectures that it is for, of 80, 89, 90a, 100 and 120: "90a" unless it says, for example, "80;90a".
set -euo pipefail
cd "$(dirname "$0")/.."

nvcc=$(command -v nvcc || true)
[ -n "$nvcc" ] || [ ! -x /usr/local/cuda/bin/nvcc ] || nvcc=/usr/local/cuda/bin/nvcc
if [ -z "$nvcc" ]; then
  echo "cuda: expected nvcc on the path or in /usr/local/cuda/bin, got none; install NVIDIA's CUDA toolkit" >&2
  exit 1
fi
# Attention through cuDNN needs a header-only library; without it our own kernels serve.
frontend=""
if [ -x tools/setup_cuda.sh ]; then frontend=$(tools/setup_cuda.sh) || frontend=""; fi
mkdir -p "$1/cuda"
cmake -S src/backends/cuda -B "$1/cuda" -DCMAKE_CUDA_COMPILER="$nvcc" -DOCTET_CUDNN_FRONTEND="$frontend" \
  -DOCTET_CUDA_ARCH="${OCTET_CUDA_ARCH:-90a}" \
  >"$1/cuda/configure.log" 2>&1 || { cat "$1/cuda/configure.log" >&2; exit 1; }
cmake --build "$1/cuda" -j "$(nproc)"
