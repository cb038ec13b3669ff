// Texts that models write on the GPU: while they train (train/run_samples.h), and by one of the
// three ways in which GEMMs add (infer/generation_sums.h).
#include <gtest/gtest.h>

#include <algorithm>

#include "gpu/parity/gpu.h"
#include "infer/generate.h"
#include "infer/generation_sums.h"
#include "infer/model_source.h"
#include "library/api/run_files.h"
#include "text/tokenizer.h"

namespace octet::training_writing_test {
namespace {

using test::ScratchFolder;

std::vector<TrainingStep> gpu_steps(const ScratchFolder& folder, std::vector<std::string> sets) {
  const Machine machine({.device = "cuda", .threads = 2, .cuda_module = gpu_module()});
  sets.insert(sets.end(), {"train.deterministic=true", "train.steps=2", "model.seq=48"});
  Training training(machine, test::tiny_training(folder, sets));
  return test::steps_to_the_end(training);
}

TEST(GpuWriting, of_samples_changes_no_bit_of_a_run) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const std::string recipe : {"bf16", "coat"}) {
    const ScratchFolder folder;
    const auto run = [&](const std::string& out, const std::string& prompts) {
      return gpu_steps(folder, {"recipe=" + recipe, "out=" + folder / out, "train.sample_tokens=4",
                                "train.sample_prompts=" + prompts});
    };
    const auto without = run("without", "[]"), with = run("with", "[scale, group moment]");
    ASSERT_EQ(with.size(), 2u);
    for (size_t i = 0; i < with.size(); ++i) {
      EXPECT_EQ(with[i].loss, without[i].loss);
      EXPECT_EQ(with[i].grad_norm, without[i].grad_norm);
      EXPECT_EQ(with[i].val_loss, without[i].val_loss);
    }
    EXPECT_EQ(test::checkpoint_bytes(folder / "with", 2),
              test::checkpoint_bytes(folder / "without", 2));
    const std::string lines = posix_files().read_text(folder / "with/samples.jsonl");
    EXPECT_EQ(std::ranges::count(lines, '\n'), 2);
  }
}

// The logits behind a prompt and behind each of some new tokens, with so many texts in the model.
std::vector<float> logits_of(const ModelSource& source, GenerationSums sums, int64_t n_texts,
                             Backend& gpu) {
  TextModelOptions options{.n_entries = n_texts, .capacity = 32};
  const TextMachine machine{posix_files(), *gpu.device, *gpu.catalogue};
  choose_sums(sums, source, options, machine);
  const auto model = make_text_model(source, options, machine);
  const std::vector<int32_t> tokens = {'g', 'r', 'o', 'u', 'p', ' ', 'a', 'm'};
  std::vector<float> all;
  for (size_t t = 0; t < tokens.size(); ++t) {
    const TextChunk chunk{.first = static_cast<int64_t>(t),
                          .tokens = std::span(tokens).subspan(t, 1)};
    model->logits(std::span(&chunk, 1),
                  [&](const TextChunk&, int64_t, std::span<const float> logits) {
                    all.insert(all.end(), logits.begin(), logits.end());
                  });
  }
  return all;
}

// E4M3 weights, whose products are the kernel's of few rows or the library's of 16 bits.
TEST(GpuWriting, with_decoded_sums_does_not_depend_on_the_number_of_texts) {
  OCTET_GPU_OR_SKIP(gpu);
  const ScratchFolder folder;
  gpu_steps(folder, {"recipe=bf16", "model.hidden=64", "model.ffn=128", "out=" + folder / "run"});
  ModelSource source = find_model_source(posix_files(), folder / "run");
  source.stored = FrozenFormat::e4m3;
  const auto of = [&](GenerationSums sums, int64_t n_texts) {
    Backend own = cuda::make_backend({.module = gpu_module(), .n_threads = 4});
    return logits_of(source, sums, n_texts, own);
  };
  const std::vector<float> alone = of(GenerationSums::decoded, 1);
  EXPECT_EQ(alone, of(GenerationSums::decoded, 3));
  EXPECT_EQ(of(GenerationSums::few, 1), of(GenerationSums::by_rows, 2));
  EXPECT_NE(alone, of(GenerationSums::few, 1));
}

}  // namespace
}  // namespace octet::training_writing_test
