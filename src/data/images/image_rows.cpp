#include "data/images/image_rows.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <set>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/few.h"

namespace octet {
namespace {

bool are_pixels(const InputSpec& input) {
  return input.per == Per::row && input.type == HostType::real;
}
bool is_label(const InputSpec& input) {
  return input.per == Per::row && input.type == HostType::i32 && input.n_inner() == 1;
}

// Sets channels and size, of [C, S, S] or of one extent C S^2, which is no square for C = 3.
void fit_to_pixels(const InputSpec& pixels, ImageTransforms& transforms) {
  for (const int64_t channels : {1, 3}) {
    if (pixels.inner.size() == 3 && pixels.inner.front() != channels) continue;
    const int64_t n = pixels.n_inner() / channels;
    const auto size = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(n))));
    if (size < 1 || channels * size * size != pixels.n_inner()) continue;
    if (pixels.inner.size() == 3 && pixels.inner.back() != size) continue;
    transforms.channels = channels;
    transforms.size = size;
    return;
  }
  throw Error(ErrorCode::bad_data,
              "[images] expected '{}' of a square picture of 1 or 3 channels, got {}", pixels.name,
              pixels.inner.size() == 3 ? fmt::format("[{}]", fmt::join(pixels.inner, ", "))
                                       : fmt::format("{} elements", pixels.n_inner()));
}

class ImageRows : public RowSource {
 public:
  ImageRows(std::shared_ptr<const ImageSource> images, const std::vector<InputSpec>& inputs,
            ImageTransforms transforms, Log log)
      : images_(std::move(images)),
        inputs_(inputs),
        transforms_(std::move(transforms)),
        log_(std::move(log)) {
    const auto n_pixels = std::ranges::count_if(inputs_, are_pixels);
    const auto n_labels = std::ranges::count_if(inputs_, is_label);
    if (n_pixels != 1 || n_labels > 1 || n_pixels + n_labels != std::ssize(inputs_)) {
      std::vector<std::string> names;
      for (const InputSpec& input : inputs_) names.push_back(input.name);
      throw Error(ErrorCode::bad_data,
                  "[images] expected a model that reads one picture and one label a row, got {}",
                  fmt::join(names, ", "));
    }
    pixels_ = *std::ranges::find_if(inputs_, are_pixels);
    if (n_labels == 1) label_ = *std::ranges::find_if(inputs_, is_label);
    fit_to_pixels(pixels_, transforms_);
    check_transforms(transforms_);
    check_labels();
  }

  int64_t n_samples() const override { return images_->n_images(); }
  const std::vector<InputSpec>& inputs() const override { return inputs_; }
  uint64_t identity() const override { return images_->identity(); }
  std::optional<int64_t> n_counted(int64_t, const RowCell&, const InputSpec&) const override {
    return 1;  // each has a label
  }
  bool decodes() const override { return true; }
  int64_t sample_bytes() const override { return pixels_.n_inner(); }

  void write(int64_t sample, const RowCell& where, Batch& to) const override {
    const auto n = static_cast<size_t>(pixels_.n_inner());
    const auto out =
        std::span(to.reals(pixels_.name)).subspan(static_cast<size_t>(where.row) * n, n);
    const int64_t found = write_whole(sample, where, out);
    if (!label_.name.empty())
      to.ints(label_.name)[static_cast<size_t>(where.row)] = images_->label(found);
  }

 private:
  void check_labels() const {
    if (label_.name.empty() || label_.bound == 0) return;
    for (int64_t i = 0; i < images_->n_images(); ++i) {
      if (images_->label(i) < label_.bound) continue;
      throw Error(ErrorCode::bad_data, "[images] {}: expected a label below {}, got {}",
                  images_->name_of(i), label_.bound, images_->label(i));
    }
  }

  // This picture, or the next that is whole; which one.
  int64_t write_whole(int64_t sample, const RowCell& where, std::span<float> out) const {
    for (int64_t n_tries = 1;; ++n_tries) {
      try {
        transform(images_->decode(sample), transforms_, where, out);
        return sample;
      } catch (const Error& error) {
        if (error.code() != ErrorCode::bad_data || n_tries == n_samples()) throw;
        tell_damaged(sample, error.what());
      }
      sample = (sample + 1) % n_samples();
    }
  }

  // The first few by name, then their number at each power of ten.
  void tell_damaged(int64_t sample, const std::string& why) const {
    const std::lock_guard lock(mutex_);
    if (!damaged_.insert(sample).second) return;
    const int64_t n = std::ssize(damaged_);
    if (n <= kMaxWarnings) log_.warning("{}; the next picture takes its place", why);
    if (n < n_told_) return;
    log_.warning("[images] {} damaged pictures have been replaced so far", n);
    n_told_ *= 10;
  }

  std::shared_ptr<const ImageSource> images_;
  std::vector<InputSpec> inputs_;
  ImageTransforms transforms_;
  Log log_;
  InputSpec pixels_, label_ = {.name = ""};
  mutable std::mutex mutex_;
  mutable std::set<int64_t> damaged_;
  mutable int64_t n_told_ = 10;
};

}  // namespace

std::shared_ptr<const RowSource> image_rows(std::shared_ptr<const ImageSource> images,
                                            const std::vector<InputSpec>& inputs,
                                            const ImageTransforms& transforms, Log log) {
  return std::make_shared<ImageRows>(std::move(images), inputs, transforms, std::move(log));
}

}  // namespace octet
