#include "backends/cuda/kernels/ranks/transport.h"

#include "backends/cuda/kernels/ranks/stream_ops.h"

namespace octet::cuda {

void Transport::begin(uint32_t run, cudaStream_t stream) {
  if (within) return within->begin(run, stream);
  std::vector ops = {write_word(links.progress.run, run)};
  run_stream_ops(ops, stream);
}

void Transport::end(cudaStream_t stream) {
  if (within) within->end(stream);
}

void Transport::give_up(std::span<const cudaStream_t> streams, cudaStream_t beside) {
  if (between) between->give_up();
  if (within) within->give_up(streams, beside);
}

}  // namespace octet::cuda
