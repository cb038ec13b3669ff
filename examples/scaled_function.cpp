// A function of one's own: its gradient in FP16, as it is and with scales that are propagated
// through it.
//
//     scaled_function            prints the gradient's largest element by recipe
#include <octet/octet.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace {

octet::GraphArray waves(int64_t rows, int64_t cols, double size) {
  octet::GraphArray array{{rows, cols}, {}};
  for (int64_t i = 0; i < rows * cols; ++i)
    array.values.push_back(size * std::sin(static_cast<double>(i)));
  return array;
}

}  // namespace

int main() {
  octet::GraphFunction f("product");
  const octet::GraphValue x = f.input("x", {8, 16}), w = f.parameter("w", {4, 16});
  const octet::GraphValue y = f.node("gemm", {x, w}, "trans_b = true");
  const octet::GraphValue small =
      f.node("fill", {}, "shape = [8,4], value = 9.3132257461547852e-10");
  const octet::GraphValue squares = f.node("mul", {f.node("mul", {y, y}), small});
  f.output("loss", f.node("reduce_sum", {squares}, "axes = [0,1]"));

  const octet::GraphFunction step = f.passes({"autodiff", "simplify"});
  const octet::Machine machine({.threads = 1});
  for (const char* recipe : {"fp32", "fp16", "scalify_fp16"}) {
    octet::CompiledGraph run(step.passes({recipe}), machine);
    const auto outputs = run({{"x", waves(8, 16, 1)}, {"w", waves(4, 16, 0.5)}});
    double largest = 0;
    for (const double g : outputs.at("grad:w").values) largest = std::max(largest, std::fabs(g));
    std::printf("%s %.3e\n", recipe, largest);
  }
}
