// Documents of a row that do not see each other, in whole models.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "backends/cpu/backend.h"
#include "base/philox.h"
#include "cli/train/first_moments.h"
#include "cli/train/tiny_run.h"
#include "train/run_setup.h"
#include "train/trainer.h"
#include "unit/base/error_of.h"

namespace octet::train_documents_test {
namespace {

using test::error_of;
using test::ScratchFolder;

constexpr int64_t kSeq = 320;  // more than a block of every kernel

class OneBatch : public EvalRows {
 public:
  explicit OneBatch(Batch batch) : batch_(std::move(batch)) {}
  int64_t n_rows() const override { return batch_.batch; }
  Batch at(int64_t, int64_t) const override { return batch_; }

 private:
  Batch batch_;
};

std::vector<int32_t> document(uint64_t name, size_t n) {
  const RandomStream random{.name = name};
  std::vector<int32_t> tokens(n);
  for (size_t i = 0; i < n; ++i) tokens[i] = static_cast<int32_t>(random.bits(i) % 256);
  return tokens;
}

// One row of documents; those that are counted have labels.
struct Part {
  std::vector<int32_t> tokens;
  bool is_counted = false;
};
Batch row_of(const std::vector<Part>& parts) {
  Batch batch = empty_batch(1, kSeq, true);
  size_t at = 0;
  for (const Part& part : parts) {
    for (size_t i = 0; i < part.tokens.size(); ++i) {
      batch.ints("tokens")[at + i] = part.tokens[i];
      batch.ints("doc_starts")[at + i] = static_cast<int32_t>(at);
      if (part.is_counted && i + 1 < part.tokens.size()) {
        batch.ints("labels")[at + i] = part.tokens[i + 1];
      }
    }
    at += part.tokens.size();
  }
  for (size_t i = at; i < kSeq; ++i) batch.ints("doc_starts")[i] = static_cast<int32_t>(at);
  return batch;
}

struct DocumentSession {
  explicit DocumentSession(const RunConfig& config)
      : backend(cpu::make_backend(2, cpu::detect_isa())),
        data(open_run_data(posix_files(), config, ModelSpec{.vocab = config.model.vocab})),
        trainer(config, data, {posix_files(), *backend.device, *backend.catalogue}) {}
  double nll(const Batch& batch) {
    return trainer.engine().evaluate(OneBatch(batch)).metrics[0].sum.sum;
  }
  cpu::Backend backend;
  Dataset data;
  Trainer trainer;
};

RunConfig documents_config(const ScratchFolder& folder, std::vector<std::string> sets) {
  sets.insert(sets.end(), {"model.seq=320", "model.hidden=48", "model.heads=4", "train.batch=1",
                           "optim.clip=0", "data.document_boundaries=isolate"});
  return test::tiny_config(folder, sets);
}

class Isolated : public testing::TestWithParam<std::pair<std::string, std::string>> {
 protected:
  std::vector<std::string> sets() const {
    std::vector<std::string> all = {"model.kind=" + GetParam().first,
                                    "recipe=" + GetParam().second};
    if (GetParam().first == "llama") all.push_back("model.kv_heads=2");
    return all;
  }
};

TEST_P(Isolated, a_document_in_a_packed_row_is_the_document_alone_bit_for_bit) {
  const ScratchFolder folder;
  DocumentSession session(documents_config(folder, sets()));
  const auto a = document(1, 37), b = document(2, 150), c = document(3, 1), d = document(4, 90);
  for (const auto& [name, one] : {std::pair("a", &a), std::pair("b", &b), std::pair("d", &d)}) {
    const double alone = session.nll(row_of({{*one, true}}));
    ASSERT_TRUE(std::isfinite(alone));
    const auto counted = [one = one](const std::vector<int32_t>& tokens) {
      return Part{tokens, &tokens == one};
    };
    EXPECT_EQ(session.nll(row_of({counted(a), counted(b), counted(c), counted(d)})), alone) << name;
    EXPECT_EQ(session.nll(row_of({counted(d), counted(c), counted(b), counted(a)})), alone) << name;
  }
  // And it differs from a row whose documents see each other.
  Batch joined = row_of({{a, false}, {b, true}});
  std::fill(joined.ints("doc_starts").begin(), joined.ints("doc_starts").end(), 0);
  EXPECT_NE(session.nll(joined), session.nll(row_of({{a, false}, {b, true}})));
}

INSTANTIATE_TEST_SUITE_P(models, Isolated,
                         testing::Values(std::pair<std::string, std::string>{"llama", "fp32"},
                                         std::pair<std::string, std::string>{"llama", "bf16"},
                                         std::pair<std::string, std::string>{"olmo", "fp32"},
                                         std::pair<std::string, std::string>{"gpt2", "fp32"},
                                         std::pair<std::string, std::string>{"gpt2", "bf16"}),
                         [](const auto& info) {
                           return info.param.first + "_" + info.param.second;
                         });

// The first moments after one step: the gradient times a constant.
std::vector<float> gradient_of(const ScratchFolder& folder, const std::string& recipe,
                               const Batch& batch) {
  DocumentSession session(documents_config(folder, {"recipe=" + recipe, "optim.state_m=f32"}));
  TrainEngine& engine = session.trainer.engine();
  const StepOutcome outcome = engine.step(std::span(&batch, 1), {.lr = 1e-3F, .attempt = 1});
  EXPECT_FALSE(outcome.nonfinite);
  return test::first_moments(engine);
}

TEST(IsolatedGradient, does_not_cross_documents) {
  const ScratchFolder folder;
  const auto a = document(1, 37), other = document(7, 37), b = document(2, 150);
  for (const char* recipe : {"fp32", "bf16"}) {
    const auto before = gradient_of(folder, recipe, row_of({{a, false}, {b, true}, {a, false}}));
    const auto after =
        gradient_of(folder, recipe, row_of({{other, false}, {b, true}, {other, false}}));
    float largest = 0;
    for (const float g : before) largest = std::max(largest, std::fabs(g));
    EXPECT_GT(largest, 0.0f);
    EXPECT_EQ(before, after) << recipe;
  }
}

TEST(PackedRun, learns_and_resumes_bit_for_bit) {
  const ScratchFolder folder;
  const std::string data = folder.put("docs.txt", [] {
    std::string text;
    for (int i = 0; i < 200; ++i) {
      text += std::string(static_cast<size_t>(3 + i * 5 % 23), static_cast<char>('a' + i % 7));
      text += "##";
    }
    return text;
  }());
  const auto config = [&](const std::string& out) {
    return test::tiny_config(folder, {"data.train=[" + data + "]", "data.document_separator='##'",
                                      "data.pack=true", "model.seq=64", "out=" + (folder / out)});
  };
  EXPECT_EQ(config("x").data.document_boundaries, DocumentBoundaries::isolate);
  DocumentSession(config("whole")).trainer.run(StartMode::fresh, {});
  std::atomic<int> flag = 0;
  TrainHooks hooks;
  hooks.stop = &flag;
  hooks.on_step = [&flag](const StepReport& report) {
    if (report.step == 4) flag = 15;
  };
  DocumentSession(config("parts")).trainer.run(StartMode::fresh, hooks);
  DocumentSession(config("parts")).trainer.run(StartMode::resume, {});
  EXPECT_EQ(test::metrics(folder / "parts"), test::metrics(folder / "whole"));
}

TEST(PackedRun, rows_that_see_each_other_are_refused) {
  const ScratchFolder folder;
  EXPECT_NE(error_of([&] {
              test::tiny_config(folder, {"data.pack=true", "data.document_boundaries=ignore"});
            }).find("data.document_boundaries: expected isolate with data.pack, got ignore"),
            std::string::npos);
}

}  // namespace
}  // namespace octet::train_documents_test
