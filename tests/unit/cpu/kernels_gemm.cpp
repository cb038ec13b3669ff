#include "backends/cpu/gemm/gemm.h"

#include "backends/cpu/common/isa.h"
#include "backends/cpu/gemm/tile_gemm.h"
#include "base/error.h"
#include "unit/cpu/kernels_support.h"

namespace octet::cpu {
namespace {

struct Case {
  int64_t m, n, k;
  Transpose trans_a, trans_b;
  Dtype a, b, c;
  Accumulate accumulate = Accumulate::no;
  bool bias = false, addend = false;
  float alpha = 1.0f;
};

std::string name(const Case& x) {
  return fmt::format("{}x{}x{} t{}{} {} {} {}", x.m, x.n, x.k, static_cast<int>(x.trans_a),
                     static_cast<int>(x.trans_b), dtype_name(x.a), dtype_name(x.b),
                     dtype_name(x.c));
}

GemmSpec spec_of(const Case& x) {
  GemmSpec spec{x.m, x.n, x.k, x.a, x.b, x.c, x.trans_a, x.trans_b};
  spec.accumulate = x.accumulate;
  return spec;
}

struct GemmProblem {
  Buffer a, b, c, bias, addend;
  explicit GemmProblem(const Case& x)
      : a(x.a, x.m * x.k),
        b(x.b, x.k * x.n),
        c(x.c, x.m * x.n),
        bias(Dtype::f32, x.n),
        addend(x.c, x.m * x.n) {
    a.randomize(1);
    b.randomize(2);
    bias.randomize(3);
    addend.randomize(4);
    if (x.accumulate == Accumulate::yes) c.randomize(5);
  }
};

std::vector<double> reference(const Case& x, const GemmProblem& p) {
  std::vector<double> want(static_cast<size_t>(x.m * x.n));
  for (int64_t i = 0; i < x.m; ++i) {
    for (int64_t j = 0; j < x.n; ++j) {
      double s = 0;
      for (int64_t l = 0; l < x.k; ++l) {
        s += p.a.at(x.trans_a == Transpose::yes ? l * x.m + i : i * x.k + l) *
             p.b.at(x.trans_b == Transpose::yes ? j * x.k + l : l * x.n + j);
      }
      s *= x.alpha;
      if (x.bias) s += p.bias.at(j);
      if (x.addend) s += p.addend.at(i * x.n + j);
      if (x.accumulate == Accumulate::yes) s += p.c.at(i * x.n + j);
      want[static_cast<size_t>(i * x.n + j)] = s;
    }
  }
  return want;
}

void run(const Case& x, GemmProblem& p, const GemmSpec& spec, int n_threads) {
  ThreadPool pool(n_threads);
  const Gemm gemm(spec, n_threads);
  Scratch scratch(gemm.scratch_bytes());
  GemmArgs args{p.a.data(), p.b.data(), p.c.data()};
  args.alpha = &x.alpha;
  if (x.bias) args.bias = p.bias.in();
  if (x.addend) args.addend = p.addend.in();
  args.scratch = scratch.get();
  gemm.launch(args, pool);
}

void check(const Case& x) {
  std::vector<std::optional<Dtype>> computes{std::nullopt};
  if (x.a == Dtype::bf16 && x.b == Dtype::bf16) computes.push_back(Dtype::f32);
  for (const auto& compute : computes) {
    GemmProblem p(x);
    const std::vector<double> want = reference(x, p);
    GemmSpec spec = spec_of(x);
    spec.compute = compute;
    run(x, p, spec, 2);
    expect_close(p.c, want, 3e-6, name(x));
  }
}

constexpr Transpose kNo = Transpose::no, kYes = Transpose::yes;

TEST(gemm, bias_addend_accumulation_and_alpha_are_added_in_f32) {
  for (const Dtype d : kStorage) {
    check({70, 90, 40, kNo, kYes, d, d, d, Accumulate::yes, false, false, 1.0f});
    check({70, 90, 40, kNo, kYes, d, d, d, Accumulate::no, true, false, 0.25f});
    check({70, 90, 40, kNo, kNo, d, d, d, Accumulate::no, true, true, -3.0f});
    check({70, 90, 40, kYes, kNo, d, d, d, Accumulate::yes, true, true, 2.0f});
  }
}

TEST(gemm, zero_sizes_write_only_what_is_there) {
  ThreadPool pool(2);
  for (const auto& [m, n, k] :
       std::vector<std::array<int64_t, 3>>{{0, 5, 4}, {5, 0, 4}, {3, 70, 0}}) {
    const Case x{m, n, k, kNo, kYes, Dtype::f32, Dtype::f32, Dtype::f32, Accumulate::no, true};
    GemmProblem p(x);
    const auto want = reference(x, p);
    run(x, p, spec_of(x), 2);
    expect_close(p.c, want, 0, name(x));
  }
}

TEST(gemm, row_strides_leave_the_gaps_alone) {
  const int64_t m = 37, n = 29, k = 41;
  Buffer a(Dtype::bf16, m * 50), b(Dtype::bf16, n * 60), c(Dtype::f32, m * 40);
  a.randomize(1);
  b.randomize(2);
  for (int64_t i = 0; i < c.size(); ++i) c.set(i, 7.0f);
  std::vector<double> want(static_cast<size_t>(c.size()), 7.0);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double s = 0;
      for (int64_t l = 0; l < k; ++l) s += a.at(i * 50 + l) * b.at(j * 60 + l);
      want[static_cast<size_t>(i * 40 + j)] = s;
    }
  }
  ThreadPool pool(2);
  GemmSpec spec{m, n, k, Dtype::bf16, Dtype::bf16, Dtype::f32, kNo, kYes, 50, 60, 40};
  const Gemm gemm(spec, 2);
  Scratch scratch(gemm.scratch_bytes());
  GemmArgs args{a.data(), b.data(), c.data()};
  args.scratch = scratch.get();
  gemm.launch(args, pool);
  expect_close(c, want, 3e-6, "strided");
}

TEST(gemm, wrong_types_and_strides_are_refused) {
  GemmSpec spec{4, 4, 4, Dtype::fp16};
  EXPECT_THROW(Gemm(spec, 1), Error);
  spec.a = Dtype::f32;
  spec.b_stride = 3;
  EXPECT_THROW(Gemm(spec, 1), Error);
  spec.b_stride = 0;
  spec.compute = Dtype::bf16;
  EXPECT_THROW(Gemm(spec, 1), Error);
}

TEST(pack, transpose_moves_every_element_of_every_width) {
  ThreadPool pool(2);
  for_each_target([&](const std::string& target) {
    for (const int bytes : {1, 2, 4}) {
      for (const auto& [rows, cols] :
           std::vector<std::array<int64_t, 2>>{{1, 1}, {17, 31}, {64, 64}, {130, 257}, {513, 3}}) {
        std::vector<unsigned char> x(static_cast<size_t>(rows * cols * bytes)), y(x.size(), 0xEE);
        for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<unsigned char>(i * 37 + i / 251);
        TransposeArgs args{x.data(), y.data(), 0, 0, rows, cols, bytes};
        transpose(args, pool);
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < cols; ++c) {
            ASSERT_EQ(0, std::memcmp(x.data() + (r * cols + c) * bytes,
                                     y.data() + (c * rows + r) * bytes, static_cast<size_t>(bytes)))
                << target << " " << bytes << " " << r << " " << c;
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace octet::cpu
