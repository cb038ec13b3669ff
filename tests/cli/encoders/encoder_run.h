// Small runs of encoders on text.
#pragma once

#include <string>

#include "cli/program_run.h"
#include "cli/train/tiny_run.h"

namespace octet::test {

// A BERT of 421 tokens; `model` and `more` are keys within their sections.
inline std::string encoder_yaml(const ScratchFolder& folder, const std::string& model,
                                const std::string& data) {
  return "model: {kind: bert, hidden: 32, layers: 2, heads: 2, ffn: 64, vocab: 421" + model +
         "}\nrecipe: fp32\noptim: {lr: 4.0e-3, warmup: 4}\ndata: {tokenizer: " + OCTET_SOURCE_DIR +
         "/tests/fixtures/word_pieces/uncased.json" + data +
         "}\ntrain: {steps: 60, batch: 8, eval_every: 20, save_every: 0, keep: 9}\nout: " +
         (folder / "run") + "\n";
}

inline Outcome train_encoder(const ScratchFolder& folder, const std::string& yaml,
                             const std::string& arguments = "") {
  return run_program(folder, "train " + folder.put("encoder.yaml", yaml) + " --quiet " + arguments);
}

// A run of nine steps, and one that stops after five and goes on.
inline void expect_same_bits_resumed(const ScratchFolder& folder, const std::string& yaml,
                                     const std::string& keys = "") {
  const auto train = [&](const std::string& out, const std::string& more) {
    const std::string all = "--set optim.schedule=constant " + keys + more;
    const Outcome outcome = train_encoder(folder, yaml, all + " --set out=" + (folder / out));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  };
  train("whole", "--set train.steps=9");
  train("parts", "--set train.steps=5");
  train("parts", "--resume --set train.steps=9");
  EXPECT_EQ(loss_bits(folder / "parts"), loss_bits(folder / "whole"));
  EXPECT_EQ(checkpoint_bytes(folder / "parts", 9), checkpoint_bytes(folder / "whole", 9));
}

}  // namespace octet::test
