// octet optim-step as a user calls it: raw f32 files in, a safetensors file out.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "math/adamw.h"
#include "optim/state_format.h"

namespace octet::optim_step_test {
namespace {

constexpr int64_t kElements = 300, kSteps = 4;

std::string scratch(const std::string& name) {
  return testing::TempDir() + "octet_optim_step_" + std::to_string(getpid()) + "." + name;
}

void write_floats(const std::string& path, const std::vector<float>& values) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(float)));
}

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class OptimStep : public testing::Test {
 protected:
  void SetUp() override {
    const RandomStream random{.name = name_hash("optim_step_test")};
    for (int64_t i = 0; i < kElements; ++i) weights_.push_back(0.02f * random.normal(i));
    for (int64_t i = 0; i < kElements * kSteps; ++i) {
      gradients_.push_back(1e-3f * random.normal(1000 + i));
    }
    write_floats(scratch("w"), weights_);
    write_floats(scratch("g"), gradients_);
  }
  void TearDown() override {
    for (const char* name : {"w", "g", "out", "err"}) std::remove(scratch(name).c_str());
  }

  int run(const std::string& arguments) {
    const std::string command = std::string(OCTET_PROGRAM) + " optim-step --grads " + scratch("g") +
                                " --weights " + scratch("w") + " --out " + scratch("out") + " " +
                                arguments + " 2>" + scratch("err");
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  static SafetensorsReader result() {
    return SafetensorsReader::open(posix_files(), scratch("out"));
  }
  static std::vector<float> floats(const char* name) {
    const std::vector<std::byte> bytes = result().read(name);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  // AdamW in f32 states, without decay.
  std::vector<AdamwElement> expected() const {
    std::vector<AdamwElement> states;
    for (const float w : weights_) states.push_back({w, 0, 0});
    for (int t = 1; t <= kSteps; ++t) {
      const AdamwConstants k{.beta1 = 0.8f,
                             .beta2 = 0.99f,
                             .rest1 = rest_of(0.8),
                             .rest2 = rest_of(0.99),
                             .eps = 1e-6f,
                             .weight_decay = 0.25f,
                             .lr = 2e-3f,
                             .c1 = static_cast<float>(1 - std::pow(0.8, t)),
                             .c2 = static_cast<float>(1 - std::pow(0.99, t)),
                             .grad_scale = 1};
      for (size_t i = 0; i < states.size(); ++i) {
        states[i] = adamw_element(k, states[i], gradients_[(t - 1) * kElements + i]);
      }
    }
    return states;
  }

  std::vector<float> weights_, gradients_;
};

constexpr const char* kFlags =
    " --steps 4 --lr 2e-3 --beta1 0.8 --beta2 0.99 --eps 1e-6 --weight-decay 0.25 ";

TEST_F(OptimStep, f32_states_follow_the_written_formula_bit_for_bit) {
  for (const char* master : {"fp32", "bf16_remainder"}) {
    ASSERT_EQ(run(std::string("--state-m f32 --state-v f32 --master ") + master + kFlags), 0);
    const auto want = expected();
    const auto w = floats("weights"), m = floats("m"), v = floats("v");
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(w[i], want[i].w) << master;
      EXPECT_EQ(m[i], want[i].m) << master;
      EXPECT_EQ(v[i], want[i].v) << master;
    }
  }
}

TEST_F(OptimStep, every_state_format_stays_near_and_writes_its_codes) {
  const auto want = expected();
  for (const StateFormatRow& row : state_formats()) {
    const std::string name(row.name);
    ASSERT_EQ(run("--state-m " + name + " --state-v " + name + kFlags), 0)
        << name << read_text(scratch("err"));
    const auto w = floats("weights"), m = floats("m"), v = floats("v");
    double error = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      error = std::max(error, std::abs(static_cast<double>(w[i]) - want[i].w));
      EXPECT_GT(v[i], 0.0f) << name;
    }
    EXPECT_LT(error, 4 * 2e-3) << name;
    const SafetensorsReader file = result();
    const bool coded = is_quantized(row.format.dtype);
    EXPECT_EQ(file.find("m_codes") != nullptr, row.format.dtype != Dtype::f32) << name;
    EXPECT_EQ(file.find("v_meta") != nullptr, coded) << name;
    if (coded) {
      EXPECT_EQ(file.at("v_meta").shape, (std::vector<int64_t>{3}));
      EXPECT_EQ(file.at("v_codes").dtype, second_moment_dtype(row.format));
    }
    EXPECT_NE(file.find("weight_lo"), nullptr) << name;
  }
}

TEST_F(OptimStep, seed_moves_stochastic_weights_and_nothing_else) {
  const std::string flags = std::string("--state-m f32 --state-v f32 --master bf16_sr") + kFlags;
  ASSERT_EQ(run(flags + "--seed 1"), 0);
  const auto first = floats("weights");
  ASSERT_EQ(run(flags + "--seed 1 --threads 2"), 0);
  EXPECT_EQ(floats("weights"), first);
  ASSERT_EQ(run(flags + "--seed 2"), 0);
  EXPECT_NE(floats("weights"), first);
  const float before = floats("m")[7];
  ASSERT_EQ(run(flags + "--seed 3"), 0);
  EXPECT_EQ(floats("m")[7], before);
}

TEST_F(OptimStep, a_gradient_that_is_not_finite_is_skipped_and_does_not_count) {
  std::vector<float> gradients = gradients_;
  gradients.insert(gradients.begin() + kElements, kElements, 0.5f);
  gradients[kElements + 3] = NAN;
  write_floats(scratch("g"), gradients);
  std::string flags = "--state-m e4m3+x --state-v e4m3+x --master bf16_remainder";
  flags += kFlags;
  ASSERT_EQ(run(flags + "--steps 5"), 2);  // given twice
  flags.replace(flags.find("--steps 4"), 9, "--steps 5");
  ASSERT_EQ(run(flags), 0);
  EXPECT_NE(read_text(scratch("err")).find("1 of 5 steps were skipped"), std::string::npos);
  const auto with = floats("weights");
  EXPECT_EQ(result().metadata().at("skipped"), "1");
  write_floats(scratch("g"), gradients_);
  flags.replace(flags.find("--steps 5"), 9, "--steps 4");
  ASSERT_EQ(run(flags), 0);
  // Moments in 8 bits are rounded by words of the attempted step.
  const auto without = floats("weights");
  for (size_t i = 0; i < with.size(); ++i) EXPECT_NEAR(without[i], with[i], 1e-6);
}

TEST_F(OptimStep, betas_that_f32_rounds_are_told_and_those_it_rounds_to_1_refused) {
  const std::string flags = "--steps 4 --beta2 ";
  EXPECT_EQ(run(flags + "0.99999999"), 2);
  EXPECT_EQ(read_text(scratch("err")),
            "octet: --beta2: expected a number below 1 in f32, got 0.99999999\n");
  ASSERT_EQ(run(flags + "0.9999999"), 0);
  EXPECT_NE(read_text(scratch("err")).find("is off by 19.2 %"), std::string::npos)
      << read_text(scratch("err"));
  ASSERT_EQ(run(flags + "0.999 --state-v e4m3_sr+x"), 0);
  EXPECT_EQ(read_text(scratch("err")), "");
  ASSERT_EQ(run(flags + "0.99"), 0);
  EXPECT_EQ(read_text(scratch("err")), "");
  for (const auto& [state, how] :
       {std::pair("bf16", "v falls not at all; bf16_sr falls"),
        {"e4m3+x", "v falls as the largest of its group does, not by itself; e4m3_sr+x falls"}}) {
    ASSERT_EQ(run(flags + "0.999 --state-v " + state), 0);
    EXPECT_NE(read_text(scratch("err")).find(how), std::string::npos) << read_text(scratch("err"));
  }
}

TEST_F(OptimStep, a_second_moment_that_overflows_is_finite_and_told) {
  gradients_[3] = 1e30f;
  write_floats(scratch("g"), gradients_);
  for (const char* state : {"f32", "bf16", "bf16_sr"}) {
    const std::string names = std::string("--state-m ") + state + " --state-v " + state;
    ASSERT_EQ(run(names + "  --steps 4"), 0);
    EXPECT_TRUE(std::isfinite(floats("v")[3])) << state;
    EXPECT_NE(read_text(scratch("err")).find("1 element(s) of v overflowed"), std::string::npos)
        << state << read_text(scratch("err"));
  }
}

TEST_F(OptimStep, mistakes_end_with_their_exit_code_and_one_line) {
  struct Case {
    const char* arguments;
    int code;
  };
  for (const Case& c :
       {Case{"--state-m e9m9", 2}, Case{"--master fp64", 2}, Case{"--math slow", 2},
        Case{"--steps 0", 2}, Case{"--group 0", 2}, Case{"--beta1 1", 2}, Case{"--steps 3", 3}}) {
    EXPECT_EQ(run(c.arguments), c.code) << c.arguments;
    const std::string error = read_text(scratch("err"));
    EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 1) << error;
  }
}

}  // namespace
}  // namespace octet::optim_step_test
