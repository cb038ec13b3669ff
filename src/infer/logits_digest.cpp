#include "infer/logits_digest.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "infer/log_probabilities.h"
#include "infer/text_model.h"

namespace octet {
namespace {

constexpr int64_t kDigestRows = 2, kDigestTokens = 16, kDigestLogits = 8;

std::vector<int32_t> digest_row(int64_t row, int64_t vocab) {
  constexpr int64_t kStep = 7919, kFirst = 13;  // a prime that few vocabularies divide
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < kDigestTokens; ++i)
    ids.push_back(static_cast<int32_t>((kStep * (kDigestTokens * row + i) + kFirst) % vocab));
  return ids;
}

Json digest_of(std::span<const float> logits) {
  const LogProbabilities all(logits);
  const auto vocab = std::ssize(logits);
  std::vector<int32_t> ids = all.top(static_cast<size_t>(std::min(kDigestLogits, vocab)));
  for (int64_t k = 0; k < kDigestLogits; ++k)
    ids.push_back(static_cast<int32_t>(k * vocab / kDigestLogits));
  Json listed = Json::array();
  for (const int32_t id : ids) {
    const auto logit = static_cast<double>(logits[static_cast<size_t>(id)]);
    listed.push_back({id, logit});
  }
  const double first = listed[0][1].get<double>();
  return {{"log_sum", first - all.of(ids.front())}, {"logits", std::move(listed)}};
}

}  // namespace

bool has_logits_digest(const ModelSpec& spec) {
  const ModelDef& def = model_def(spec.kind);
  return def.writes_text && def.reads_text && !has_source(spec);
}

std::string logits_digest(const ModelSource& source, const TextMachine& machine,
                          std::string_view what) {
  expect_text(source.spec);
  const auto model = make_text_model(
      source, {.n_entries = 1, .capacity = kDigestTokens, .logits = LogitsFor::scoring}, machine);
  Json rows = Json::array();
  for (int64_t row = 0; row < kDigestRows; ++row) {
    const std::vector<int32_t> ids = digest_row(row, model->vocab());
    Json positions = Json::array();
    const TextChunk chunk{.tokens = ids};
    model->logits(
        std::span(&chunk, 1), [&](const TextChunk&, int64_t, std::span<const float> logits) {
          if (!std::ranges::all_of(logits, [](float x) { return std::isfinite(x); }))
            throw Error(ErrorCode::numerics, "[verify] expected finite logits, got others");
          positions.push_back(digest_of(logits));
        });
    rows.push_back({{"tokens", ids}, {"positions", std::move(positions)}});
  }
  const Json digest = {{"format", 1},
                       {"model", model_def(source.spec.kind).name},
                       {"weights", what},
                       {"vocab", model->vocab()},
                       {"rows", std::move(rows)}};
  return digest.dump(1) + "\n";
}

}  // namespace octet
