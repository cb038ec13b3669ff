// AdamW with stored moments against numbers of another program (make_golden.py: decimals and the
// written formulas), on the scalar and the fast kernels.
#include <fstream>
#include <nlohmann/json.hpp>

#include "backends/cpu/common/isa.h"
#include "unit/cpu/adamw_support.h"

namespace octet::cpu {
namespace {

using nlohmann::json;

const json& golden() {
  static const json file =
      json::parse(std::ifstream(OCTET_SOURCE_DIR "/tests/golden/optimizer/optimizer.json"));
  return file;
}

std::vector<float> floats(const json& words) {
  std::vector<float> result;
  for (const uint32_t word : words.get<std::vector<uint32_t>>()) result.push_back(float_of(word));
  return result;
}

template <typename T>
void expect_equal(const std::vector<T>& got, const json& want, const std::string& what) {
  const auto expected = want.get<std::vector<T>>();
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], expected[i]) << what << " " << i;
}

AdamwSetup setup_of(const json& row) {
  const json& g = golden();
  const auto expands = [&](const char* key) { return row[key].get<std::string>().ends_with("+x"); };
  AdamwSetup setup{.name = row["state_m"],
                   .m = dtype_from_name(row["m_dtype"].get<std::string>()).value(),
                   .v = dtype_from_name(row["v_dtype"].get<std::string>()).value(),
                   .n = static_cast<int64_t>(g["weights"].size()),
                   .group = g["group"]};
  setup.attrs = {.beta1 = g["beta1"],
                 .beta2 = g["beta2"],
                 .eps = g["eps"],
                 .weight_decay = g["weight_decay"],
                 .expand_m = expands("state_m"),
                 .expand_v = expands("state_v"),
                 .math = PowerMath::exact};
  return setup;
}

void expect_golden(Backend& backend) {
  for (const json& row : golden()["cases"]) {
    const AdamwSetup setup = setup_of(row);
    AdamwRun run(setup, backend);
    run.set_f32_weights(floats(golden()["weights"]));
    uint32_t t = 0;
    for (const json& gradient : golden()["gradients"]) {
      AdamwScalars scalars = scalars_of_step(++t, setup.attrs);
      scalars.lr = golden()["lr"].get<float>();
      scalars.grad_scale = 1;
      run.step(floats(gradient), scalars);
    }
    const std::string what = row["state_m"].get<std::string>() + " " + row["state_v"].dump();
    expect_equal(run.words<uint32_t>("m_meta"), row["m_meta"], what + " m_meta");
    expect_equal(run.words<uint32_t>("v_meta"), row["v_meta"], what + " v_meta");
    expect_equal(run.words<uint8_t>("m"), row["m_codes"], what + " m");
    expect_equal(run.words<uint8_t>("v"), row["v_codes"], what + " v");
    expect_equal(run.words<uint32_t>("w"), row["weights"], what + " weights");
  }
}

TEST(Optimizer, the_scalar_kernel_gives_the_golden_states) {
  Backend backend = make_backend(1, Isa::scalar);
  expect_golden(backend);
}

TEST(Optimizer, the_fast_kernel_with_exact_maths_gives_the_golden_states) {
  Backend backend = make_backend(2, detect_isa());
  expect_golden(backend);
}

}  // namespace
}  // namespace octet::cpu
