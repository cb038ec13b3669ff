#include "train/run_samples.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/ordered_json.h"
#include "base/printable.h"
#include "infer/model_texts.h"
#include "infer/recomputed_model.h"
#include "train/run_setup.h"

namespace octet {
namespace {

// The model that trains, as texts are written with.
class TrainedModel : public RecomputedModel {
 public:
  TrainedModel(TrainEngine& engine, int64_t capacity, int64_t vocab)
      : RecomputedModel({.capacity = capacity}, vocab), engine_(engine) {}

  int64_t planned_bytes() const override { return engine_.planned_bytes(); }

 private:
  std::vector<float> logits_of(const Batch& row, int64_t first, int64_t n) override {
    return engine_.logits(row, first, n);
  }

  TrainEngine& engine_;
};

[[noreturn]] void refuse_prompts(std::string_view expected, std::string_view got) {
  throw Error(ErrorCode::invalid_argument, "train.sample_prompts: expected {}, got {}", expected,
              got);
}

void expect_writer(const ModelSpec& spec, size_t n_prompts) {
  const ModelDef& def = model_def(spec.kind);
  if (def.writes_text && !has_source(spec)) return;
  refuse_prompts(fmt::format("none for {}, which writes no text by itself", def.name),
                 std::to_string(n_prompts));
}

std::string shown(const std::string& text) {
  constexpr size_t kMax = 40;
  return text.size() <= kMax ? "'" + printable(text) + "'"
                             : "'" + printable(text.substr(0, kMax)) + "...'";
}

}  // namespace

std::string sample_json(const TextSample& sample) {
  return json_line({{"step", sample.step},
                    {"prompt", sample.prompt},
                    {"text", sample.text},
                    {"stop", sample.stop}});
}

std::optional<TextSample> parse_sample(std::string_view line) {
  const Json json = parse_own_json(line);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer())
    return std::nullopt;
  TextSample sample;
  sample.step = json["step"].get<int64_t>();
  for (const auto& [key, field] : {std::pair{"prompt", &TextSample::prompt},
                                   {"text", &TextSample::text},
                                   {"stop", &TextSample::stop}}) {
    if (!json.contains(key) || !json[key].is_string()) return std::nullopt;
    sample.*field = json[key].get<std::string>();
  }
  return sample;
}

std::string sample_line(const TextSample& sample) {
  return fmt::format("step {} writes behind '{}': '{}'{}", sample.step, printable(sample.prompt),
                     printable(sample.text), sample.stop == "length" ? " ..." : "");
}

RunSamples::RunSamples(const Files& files, const RunConfig& config, const ModelSpec& spec)
    : config_(config.train), vocab_(spec.vocab), seq_(config.model.seq) {
  expect_writer(spec, config_.sample_prompts.size());
  tokenizer_ = run_tokenizer(files, config, spec, {});
  options_.stop_tokens = stop_tokens(files, config, *tokenizer_);
  if (has_conversations(config)) {
    chat_ = std::make_unique<ChatPrompts>(
        find_chat_templates(files, *tokenizer_, chat_query(config)), *tokenizer_);
    if (chat_->end_token()) options_.stop_tokens.push_back(*chat_->end_token());
    if (!chat_->end_text().empty()) options_.stop_texts.push_back(chat_->end_text());
  }
  read_prompts();
}

std::vector<int32_t> RunSamples::tokens_of(const std::string& prompt) const {
  try {
    if (chat_) {
      const OrderedJson message = {{"role", "user"}, {"content", prompt}};
      return chat_->tokens(chat_->render({{"messages", OrderedJson::array({message})}}));
    }
    std::vector<int32_t> tokens = tokenizer_->prefix();
    tokenizer_->encode(prompt, {}, tokens);
    return tokens;
  } catch (const Error& error) {
    refuse_prompts("texts that the run's tokenizer (data.tokenizer) reads",
                   fmt::format("{}: {}", shown(prompt), error.what()));
  }
}

void RunSamples::read_prompts() {
  int64_t shortest = seq_, longest = 0;
  for (const std::string& text : config_.sample_prompts) {
    Prompt prompt{.tokens = tokens_of(text)};
    prompt.sampling.temperature = config_.sample_temperature;
    prompt.sampling.seed = static_cast<uint32_t>(config_.seed + std::ssize(prompts_));
    const auto n = std::ssize(prompt.tokens);
    if (n == 0 || n >= seq_) {
      refuse_prompts(fmt::format("texts of 1 to {} tokens, one below model.seq", seq_ - 1),
                     fmt::format("{} of {}", n, shown(text)));
    }
    shortest = std::min(shortest, n);
    longest = std::max(longest, n);
    prompts_.push_back(std::move(prompt));
  }
  const int64_t capacity = RecomputedModel::padded_length(longest + config_.sample_tokens, seq_);
  lengths_ = RecomputedModel::padded_lengths(shortest, capacity);
}

std::vector<TextSample> RunSamples::write(TrainEngine& engine, int64_t step) const {
  TrainedModel model(engine, lengths_.back(), vocab_);
  std::vector<TextSample> samples;
  for (size_t i = 0; i < prompts_.size(); ++i) {
    GenerateOptions options = options_;
    options.max_tokens =
        std::min(config_.sample_tokens, model.capacity() - std::ssize(prompts_[i].tokens));
    const Completion done = generate(model, *tokenizer_, {prompts_[i]}, options).front();
    samples.push_back({.step = step,
                       .prompt = config_.sample_prompts[i],
                       .text = done.text,
                       .stop = std::string(enum_name(done.stop))});
  }
  return samples;
}

std::unique_ptr<RunSamples> make_run_samples(const Files& files, const RunConfig& config,
                                             const ModelSpec& spec) {
  return config.train.sample_prompts.empty() ? nullptr
                                             : std::make_unique<RunSamples>(files, config, spec);
}

}  // namespace octet
