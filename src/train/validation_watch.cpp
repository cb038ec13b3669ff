#include "train/validation_watch.h"

#include <bit>
#include <cmath>

#include "base/error.h"
#include "base/parse_text.h"

namespace octet {
namespace {

constexpr const char* kBestStep = "best_step";
constexpr const char* kLastStep = "last_evaluation";
constexpr const char* kSince = "evaluations_since_best";
constexpr const char* kBestLoss = "best_val_loss";  // the bits of the double

uint64_t number(const KeyValues& extra, const char* key, int base, const std::string& where) {
  const auto entry = extra.find(key);
  const std::string text = entry == extra.end() ? "" : entry->second;
  if (const auto value = parse_number<uint64_t>(text, base)) return *value;
  throw Error(ErrorCode::bad_data, "[resume] {}: expected a number '{}' in extra, got '{}'", where,
              key, text);
}

}  // namespace

bool ValidationWatch::add(int64_t step, double loss) {
  if (step <= last_step_) return false;
  last_step_ = step;
  if (!std::isfinite(loss) || !(loss < best_loss_)) {
    ++n_since_best_;
    return false;
  }
  best_loss_ = loss;
  best_step_ = step;
  n_since_best_ = 0;
  return true;
}

void ValidationWatch::begin_anew() {
  const int64_t last_step = last_step_;
  *this = {};
  last_step_ = last_step;
}

void ValidationWatch::write(KeyValues& extra) const {
  extra[kBestStep] = std::to_string(best_step_);
  extra[kLastStep] = std::to_string(last_step_);
  extra[kSince] = std::to_string(n_since_best_);
  extra[kBestLoss] = fmt::format("{:016x}", std::bit_cast<uint64_t>(best_loss_));
}

void ValidationWatch::read(const KeyValues& extra, const std::string& where) {
  if (!extra.contains(kBestStep)) return;
  constexpr uint64_t kMax = uint64_t{1} << 53;
  const auto count = [&](const char* key) {
    const uint64_t value = number(extra, key, 10, where);
    if (value <= kMax) return static_cast<int64_t>(value);
    throw Error(ErrorCode::bad_data, "[resume] {}: expected '{}' of at most 2^53, got {}", where,
                key, value);
  };
  best_step_ = count(kBestStep);
  last_step_ = count(kLastStep);
  n_since_best_ = count(kSince);
  best_loss_ = std::bit_cast<double>(number(extra, kBestLoss, 16, where));
}

}  // namespace octet
