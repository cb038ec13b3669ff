#include "data/picture_rows.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "data/images/picture_notes.h"
#include "data/token_rows.h"

namespace octet {
namespace {

// Turned as its file says, as transformers shows pictures of conversations to a model.
Image as_seen(std::span<const std::byte> file, const std::string& name) {
  return turned(decode_image(file, name), exif_orientation(file));
}

// The folder of the file that a record, "FILE:LINE", is of.
std::string folder_of(const std::string& place) {
  return parent_path(place.substr(0, place.rfind(':')));
}

std::string path_of(const ChatPicture& picture, const std::string& place) {
  return picture.path.starts_with('/') ? picture.path : join_path(folder_of(place), picture.path);
}

std::string name_of(const ChatPicture& picture, const std::string& place) {
  return picture.path.empty() ? place + ": the data of a picture"
                              : fmt::format("{}: '{}'", place, path_of(picture, place));
}

class PictureRowSource : public RowSource {
 public:
  PictureRowSource(const Files& files, const ChatData& chat, PictureRowsOptions options,
                   const Log& log)
      : files_(files),
        options_(std::move(options)),
        inputs_{tokens_input(), options_.labels, merged_rows_input(), options_.pictures} {
    const std::vector<int64_t>& inner = options_.pictures.inner;
    CHECK(inner.size() == 4);
    options_.transforms.channels = inner[1];
    options_.transforms.size = inner[3];
    int64_t n_long = 0;
    for (const ChatSample& sample : chat.samples) n_long += add(*chat.source, sample) ? 0 : 1;
    if (n_long > 0) {
      log.warning(
          "[data] {} of {} conversations are longer than a row of {} tokens (model.seq): "
          "{} (data.too_long)",
          n_long, chat.samples.size(), options_.seq,
          options_.too_long == TooLong::truncate ? "their ends are cut" : "dropped");
    }
    if (ends_.empty())
      throw Error(ErrorCode::bad_data, "[data] expected a conversation that fits a row, got none");
    set_identity();
  }

  int64_t n_samples() const override { return std::ssize(ends_); }
  const std::vector<InputSpec>& inputs() const override { return inputs_; }
  bool tells_lengths() const override { return true; }
  int64_t longest() const override { return longest_; }
  uint64_t identity() const override { return identity_; }
  bool decodes() const override { return true; }
  int64_t sample_bytes() const override {
    return std::max<int64_t>(std::ssize(all_.ids) * 4 / n_samples(), 1);
  }
  std::optional<int64_t> n_counted(int64_t sample, const RowCell&,
                                   const InputSpec& spec) const override {
    if (spec.name != options_.labels.name) return std::nullopt;
    const int64_t begin = begin_of(sample), end = ends_[static_cast<size_t>(sample)];
    return std::count(all_.is_trained.begin() + begin + 1, all_.is_trained.begin() + end, 1);
  }

  void write(int64_t sample, const RowCell& where, Batch& to) const override {
    const int64_t begin = begin_of(sample), end = ends_[static_cast<size_t>(sample)];
    const int64_t n = end - begin - 1, first = where.row * to.seq;
    CHECK(n <= to.seq);
    const auto ids =
        std::span(all_.ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(n));
    put_row(ids, 0, where.row, to.seq, to.ints("tokens"));
    const auto labels = to.ints(options_.labels.name).begin() + first;
    for (int64_t i = 0; i < n; ++i) {
      const auto next = static_cast<size_t>(begin + i + 1);
      labels[i] = all_.is_trained[next] != 0 ? all_.ids[next] : kIgnoredLabel;
    }
    std::fill(labels + n, labels + to.seq, kIgnoredLabel);
    std::vector<int32_t> rows(static_cast<size_t>(to.seq), -1);
    std::copy_n(all_.rows.begin() + begin, n, rows.begin());
    write_merged_rows(rows, first, to.batch * to.seq,
                      where.row * options_.pictures.inner[0] * options_.rows_per_picture,
                      std::span(to.ints("merged_rows"))
                          .subspan(static_cast<size_t>(first), static_cast<size_t>(to.seq)));
    write_pictures(sample, where, to);
    to.lengths[static_cast<size_t>(where.row)] = n;
  }

 private:
  int64_t begin_of(int64_t sample) const {
    return sample == 0 ? 0 : ends_[static_cast<size_t>(sample - 1)];
  }

  void write_pictures(int64_t sample, const RowCell& where, Batch& to) const {
    const auto n_values = static_cast<size_t>(options_.pictures.n_inner());
    const auto n = n_values / static_cast<size_t>(options_.pictures.inner[0]);
    const auto of_row = std::span(to.reals("pictures"))
                            .subspan(static_cast<size_t>(where.row) * n_values, n_values);
    std::fill(of_row.begin(), of_row.end(), 0.0f);
    const auto& [place, pictures] = records_[static_cast<size_t>(sample)];
    for (size_t i = 0; i < pictures.size(); ++i)
      read_picture(files_, {pictures[i], place}, options_.transforms, where,
                   of_row.subspan(i * n, n));
  }

  // True if the sample fits into a row.
  bool add(const TokenSource& source, const ChatSample& sample) {
    std::vector<int32_t> ids(static_cast<size_t>(sample.n_tokens));
    std::vector<uint8_t> flags(ids.size());
    source.read(sample.first, ids, flags);
    for (uint8_t& flag : flags) flag = (flag & kNotTrained) != 0 ? 0 : 1;
    // The first samples of a conversation in several have its first pictures.
    auto pictures = sample.pictures;
    const auto n_places = static_cast<size_t>(std::ranges::count(ids, options_.image_token));
    if (sample.n_tokens > 0 && n_places < pictures.size()) pictures.resize(n_places);
    check_pictures(pictures, sample.place);
    PlacedTokens placed;
    try {
      placed = place_rows(ids, flags, std::ssize(pictures), options_);
    } catch (const Error& error) {
      throw Error(ErrorCode::bad_data, "[data] {}: {}", sample.place, error.what());
    }
    auto n = std::ssize(placed.ids);
    const bool fits = n - 1 <= options_.seq;
    if (!fits && options_.too_long == TooLong::split) {
      throw Error(ErrorCode::bad_data,
                  "[data] {}: expected at most {} tokens with those of its pictures (model.seq), "
                  "got {}: data.too_long: drop or truncate says what becomes of it",
                  sample.place, options_.seq, n - 1);
    }
    if (!fits && options_.too_long == TooLong::drop) return false;
    n = std::min<int64_t>(n, options_.seq + 1);
    all_.ids.insert(all_.ids.end(), placed.ids.begin(), placed.ids.begin() + n);
    all_.rows.insert(all_.rows.end(), placed.rows.begin(), placed.rows.begin() + n);
    all_.is_trained.insert(all_.is_trained.end(), placed.is_trained.begin(),
                           placed.is_trained.begin() + n);
    ends_.push_back(std::ssize(all_.ids));
    longest_ = std::max<int64_t>(longest_, n - 1);
    records_.emplace_back(sample.place, std::move(pictures));
    return fits;
  }

  void check_pictures(const std::vector<ChatPicture>& pictures, const std::string& place) const {
    if (std::ssize(pictures) > options_.pictures.inner[0]) {
      throw Error(ErrorCode::bad_data,
                  "[data] {}: expected at most {} pictures (model.images), got {}", place,
                  options_.pictures.inner[0], pictures.size());
    }
    for (const ChatPicture& picture : pictures) {
      if (picture.path.empty() || files_.kind(path_of(picture, place)) == EntryKind::file) continue;
      throw Error(ErrorCode::bad_data, "[data] {}: expected a picture, got no such file",
                  name_of(picture, place));
    }
  }

  void set_identity() {
    Xxh64 hash;
    hash.update_sized(all_.ids);
    hash.update_sized(all_.is_trained);
    hash.update_sized(ends_);
    for (const auto& [place, pictures] : records_) {
      for (const ChatPicture& picture : pictures) {
        const std::string path = picture.path.empty() ? "" : path_of(picture, place);
        hash.update_sized(file_name(path));
        hash.update_sized(picture.bytes);
        hash.add(path.empty() ? uint64_t{0} : files_.size(path));
      }
    }
    identity_ = hash.digest();
  }

  const Files& files_;
  PictureRowsOptions options_;
  std::vector<InputSpec> inputs_;
  PlacedTokens all_;
  std::vector<int64_t> ends_;  // of each sample, in tokens
  std::vector<std::pair<std::string, std::vector<ChatPicture>>> records_;  // place, pictures
  int64_t longest_ = 0;
  uint64_t identity_ = 0;
};

}  // namespace

PlacedTokens place_rows(const std::vector<int32_t>& ids, const std::vector<uint8_t>& is_trained,
                        int64_t n_pictures, const PictureRowsOptions& options) {
  PlacedTokens placed;
  int64_t n_placed = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool is_picture = ids[i] == options.image_token;
    const auto put_around = [&](const std::vector<int32_t>& tokens) {
      placed.ids.insert(placed.ids.end(), tokens.begin(), tokens.end());
      placed.rows.resize(placed.ids.size(), -1);
      placed.is_trained.resize(placed.ids.size(), 0);
    };
    if (is_picture) put_around(options.before);
    const int64_t n = is_picture ? options.rows_per_picture : 1;
    for (int64_t row = 0; row < n; ++row) {
      placed.ids.push_back(ids[i]);
      placed.is_trained.push_back(is_picture ? 0 : is_trained[i]);
      placed.rows.push_back(
          is_picture ? static_cast<int32_t>(n_placed * options.rows_per_picture + row) : -1);
    }
    if (is_picture) put_around(options.behind);
    n_placed += is_picture ? 1 : 0;
  }
  if (n_placed != n_pictures) {
    throw Error(ErrorCode::bad_data,
                "expected a token {} (model.image_token) for each of {} pictures, got {}",
                options.image_token, n_pictures, n_placed);
  }
  return placed;
}

void write_merged_rows(std::span<const int32_t> rows, int64_t place, int64_t n_tokens,
                       int64_t first_row, std::span<int32_t> out) {
  CHECK(rows.size() == out.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t own = place + static_cast<int64_t>(i);
    out[i] = static_cast<int32_t>(rows[i] < 0 ? own : n_tokens + first_row + rows[i]);
  }
}

void read_picture(const Files& files, const RecordPicture& of, const ImageTransforms& how,
                  const RowCell& where, std::span<float> out) {
  const auto& [picture, place] = of;
  const std::string name = name_of(picture, place);
  if (picture.path.empty()) {
    return transform(as_seen(std::as_bytes(std::span(picture.bytes)), name), how, where, out);
  }
  const PictureLimits& limits = input_limits().pictures;
  const std::string path = path_of(picture, place);
  if (const uint64_t n_bytes = files.size(path); n_bytes > limits.max_file_bytes) {
    throw Error(ErrorCode::bad_data, "[images] {}: expected at most {} bytes, got {}", name,
                limits.max_file_bytes, n_bytes);
  }
  transform(as_seen(files.read_bytes(path), name), how, where, out);
}

std::shared_ptr<const RowSource> picture_rows(const Files& files, const ChatData& chat,
                                              const PictureRowsOptions& options, const Log& log) {
  return std::make_shared<PictureRowSource>(files, chat, options, log);
}

}  // namespace octet
