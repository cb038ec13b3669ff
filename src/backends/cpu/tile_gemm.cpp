#include "backends/cpu/tile_gemm.h"

#include <omp.h>

#include <array>
#include <dnnl.hpp>
#include <vector>

#include "base/error.h"

namespace octet::cpu {
namespace {

dnnl::memory::data_type library_type(Dtype dtype) {
  CHECK(dtype == Dtype::f32 || dtype == Dtype::bf16);
  return dtype == Dtype::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

// The library's own choice for b, where it is one of our panels; otherwise nothing.
std::optional<PanelLayout> panels_of(const dnnl::memory::desc& desc, const TileShape& shape) {
  const auto& blocking = desc.data.format_desc.blocking;
  PanelLayout layout{64, 1, shape.k, shape.dtype};
  const bool two = blocking.inner_nblks == 2 && shape.dtype == Dtype::f32;
  const bool three = blocking.inner_nblks == 3 && shape.dtype == Dtype::bf16 &&
                     blocking.inner_idxs[2] == 0 && blocking.inner_blks[2] == 2;
  if (!two && !three) return std::nullopt;
  if (blocking.inner_idxs[0] != 0 || blocking.inner_idxs[1] != 1) return std::nullopt;
  layout.width = blocking.inner_blks[1];
  layout.interleave = three ? 2 : 1;
  const int64_t block_rows = blocking.inner_blks[0] * layout.interleave;
  const bool dense = layout.width == kTileColumns && shape.k % block_rows == 0 &&
                     blocking.strides[0] == block_rows * layout.width &&
                     blocking.strides[1] == shape.k * layout.width;
  return dense ? std::optional(layout) : std::nullopt;
}

struct Choice {
  dnnl::matmul::primitive_desc desc;
  PanelLayout layout;
};

Choice choose(const TileShape& s, const dnnl::engine& engine) {
  using Desc = dnnl::memory::desc;
  const auto type = library_type(s.dtype);
  const Desc a({s.m, s.k}, type, dnnl::memory::dims{s.k, 1});
  const Desc c({s.m, s.n}, dnnl::memory::data_type::f32, dnnl::memory::dims{s.n, 1});
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (s.accumulate) {
    dnnl::post_ops ops;
    ops.append_sum(1.0f);
    attr.set_post_ops(ops);
  }
  const Desc any({s.k, s.n}, type, dnnl::memory::format_tag::any);
  const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(a, any, c), attr, engine);
  if (const auto layout = panels_of(desc.weights_desc(), s)) return {desc, *layout};
  const Desc plain({s.k, s.n}, type, dnnl::memory::dims{s.n, 1});
  return {dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, plain, c), attr, engine),
          PanelLayout{s.n, 1, s.k, s.dtype}};
}

}  // namespace

struct TileGemm::State {
  struct PerThread {
    dnnl::stream stream;
    dnnl::memory a, b, c, scratch;
    std::array<dnnl_exec_arg_t, 4> args;
  };
  TileShape shape;
  PanelLayout layout;
  size_t scratch_bytes = 0;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::matmul primitive;
  std::vector<PerThread> threads;

  void make(int n_threads) {
    const Choice choice = choose(shape, engine);
    layout = choice.layout;
    primitive = dnnl::matmul(choice.desc);
    scratch_bytes = round_up(static_cast<int64_t>(choice.desc.scratchpad_desc().get_size()), 64);
    for (int i = 0; i < n_threads; ++i) threads.push_back(thread_of(choice.desc));
  }

  PerThread thread_of(const dnnl::matmul::primitive_desc& desc) const {
    const auto memory = [&](const dnnl::memory::desc& of) {
      return dnnl::memory(of, engine, DNNL_MEMORY_NONE);
    };
    PerThread t{dnnl::stream(engine),           memory(desc.src_desc()),
                memory(desc.weights_desc()),    memory(desc.dst_desc()),
                memory(desc.scratchpad_desc()), {}};
    t.args = {dnnl_exec_arg_t{DNNL_ARG_SRC, t.a.get()},
              {DNNL_ARG_WEIGHTS, t.b.get()},
              {DNNL_ARG_DST, t.c.get()},
              {DNNL_ARG_SCRATCHPAD, t.scratch.get()}};
    return t;
  }
};

TileGemm::TileGemm(const TileShape& shape, int n_threads) : state_(std::make_unique<State>()) {
  CHECK(shape.m > 0 && shape.n > 0 && shape.k > 0);
  CHECK(shape.n % kTileColumns == 0 && shape.k % kTileDepth == 0);
  omp_set_num_threads(1);  // the library fixes its own cut when a primitive is made
  State& s = *state_;
  s.shape = shape;
  try {
    s.make(n_threads);
  } catch (const dnnl::error& error) {
    throw Error(ErrorCode::invalid_argument,
                "[gemm] the library has no product [{}, {}] x [{}, {}] of {}: {}", shape.m, shape.k,
                shape.k, shape.n, dtype_name(shape.dtype), error.what());
  }
}

TileGemm::~TileGemm() = default;
TileGemm::TileGemm(TileGemm&&) noexcept = default;
TileGemm& TileGemm::operator=(TileGemm&&) noexcept = default;

const TileShape& TileGemm::shape() const {
  return state_->shape;
}
const PanelLayout& TileGemm::panels() const {
  return state_->layout;
}
size_t TileGemm::scratch_bytes() const {
  return state_->scratch_bytes;
}

void TileGemm::run(int thread, const Buffers& buffers) const {
  State::PerThread& t = state_->threads.at(static_cast<size_t>(thread));
  omp_set_num_threads(1);
  t.a.set_data_handle(const_cast<void*>(buffers.a));
  t.b.set_data_handle(const_cast<void*>(buffers.b));
  t.c.set_data_handle(buffers.c);
  if (state_->scratch_bytes > 0) t.scratch.set_data_handle(buffers.scratch);
  const dnnl_status_t status = dnnl_primitive_execute(
      state_->primitive.get(), t.stream.get(), static_cast<int>(t.args.size()), t.args.data());
  CHECK(status == dnnl_success);
}

}  // namespace octet::cpu
