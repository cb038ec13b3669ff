#include "backends/cuda/kernels/attention/gated_delta.h"

#include "backends/cuda/kernels/attention/delta_tiles.cuh"
#include "ir/ops/slots.h"

namespace octet::cuda {
namespace {

// kFirst: the slot of q, which those of GatedDelta follow.
template <int kFirst>
DeltaTask task_of(const GatedDeltaParams& p, const Launch& args) {
  using S = octet::GatedDelta;
  return {.p = p,
          .n_chunks = delta_chunks(p),
          .q = args.operands[kFirst + S::q],
          .k = args.operands[kFirst + S::k],
          .v = args.operands[kFirst + S::v],
          .log_decay = args.operands[kFirst + S::log_decay],
          .beta = args.operands[kFirst + S::beta],
          .doc_starts = p.has_documents ? args.in<int32_t>(kFirst + S::doc_starts) : nullptr};
}
DeltaTask forward_task(const GatedDeltaParams& p, const Launch& args) {
  using S = octet::GatedDelta;
  DeltaTask t = task_of<S::q>(p, args);
  t.o = args.results[S::o];
  if (p.has_state) t.state = args.operands[S::state], t.next_state = args.results[S::next_state];
  return t;
}
void put_scratch(DeltaTask& t, const Launch& args, bool gradient) {
  auto* const from = static_cast<float*>(args.scratch);
  const DeltaScratch at = delta_scratch(t.p, gradient);
  t.numbers = reinterpret_cast<DeltaNumbers*>(from + at.numbers);
  t.solved = from + at.solved;
  t.scores = from + at.scores;
  if (!gradient) return;
  t.blocked = from + at.blocked;
  t.news = from + at.news, t.dnews = from + at.dnews;
  t.states = from + at.states, t.dstates = from + at.dstates;
  t.unit_dq = from + at.unit_dq, t.unit_dk = from + at.unit_dk;
}

void run_forward(const GatedDeltaParams& p, const Launch& args) {
  DeltaTask t = forward_task(p, args);
  put_scratch(t, args, false);
  launch_delta_chunks(t, args.stream);
  launch_delta_scan(t, DeltaScan::outputs, args.stream);
}

void run_backward(const GatedDeltaParams& p, const Launch& args) {
  using S = octet::GatedDeltaGrad;
  DeltaTask t = task_of<S::q>(p, args);
  t.dout = args.operands[S::dout];
  t.dq = args.results[S::dq], t.dk = args.results[S::dk], t.dv = args.results[S::dv];
  t.dlog_decay = args.results[S::dlog_decay], t.dbeta = args.results[S::dbeta];
  put_scratch(t, args, true);
  launch_delta_chunks(t, args.stream);
  launch_delta_scan(t, DeltaScan::states, args.stream);
  launch_delta_back(t, args.stream);
  launch_delta_gradients(t, args.stream);
  launch_delta_rows(t, args.stream);
}

// A block has 32 columns of a head's state; a warp every eighth row of them.
constexpr int kStepColumns = 32, kRowsOfWarp = static_cast<int>(kMaxDeltaDim) / kDeltaWarps;

struct StepShared {
  float q[kMaxDeltaDim], k[kMaxDeltaDim];
  float parts[kDeltaWarps][kStepColumns];
};

// The row in length 1 times `length`, by one warp.
__device__ __forceinline__ void load_unit(const void* x, Dtype dtype, const DeltaRowsOf& of,
                                          float length, float* to) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float sum = 0;
  for (int c = lane; c < of.columns; c += 32) {
    const float each = load_float(x, of.first + c, dtype);
    to[c] = each;
    sum = __fmaf_rn(each, each, sum);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  const float factor = length / sqrtf(sum + kDeltaLengthEps);
  for (int c = lane; c < of.columns; c += 32) to[c] *= factor;
}

// The sum of the warps' parts of this thread's column, in order.
__device__ __forceinline__ float sum_of_parts(StepShared& s, float part) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  __syncthreads();
  s.parts[threadIdx.x / 32][lane] = part;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int w = 0; w < kDeltaWarps; ++w) sum += s.parts[w][lane];
  return sum;
}

__global__ void __launch_bounds__(kDeltaThreads) delta_step(const __grid_constant__ DeltaTask t) {
  __shared__ StepShared s;
  const GatedDeltaParams& p = t.p;
  const int64_t n_blocks = (p.value_dim + kStepColumns - 1) / kStepColumns;
  const DeltaPlace at = delta_place(t, blockIdx.x / n_blocks, 0);
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int64_t column = blockIdx.x % n_blocks * kStepColumns + lane;
  const bool there = column < p.value_dim;
  const DeltaRowsOf from = state_rows(t, p.state, at.pair, column);
  float state[kRowsOfWarp];
#pragma unroll
  for (int i = 0; i < kRowsOfWarp; ++i) {
    const int r = warp + i * kDeltaWarps;
    state[i] =
        there && r < from.rows ? load_float(t.state, from.first + r * from.stride, p.state) : 0.0f;
  }
  if (warp == 0)
    load_unit(t.q, p.q, key_rows(t, at, p.q), 1.0f / sqrtf(static_cast<float>(p.key_dim)), s.q);
  if (warp == 1) load_unit(t.k, p.k, key_rows(t, at, p.k), 1.0f, s.k);
  const int64_t number = at.text * p.heads + at.head;
  const float decay = expf(load_float(t.log_decay, number, p.log_decay));
  const float beta = load_float(t.beta, number, p.beta);
  const int64_t value = number * p.value_dim + column;
  const float v = there ? load_float(t.v, value, p.v) : 0.0f;
  __syncthreads();
  float known = 0;
#pragma unroll
  for (int i = 0; i < kRowsOfWarp; ++i) {
    const int r = warp + i * kDeltaWarps;
    if (r >= from.rows) continue;
    state[i] *= decay;
    known = __fmaf_rn(s.k[r], state[i], known);
  }
  const float news = beta * (v - sum_of_parts(s, known));
  float o = 0;
#pragma unroll
  for (int i = 0; i < kRowsOfWarp; ++i) {
    const int r = warp + i * kDeltaWarps;
    if (r >= from.rows) continue;
    state[i] = __fmaf_rn(s.k[r], news, state[i]);
    o = __fmaf_rn(s.q[r], state[i], o);
    if (there && t.next_state != nullptr)
      store_float(t.next_state, from.first + r * from.stride, p.next_state, state[i]);
  }
  o = sum_of_parts(s, o);
  if (warp == 0 && there) store_float(t.o, value, p.o, o);
}

void run_step(const GatedDeltaParams& p, const Launch& args) {
  const DeltaTask t = forward_task(p, args);
  const unsigned grid = grid_of(delta_pairs(p) * ceil_div(p.value_dim, kStepColumns));
  delta_step<<<grid, kDeltaThreads, 0, args.stream>>>(t);
  check_launch("delta_step");
}

constexpr KernelEntry kRows[] = {
    {KernelId::gated_delta, stateless<GatedDeltaParams, run_forward>},
    {KernelId::gated_delta_grad, stateless<GatedDeltaParams, run_backward>},
    {KernelId::gated_delta_step, stateless<GatedDeltaParams, run_step>},
};

}  // namespace

std::span<const KernelEntry> gated_delta_kernels() {
  return kRows;
}

}  // namespace octet::cuda
