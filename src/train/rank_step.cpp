#include "train/rank_step.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/hash.h"
#include "base/philox.h"
#include "formats/bits.h"

namespace octet {
namespace {

// Words that are the same on all ranks, and then the rows' hash, behind the losses.
constexpr size_t kCommonWords = 5, kWords = kCommonWords + 2;

uint32_t low(uint64_t x) {
  return static_cast<uint32_t>(x);
}
uint32_t high(uint64_t x) {
  return static_cast<uint32_t>(x >> 32);
}

// A NaN may have other bits on every rank.
uint32_t norm_bits(float norm) {
  return is_nan(norm) ? kF32Nan : bits_of(norm);
}

std::vector<uint32_t> words_of(const RankStep& own) {
  std::vector<uint32_t> words;
  for (const float loss : own.losses) words.push_back(bits_of(loss));
  uint64_t skipped_tensors = 0;
  for (const std::string& name : own.skipped_tensors) skipped_tensors += name_hash(name);
  words.insert(words.end(),
               {norm_bits(own.grad_norm), own.nonfinite ? 1u : 0u, own.attempt,
                low(skipped_tensors), high(skipped_tensors), low(own.rows), high(own.rows)});
  return words;
}

// Each rank's words.
using Message = std::span<const uint32_t>;

std::string text_of(Message common) {
  return fmt::format("gradient norm {:.9g}{} of attempt {}{}", float_of(common[0]),
                     common[1] != 0 ? ", not finite," : "", common[2],
                     common[3] != 0 || common[4] != 0
                         ? fmt::format(", refusing tensors {:08x}{:08x}", common[4], common[3])
                         : "");
}

// The words that most ranks have, of equally many the lowest rank's.
void expect_same(const std::vector<Message>& common) {
  const auto n_like = [&](Message words) {
    return std::ranges::count_if(common, [&](Message c) { return std::ranges::equal(c, words); });
  };
  const Message& usual = *std::ranges::max_element(common, {}, n_like);
  std::vector<std::string> others;
  for (size_t rank = 0; rank < common.size(); ++rank) {
    if (!std::ranges::equal(common[rank], usual))
      others.push_back(fmt::format("rank {} has {}", rank, text_of(common[rank])));
  }
  if (others.empty()) return;
  throw Error(ErrorCode::numerics, "[ranks] expected {} on every rank, got others: {}",
              text_of(usual), fmt::join(others, "; "));
}

bool are_equal_losses(const std::vector<Message>& all, size_t n_losses) {
  const auto rows = [&](Message words) { return words.subspan(n_losses + kCommonWords); };
  bool have_same_rows = true;
  for (const Message& words : all) {
    for (size_t i = 0; i < n_losses; ++i) {
      if (words[i] != all[0][i] || !is_finite(float_of(words[i]))) return false;
    }
    have_same_rows &= std::ranges::equal(rows(words), rows(all[0]));
  }
  return !have_same_rows;
}

double sum_of(const std::vector<uint32_t>& words, size_t n_losses, size_t n_words) {
  double sum = 0;
  for (size_t i = 0; i < n_losses; ++i) {
    for (size_t at = i; at < words.size(); at += n_words)
      sum += static_cast<double>(float_of(words[at]));
  }
  return sum;
}

}  // namespace

double sum_over_ranks(Group* group, const std::vector<float>& losses) {
  std::vector<uint32_t> own;
  for (const float loss : losses) own.push_back(bits_of(loss));
  return sum_of(gather_values<uint32_t>(group, own), losses.size(), losses.size());
}

CommonStep gather_step(Group* group, const RankStep& own) {
  const std::vector<uint32_t> words = gather_values<uint32_t>(group, words_of(own));
  const size_t n_losses = own.losses.size(), n_words = n_losses + kWords;
  CommonStep step{.loss = sum_of(words, n_losses, n_words)};
  if (group == nullptr) return step;
  std::vector<Message> all, common;
  for (size_t at = 0; at < words.size(); at += n_words) {
    all.push_back(std::span(words).subspan(at, n_words));
    common.push_back(all.back().subspan(n_losses, kCommonWords));
  }
  expect_same(common);
  step.equal_losses = all.size() > 1 && are_equal_losses(all, n_losses);
  return step;
}

uint64_t hash_of_rows(uint64_t before, const Batch& batch) {
  uint64_t hash = before;
  for (const HostTensor& tensor : batch.tensors) {
    const auto bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
    const std::span staged(tensor.staged.data.get(), tensor.staged.size);
    const auto own = staged.empty() ? std::visit(bytes, tensor.values) : staged;
    hash = hash * 0x9E3779B185EBCA87u + xxh64(own);
  }
  return hash;
}

}  // namespace octet
