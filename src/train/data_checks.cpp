#include "train/data_checks.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <variant>
#include <vector>

#include "base/error.h"
#include "infer/embed.h"

namespace octet {
namespace {

constexpr double kManyUnknown = 0.1;
constexpr int64_t kPieces = 64;
constexpr int64_t kLookedAtBytes = int64_t{16} << 20, kDecoded = 16, kFewSamples = 8;

// An array whose items the loss counts, of the samples or of their rows.
bool is_label(const InputSpec& input) {
  return input.fill == Fill::ignored && input.per != Per::token;
}

bool counts(int32_t label) {
  return label != kIgnoredLabel;
}
bool counts(float target) {
  return !std::isnan(target);
}

Batch empty_sample(const RowSource& source, int64_t seq) {
  const int64_t rows = source.rows_per_sample();
  Batch sample{.batch = rows, .seq = std::max(source.longest(), seq), .rows_per_sample = rows};
  for (const InputSpec& input : source.inputs()) sample.add(input);
  if (source.tells_lengths()) sample.lengths.assign(static_cast<size_t>(rows), sample.seq);
  return sample;
}

// "1" of labels that all are; nothing where they differ, or where none counts.
template <typename T>
std::optional<std::string> common_value(const std::vector<T>& labels) {
  std::optional<T> first;
  for (const T label : labels) {
    if (!counts(label)) continue;
    if (!first) first = label;
    if (label != *first) return std::nullopt;
  }
  return first ? std::optional(fmt::format("{}", *first)) : std::nullopt;
}

// Values that the samples have in common so far.
class Constants {
 public:
  void add(const Batch& sample) {
    if (first_.tensors.empty()) {
      first_ = sample;
      are_same_.assign(sample.tensors.size(), true);
    }
    for (size_t i = 0; i < sample.tensors.size(); ++i)
      are_same_[i] = are_same_[i] && is_same(sample.tensors[i], first_.tensors[i]);
    ++n_;
  }

  void tell(const Log& log) const {
    bool are_inputs_same = n_ > 1;
    for (size_t i = 0; i < first_.tensors.size(); ++i) {
      const HostTensor& one = first_.tensors[i];
      if (!is_label(one.spec)) are_inputs_same = are_inputs_same && are_same_[i];
      if (!is_label(one.spec) || !are_same_[i] || n_ < kFewSamples) continue;
      const auto value = std::visit([](const auto& all) { return common_value(all); }, one.values);
      log.warning("[data] '{}' is the same in all of {} samples{}: there is nothing to tell apart",
                  one.spec.name, n_, value ? ", " + *value : "");
    }
    if (are_inputs_same && n_ >= kFewSamples)
      log.warning("[data] all of {} samples are the same to the model: it can tell none apart", n_);
  }

 private:
  // Values that are no numbers are none, here and there.
  static bool is_same(const HostTensor& a, const HostTensor& b) {
    return std::visit(
        [&](const auto& values) {
          const auto& others = std::get<std::decay_t<decltype(values)>>(b.values);
          return std::ranges::equal(
              values, others, [](auto x, auto y) { return x == y || (!counts(x) && !counts(y)); });
        },
        a.values);
  }

  Batch first_;
  std::vector<bool> are_same_;
  int64_t n_ = 0;
};

// Calls it with samples from all of the data, fewer where these are large.
void look_at(const RowSource& source, int64_t seq, const std::function<void(const Batch&)>& use) {
  const int64_t bytes = std::max<int64_t>(source.sample_bytes(), 1);
  int64_t n = std::clamp(kLookedAtBytes / bytes, kDecoded, kLookedAt);
  if (source.decodes()) n = kDecoded;
  n = std::min(n, source.n_samples());
  const Batch empty = empty_sample(source, seq);
  for (int64_t i = 0; i < n; ++i) {
    Batch sample = empty;
    source.write(i * source.n_samples() / n, {}, sample);
    use(sample);
  }
}

// Before the end of a row.
bool holds_inside(const Batch& sample, int64_t token) {
  if (sample.find("tokens") == nullptr) return false;
  const std::vector<int32_t>& tokens = sample.ints("tokens");
  for (int64_t row = 0; row < sample.batch; ++row) {
    const auto first = tokens.begin() + row * sample.seq;
    const int64_t length =
        sample.lengths.empty() ? sample.seq : sample.lengths[static_cast<size_t>(row)];
    if (std::find(first, first + length, token) != first + length) return true;
  }
  return false;
}

}  // namespace

void check_known(std::span<const int32_t> tokens, const Tokenizer& tokenizer, const Log& log) {
  const std::optional<int32_t> unknown = tokenizer.unknown();
  std::vector<int32_t> special = tokenizer.special_ids();
  std::ranges::sort(special);
  int64_t n = 0, n_unknown = 0;
  for (const int32_t id : tokens) {
    n_unknown += id == unknown ? 1 : 0;
    n += id == unknown || !std::ranges::binary_search(special, id) ? 1 : 0;
  }
  if (n == 0) throw Error(ErrorCode::bad_data, "[data] expected text, got nothing but empty texts");
  if (!unknown) return;
  const std::string name = tokenizer.decode({&*unknown, 1});
  if (n_unknown == n) {
    throw Error(ErrorCode::bad_data,
                "[data] expected text of the tokenizer's vocabulary, got {} tokens that are all "
                "unknown ({}): data.tokenizer may be of another language or case",
                n, name);
  }
  const double share = static_cast<double>(n_unknown) / static_cast<double>(n);
  const std::string text =
      fmt::format("[data] {:.2f} % of {} tokens are unknown ({})", 100 * share, n, name);
  share > kManyUnknown ? log.warning("{}", text) : log.info("{}", text);
}

void check_known(const TokenStream& stream, const Tokenizer& tokenizer, const Log& log) {
  if (!tokenizer.unknown() || stream.n_tokens() == 0) return;
  const int64_t n = stream.n_tokens(), n_read = std::min(n, kKnownTokens);
  const int64_t n_pieces = n_read == n ? 1 : kPieces, piece = n_read / n_pieces;
  std::vector<int32_t> tokens(static_cast<size_t>(piece * n_pieces));
  std::vector<uint8_t> flags(static_cast<size_t>(piece));
  for (int64_t i = 0; i < n_pieces; ++i) {
    const auto part =
        std::span(tokens).subspan(static_cast<size_t>(i * piece), static_cast<size_t>(piece));
    stream.read(i * (n - piece) / std::max<int64_t>(n_pieces - 1, 1), part, flags);
  }
  check_known(tokens, tokenizer, log);
}

void tell_constants(const RowSource& source, int64_t seq, const Log& log) {
  Constants constants;
  look_at(source, seq, [&](const Batch& sample) { constants.add(sample); });
  constants.tell(log);
}

void tell_inner_padding(const RowSource& source, int64_t seq, const ModelSpec& spec,
                        const Log& log) {
  if (!model_def(spec.kind).positions_follow_pad || spec.pad_token < 0) return;
  int64_t n = 0, n_holding = 0;
  look_at(source, seq, [&](const Batch& sample) {
    ++n;
    n_holding += holds_inside(sample, spec.pad_token) ? 1 : 0;
  });
  if (n_holding > 0) log.warning("[data] {}", inner_padding_text(n_holding, n, "samples", spec));
}

}  // namespace octet
