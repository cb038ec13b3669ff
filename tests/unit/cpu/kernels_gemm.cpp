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
  bool bias = false, addend = false;
  float alpha = 1.0f;
};

std::string name(const Case& x) {
  return fmt::format("{}x{}x{} t{}{} {} {} {}", x.m, x.n, x.k, static_cast<int>(x.trans_a),
                     static_cast<int>(x.trans_b), dtype_name(x.a), dtype_name(x.b),
                     dtype_name(x.c));
}

GemmSpec spec_of(const Case& x) {
  return {x.m, x.n, x.k, x.a, x.b, x.c, x.trans_a, x.trans_b};
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
      want[static_cast<size_t>(i * x.n + j)] = s;
    }
  }
  return want;
}

void run(const Case& x, GemmProblem& p) {
  ThreadPool pool(2);
  const Gemm gemm(spec_of(x), pool.n_threads());
  Scratch scratch(gemm.scratch_bytes());
  GemmArgs args{p.a.data(), p.b.data(), p.c.data()};
  args.alpha = &x.alpha;
  if (x.bias) args.bias = p.bias.in();
  if (x.addend) args.addend = p.addend.in();
  args.scratch = scratch.get();
  gemm.launch(args, pool);
}

void check(const Case& x) {
  GemmProblem p(x);
  const std::vector<double> want = reference(x, p);
  run(x, p);
  expect_close(p.c, want, 3e-6, name(x));
}

constexpr Transpose kNo = Transpose::no, kYes = Transpose::yes;

TEST(gemm, bias_addend_and_alpha_are_added_in_f32) {
  for (const Dtype d : kStorage) {
    check({70, 90, 40, kNo, kYes, d, d, d, false, true, 1.0f});
    check({70, 90, 40, kNo, kYes, d, d, d, true, false, 0.25f});
    check({70, 90, 40, kNo, kNo, d, d, d, true, true, -3.0f});
    check({70, 90, 40, kYes, kNo, d, d, d, true, true, 2.0f});
  }
}

TEST(gemm, zero_sizes_write_only_what_is_there) {
  for (const auto& [m, n, k] :
       std::vector<std::array<int64_t, 3>>{{0, 5, 4}, {5, 0, 4}, {3, 70, 0}}) {
    const Case x{m, n, k, kNo, kYes, Dtype::f32, Dtype::f32, Dtype::f32, true};
    GemmProblem p(x);
    const auto want = reference(x, p);
    run(x, p);
    expect_close(p.c, want, 0, name(x));
  }
}

TEST(gemm, wrong_types_are_refused) {
  EXPECT_THROW(Gemm({4, 4, 4, Dtype::fp16}, 1), Error);
  EXPECT_THROW(Gemm({4, 4, 4, Dtype::f32, Dtype::f32, Dtype::e4m3}, 1), Error);
}

TEST(pack, transpose_moves_every_element_of_every_width) {
  for_each_target([&](const std::string& target) {
    for (const int bytes : {1, 2, 4}) {
      for (const auto& [rows, cols] :
           std::vector<std::array<int64_t, 2>>{{1, 1}, {17, 31}, {64, 64}, {130, 257}, {513, 3}}) {
        std::vector<unsigned char> x(static_cast<size_t>(rows * cols * bytes)), y(x.size(), 0xEE);
        for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<unsigned char>(i * 37 + i / 251);
        transpose_block({x.data(), y.data(), cols, rows, rows, cols, bytes});
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
