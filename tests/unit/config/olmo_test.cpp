// OLMo's training files as configurations: what is used, what has no meaning, what is refused.
#include "config/olmo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/load.h"
#include "unit/base/error_of.h"

namespace octet {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Every value is off its default here and there.
constexpr const char* kOlmo = R"(run_name: OLMo-1B
seed: 6198
wandb: {name: "${run_name}", project: olmo-small}
model:
  d_model: 2048
  n_heads: 16
  n_layers: 12
  mlp_ratio: 8
  weight_tying: true
  rope: true
  include_bias: false
  residual_dropout: 0
  embedding_dropout: 0.0
  layer_norm_type: default
  layer_norm_with_affine: false
  activation_type: swiglu
  attention_dropout: 0.0
  max_sequence_length: 1024
  vocab_size: 50280
  embedding_size: 50304
  flash_attention: true
optimizer:
  name: adamw
  learning_rate: 4.0e-4
  weight_decay: 0.2
  betas:
  - 0.8
  - 0.95
scheduler: {name: cosine_with_warmup, t_warmup: 2000, alpha_f: 0.1}
tokenizer: {identifier: tokenizers/neox.json, truncate_direction: right}
max_duration: 739_328
global_train_batch_size: 2048
device_train_microbatch_size: 8
precision: amp_bf16
max_grad_norm: 0.5
save_interval: 1000
eval_interval: ${save_interval}
load_path: null
evaluators: [{label: piqa, type: downstream}]
data:
  num_workers: 0
  memmap_dtype: uint32
  paths:
    - a.npy
    - b.npy
)";

std::string with(const std::string& line) {
  return kOlmo + line + "\n";
}

TEST(Olmo, is_a_configuration_of_the_same_run) {
  const OlmoImport olmo = import_olmo(kOlmo, "olmo.yaml", {"model.init_fn"});
  const RunConfig config = parse_config(olmo.yaml, "made.yaml").config;
  EXPECT_EQ(config.model.kind, ModelKind::olmo);
  EXPECT_EQ(config.model.hidden, 2048);
  EXPECT_EQ(config.model.layers, 12);
  EXPECT_EQ(config.model.heads, 16);
  EXPECT_EQ(config.model.ffn, 8192);  // 8 x hidden are gate and up
  EXPECT_EQ(config.model.vocab, 50304);
  EXPECT_EQ(config.model.seq, 1024);
  EXPECT_TRUE(config.model.tied);
  EXPECT_EQ(config.recipe.base, "bf16");
  EXPECT_EQ(config.optim.lr, 4e-4);
  EXPECT_EQ(config.optim.weight_decay, 0.2);
  EXPECT_EQ(config.optim.betas[0], 0.8);
  EXPECT_EQ(config.optim.clip, 0.5);
  EXPECT_EQ(config.optim.warmup, 2000);
  EXPECT_EQ(config.optim.final_lr, 0.1);
  EXPECT_EQ(config.train.steps, 739'328);
  EXPECT_EQ(config.train.batch, 8);
  EXPECT_EQ(config.train.accumulate, 256);
  EXPECT_EQ(config.train.seed, 6198);
  EXPECT_EQ(config.train.eval_every, 1000);
  EXPECT_EQ(config.data.train, (std::vector<std::string>{"a.npy", "b.npy"}));
  EXPECT_EQ(config.data.token_bytes, 4);
  EXPECT_EQ(config.data.tokenizer, "tokenizers/neox.json");
  EXPECT_EQ(config.out, "runs/OLMo-1B");
  EXPECT_THAT(olmo.left_out, ElementsAre("model.init_fn: normal (OLMo's default)"));
  EXPECT_EQ(config.optim.eps, 1e-5);  // OLMo's default, as what follows
  EXPECT_EQ(config.model.norm_eps, 1e-5);
  EXPECT_THAT(olmo.no_meaning, Contains("wandb.project"));
  EXPECT_THAT(olmo.no_meaning, Contains("evaluators"));
  EXPECT_THAT(olmo.no_meaning, Not(Contains("max_duration")));
}

TEST(Olmo, counts_tokens_where_the_file_does) {
  std::string text = kOlmo;
  const auto put = [&](const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
  };
  put("t_warmup: 2000", "t_warmup: 8388608000, units: tokens");
  put("max_duration: 739_328", "max_duration: 1e12T");
  const RunConfig config =
      parse_config(import_olmo(text, "olmo.yaml", {"model.init_fn"}).yaml, "made.yaml").config;
  EXPECT_EQ(config.optim.warmup, 4000);  // of 2,048 x 1,024 tokens each
  EXPECT_EQ(config.train.steps, 476'837);
  put("max_duration: 1e12T", "max_duration: 2ep");
  const RunConfig epochs =
      parse_config(import_olmo(text, "olmo.yaml", {"model.init_fn"}).yaml, "made.yaml").config;
  EXPECT_EQ(epochs.train.epochs, 2);
}

TEST(Olmo, keys_that_a_run_does_not_have_are_all_named_unless_they_are_left_out) {
  const std::string text = with("softmax_auxiliary_loss: true\nmodel_parallel: 2");
  EXPECT_EQ(test::error_of([&] { import_olmo(text, "olmo.yaml"); }),
            "olmo.yaml: expected keys that a run has, got model.init_fn: normal (OLMo's default), "
            "model_parallel: 2, softmax_auxiliary_loss: true (left out by --without "
            "model.init_fn,model_parallel,softmax_auxiliary_loss)");
  const OlmoImport olmo =
      import_olmo(text, "olmo.yaml", {"softmax_auxiliary_loss", "model_parallel", "model.init_fn"});
  EXPECT_THAT(olmo.left_out, ElementsAre("softmax_auxiliary_loss: true", "model_parallel: 2",
                                         "model.init_fn: normal (OLMo's default)"));
  EXPECT_THAT(test::error_of([&] {
                import_olmo("model: {d_model: 64, layer_norm_with_affine: false}", "x.yaml");
              }),
              testing::AllOf(HasSubstr("model.residual_dropout: 0.1 (OLMo's default)"),
                             HasSubstr("optimizer.name: lionw (OLMo's default)"),
                             HasSubstr("model.rope: false (OLMo's default)")));
  EXPECT_THAT(test::error_of([&] { import_olmo(kOlmo, "olmo.yaml", {"seed"}); }),
              HasSubstr("--without: expected keys of olmo.yaml that a run does not have, got "
                        "'seed'"));
  EXPECT_THAT(test::error_of([&] { import_olmo("model: {hidden: 3}", "x.yaml"); }),
              HasSubstr("x.yaml: expected an OLMo training file"));
}

}  // namespace
}  // namespace octet
