#include "backends/cpu/gemm/convolution.h"

#include <vector>

#include "backends/cpu/elementwise/quantized_matrix.h"
#include "backends/cpu/gemm/gemm.h"
#include "backends/cpu/gemm/tile_gemm.h"
#include "base/error.h"

namespace octet::cpu {
namespace {

// Windows of a task: enough for the tiles of a product, few enough for a cache.
constexpr int64_t kTaskRows = 512, kWideElems = 512, kWideTaskRows = 256;
// Runs of tasks whose sums are kept side by side.
constexpr int64_t kMaxRuns = 32;

// Elements from a window to the next: where it is a row of the first factor or of the result, as
// the library wants it.
int64_t window_row(const ConvolutionSpec& s) {
  if (s.role == GemmRole::dgrad) return Gemm::whole_row(s.window_elems());
  return round_up(s.window_elems(), s.role == GemmRole::forward ? kTileDepth : 1);
}

// The product of a task of so many pictures, on one thread.
GemmSpec product_of(const ConvolutionSpec& s, int64_t n_pictures) {
  const int64_t rows = n_pictures * s.window_rows(), k = s.window_elems();
  GemmSpec product{.m = rows, .n = k, .k = s.n_out, .a = s.in, .b = s.in, .c = Dtype::f32};
  product.tiles = GemmTiles::large;
  if (s.role == GemmRole::forward) {
    product.n = s.n_out, product.k = k, product.c = s.out;
    product.trans_b = Transpose::yes;
    product.a_row = window_row(s);
  } else if (s.role == GemmRole::wgrad) {
    product.m = s.n_out, product.k = rows;
    product.trans_a = Transpose::yes;
  } else {
    product.c_row = window_row(s);
  }
  return product;
}

}  // namespace

struct Convolution::State {
  ConvolutionSpec spec;
  int64_t n_each = 1, n_tasks = 0, n_last = 0;  // pictures of a task, tasks, pictures of the last
  int64_t n_runs = 0;
  // A product a thread: the library's memory objects are its own. The second of the last task.
  std::vector<Gemm> products, last_products;
  mutable ThreadPool alone{1};
  FoldedBlocks folded;  // of dgrad
  size_t windows_bytes = 0, product_bytes = 0, sums_bytes = 0;

  int64_t n_sums() const { return spec.n_out * spec.window_elems(); }
  bool is_wgrad() const { return spec.role == GemmRole::wgrad; }
  size_t own_bytes() const { return windows_bytes + product_bytes; }
  float* sums(const ConvolutionArgs& args, int64_t run) const {
    return static_cast<float*>(args.scratch) + run * n_sums();
  }

  void run_task(const ConvolutionArgs& args, int64_t task, int thread, float* sums,
                bool is_first) const;
  void add_runs(const ConvolutionArgs& args, ThreadPool& pool) const;
};

void Convolution::State::run_task(const ConvolutionArgs& args, int64_t task, int thread,
                                  float* sums, bool is_first) const {
  const bool is_last = task + 1 == n_tasks;
  Windows windows = spec.windows;
  windows.n_pictures = is_last ? n_last : n_each;
  const Gemm& product = (is_last ? last_products : products)[static_cast<size_t>(thread)];
  char* const own =
      static_cast<char*>(args.scratch) + sums_bytes + static_cast<size_t>(thread) * own_bytes();
  const int64_t row = task * n_each * spec.window_rows(), picture = task * n_each;
  const int64_t picture_elems =
      windows.attrs.picture[0] * windows.attrs.picture[1] * windows.channels;
  GemmArgs gemm{.a = args.a, .b = args.b, .c = own, .scratch = own + windows_bytes};
  const In a{args.a, spec.in}, b{args.b, spec.in};
  const Out y{args.y, spec.out};
  if (spec.role == GemmRole::dgrad) {
    gemm.a = offset(a, row * spec.n_out).data;
    product.launch(gemm, alone);
    return fold_pictures(windows, folded, {own, Dtype::f32}, offset(y, picture * picture_elems));
  }
  const In x = offset(is_wgrad() ? b : a, picture * picture_elems);
  unfold_pictures(windows, x, own, window_row(spec));
  if (is_wgrad()) {
    gemm.a = offset(a, row * spec.n_out).data;
    gemm.b = own;
    gemm.c = sums;
    if (!is_first) gemm.addend = {sums, Dtype::f32};
  } else {
    gemm.a = own;
    gemm.c = offset(y, row * spec.n_out).data;
  }
  product.launch(gemm, alone);
}

// One run after the other, rounded once.
void Convolution::State::add_runs(const ConvolutionArgs& args, ThreadPool& pool) const {
  for_blocks(pool, n_sums(), kBlockElems / 16, [&](int64_t begin, int64_t end, int) {
    float* const total = sums(args, 0);
    for (int64_t run = 1; run < n_runs; ++run) {
      const float* const more = sums(args, run);
      for (int64_t i = begin; i < end; ++i) total[i] += more[i];
    }
    convert_span({total + begin, Dtype::f32}, end - begin, offset(Out{args.y, spec.out}, begin));
  });
}

Convolution::Convolution(const ConvolutionSpec& spec, int n_threads)
    : state_(std::make_shared<State>()) {
  CHECK(spec.role != GemmRole::other && spec.windows.n_pictures > 0);
  State& s = *state_;
  s.spec = spec;
  const int64_t n_pictures = spec.windows.n_pictures;
  const bool is_wide = spec.role == GemmRole::dgrad && spec.window_elems() >= kWideElems;
  const int64_t rows = is_wide ? kWideTaskRows : kTaskRows;
  s.n_each = std::clamp<int64_t>(rows / spec.window_rows(), 1, n_pictures);
  s.n_tasks = ceil_div(n_pictures, s.n_each);
  s.n_last = n_pictures - (s.n_tasks - 1) * s.n_each;
  if (spec.role == GemmRole::dgrad) s.folded = folded_blocks(spec.windows, window_row(spec));
  s.n_runs = s.is_wgrad() ? std::min(s.n_tasks, kMaxRuns) : 0;
  for (int thread = 0; thread < n_threads; ++thread) {
    s.products.emplace_back(product_of(spec, s.n_each), 1);
    s.last_products.push_back(s.n_last == s.n_each ? s.products.back()
                                                   : Gemm(product_of(spec, s.n_last), 1));
  }
  const auto in_lines = [](int64_t bytes) { return static_cast<size_t>(round_up(bytes, 64)); };
  s.windows_bytes = in_lines(bytes_of(spec.role == GemmRole::dgrad ? Dtype::f32 : spec.in,
                                      s.n_each * spec.window_rows() * window_row(spec)));
  s.product_bytes = in_lines(static_cast<int64_t>(
      std::max(s.products[0].scratch_bytes(), s.last_products[0].scratch_bytes())));
  s.sums_bytes = in_lines(bytes_of(Dtype::f32, s.n_runs * s.n_sums()));
}

size_t Convolution::scratch_bytes(int n_threads) const {
  return state_->sums_bytes + static_cast<size_t>(n_threads) * state_->own_bytes();
}

void Convolution::launch(const ConvolutionArgs& args, ThreadPool& pool) const {
  const State& s = *state_;
  CHECK(pool.n_threads() <= static_cast<int>(s.products.size()));
  if (!s.is_wgrad()) {
    return for_tiles(pool, s.n_tasks, [&](int64_t task, int thread) {
      s.run_task(args, task, thread, nullptr, false);
    });
  }
  for_tiles(pool, s.n_runs, [&](int64_t run, int thread) {
    const int64_t first = run * s.n_tasks / s.n_runs, end = (run + 1) * s.n_tasks / s.n_runs;
    for (int64_t task = first; task < end; ++task)
      s.run_task(args, task, thread, s.sums(args, run), task == first);
  });
  s.add_runs(args, pool);
}

}  // namespace octet::cpu
