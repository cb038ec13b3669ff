// Embeddings of all-MiniLM-L6-v2 (`./dev model minilm`) against transformers' on the same folder:
// mean over the tokens, normalized. Skips where the model is not there.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "cli/program_run.h"

namespace octet::minilm_test {
namespace {

const std::string kModel = parent_path(OCTET_PROGRAM) + "/models/minilm";
constexpr size_t kWidth = 384;

TEST(Minilm, cosines_of_texts_are_those_of_transformers) {
  if (!posix_files().exists(kModel + "/model.safetensors"))
    GTEST_SKIP() << kModel << " is not there (./dev model minilm)";
  // Cosines by transformers 5.24.
  constexpr double kCosines[4][4] = {{1, 0.6795422, -0.0144463, 0.0223712},
                                     {0.6795422, 1, -0.0656433, 0.1370897},
                                     {-0.0144463, -0.0656433, 1, -0.0699912},
                                     {0.0223712, 0.1370897, -0.0699912, 1}};
  const test::ScratchFolder folder;
  const std::string texts =
      folder.put("texts.txt",
                 "A man is eating food.\nSomeone has a meal.\nThe stock market "
                 "fell by three percent on Tuesday.\nnaïve Café — 東京 2024!\n");
  const test::Outcome outcome = test::run_program(
      folder, fmt::format("embed --model {} --texts {} --out {}", kModel, texts, folder / "x.npy"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<std::byte> bytes = posix_files().read_bytes(folder / "x.npy");
  std::array<std::array<float, kWidth>, 4> rows;
  ASSERT_EQ(bytes.size(), 128 + sizeof(rows));
  std::memcpy(rows.data(), bytes.data() + 128, sizeof(rows));
  for (size_t i = 0; i < 4; ++i) {
    for (size_t j = 0; j < 4; ++j) {
      double cosine = 0;
      for (size_t k = 0; k < kWidth; ++k)
        cosine += static_cast<double>(rows[i][k]) * static_cast<double>(rows[j][k]);
      EXPECT_NEAR(cosine, kCosines[i][j], 1e-5) << i << " " << j;
    }
  }
}

}  // namespace
}  // namespace octet::minilm_test
